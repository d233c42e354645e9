"""`python -m tests.aged`: days of requests at a rate, with retention after each of them.

Prints ratios of one run on one machine, and exits with 1 if a bound is missed: a database that does
not grow any more, and a start, a list and memory as on a day-old database.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from cede.model.bounds import DAY, SECOND
from tests.aged.days import Days

# From when on the database must not grow: a day is kept, and another is not over yet.
STEADY = 3
MOST = {"restart": 1.5, "list": 1.5, "memory": 1.1}
TIMES = 7


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.aged")
    parser.add_argument("--days", type=int, default=10)
    parser.add_argument("--rate", type=float, default=10, help="requests a second")
    asked = parser.parse_args()
    count = int(asked.rate * DAY / SECOND)
    with tempfile.TemporaryDirectory(prefix="cede-aged-") as folder:
        return measure(Path(folder), asked.days, count)


def measure(folder: Path, days: int, count: int) -> int:
    aged, young = folder / "aged.db", folder / "young.db"
    made = Days(f"sqlite:///{aged}")
    sizes = []
    for day in range(days):
        began = perf_counter()
        made.load(count)
        loaded = perf_counter()
        commits = made.remove()
        took = perf_counter() - loaded
        made.restart()  # which also writes the log of changes into the file
        sizes.append(aged.stat().st_size)
        if day == 0:
            shutil.copy(aged, young)
        print(
            f"day {day + 1}: {count} requests in {loaded - began:.0f} s, {commits} commits that "
            f"remove, {1000 * took / max(1, commits):.1f} ms each, {sizes[-1] / 1e6:.1f} MB",
            flush=True,
        )
    made.close()
    good = say("size, last day over day 3", sizes[-1] / sizes[STEADY - 1], 1.05)
    found = [(probe(young), probe(aged)) for _ in range(TIMES)]  # in turn: the machine is shared
    for name, most in MOST.items():
        one, many = (min(each[at][name] for each in found) for at in (0, 1))
        good &= say(f"{name}, {days} days over one", many / one, most)
    return 0 if good else 1


def probe(database: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.aged.probe", f"sqlite:///{database}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def say(what: str, ratio: float, most: float) -> bool:
    print(f"{what}: {ratio:.2f} (at most {most})", flush=True)
    return ratio <= most


if __name__ == "__main__":
    sys.exit(main())
