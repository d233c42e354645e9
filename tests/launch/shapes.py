"""How long a kill takes: `python -m tests.launch.shapes --times 50`.

For every means of containment and every shape: from the order to the exit record as another process
sees it, which is after the group was found empty and the record is on disk. Fails when anything
survives, or when more than one in a hundred of the best means takes longer than a second.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from cede.launch.probe import KINDS, Containment, probe
from cede.model.errors import Invalid
from tests.launch.programs import SHAPES
from tests.launch.support import cleaned, shape_of, until

BOUND = 1.0


def measure(root: Path, containment: Containment, shape: str) -> float:
    """Seconds from the order to the record, once."""
    attempt, ready = shape_of(root, containment, shape)
    with cleaned(attempt), attempt.launch() as kept:
        until(ready.exists, f"{shape} being ready")
        ordered = time.monotonic()
        kept.kill()
        attempt.ended()
        took = time.monotonic() - ordered
        attempt.assert_nothing_survives()
    return took


def quantile(sorted_times: list[float], share: float) -> float:
    return sorted_times[min(int(len(sorted_times) * share), len(sorted_times) - 1)]


def line(name: str, times: list[float]) -> str:
    times = sorted(times)
    figures = (quantile(times, 0.5), quantile(times, 0.99), times[-1])
    return f"{name:<36}" + "".join(f"{1000 * each:>10.1f}" for each in figures)


def run(kind: str, times: int) -> list[float]:
    """Measure every shape under one means; all the times."""
    try:
        containment = probe(f"cede-shapes-{os.getpid()}", kind)
    except Invalid as error:
        print(f"{kind}: not here: {error}")
        return []
    every: list[float] = []
    for shape in SHAPES:
        with tempfile.TemporaryDirectory() as root:
            taken = [measure(Path(root), containment, shape) for _ in range(times)]
        print(line(f"{kind} {shape}", taken), flush=True)
        every += taken
    print(line(f"{kind}, all {len(every)}", every), flush=True)
    for place in (containment.at, *(at for _, at in containment.limits.values())):
        if place:
            Path(place).rmdir()
    return every


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--means", choices=KINDS, action="append")
    given = parser.parse_args()
    print(f"{'milliseconds from order to record':<36}{'median':>10}{'99 %':>10}{'worst':>10}")
    found = [taken for kind in given.means or KINDS if (taken := run(kind, given.times))]
    return 0 if found and quantile(sorted(found[0]), 0.99) <= BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
