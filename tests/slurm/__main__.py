"""`python -m tests.slurm`: the long programmes on a real Slurm; `make slurm`."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tests.slurm import faults, outside, rates
from tests.slurm.cluster import cluster, missing
from tests.slurm.world import POLL, world

PROGRAMMES = ("faults", "outside", "rates")


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.slurm")
    parser.add_argument("programmes", nargs="*", default=list(PROGRAMMES))
    parser.add_argument("--points", type=int, help="only so many kills of the bridge")
    given = parser.parse_args()
    if why := missing():
        sys.stdout.write(f"*** NOTICE: no Slurm here: {why} ***\n")
        return 1
    for name in given.programmes:
        home = Path(tempfile.mkdtemp(prefix=f"cede-slurm-{name}-"))
        home.chmod(0o755)
        for each in ("slurm", "world"):
            (home / each).mkdir()
        poll = {"outside": outside.POLL, "rates": rates.POLL}.get(name, POLL)
        timeout = 10 if name == "faults" else 300  # there Slurm gives a node up
        with (
            cluster(home / "slurm", slurmd_timeout=timeout, min_job_age=36000) as slurm,
            world(home / "world", slurm, poll=poll) as made,
        ):
            if name == "faults":
                found = faults.run(made, faults.POINTS[: given.points])
            else:
                found = {"outside": outside.run, "rates": rates.run}[name](made)
        sys.stdout.write(f"{name}: {found}\n")
        shutil.rmtree(home, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
