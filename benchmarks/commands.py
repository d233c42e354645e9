"""What a short command costs beside the least that the command line and Python can take.

Best of 20, each measured in turn: a busy machine slows all of them, and the best of each is what
the program itself takes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from statistics import median
from time import perf_counter

from benchmarks.report import Figure
from benchmarks.service import serving

RUNS = 20


def over_version() -> Figure:
    version, listing, _ = _measured()
    return Figure(
        "`cede pool list` over `cede --version`",
        listing[0] / version[0],
        most=2.0,
        detail=f"{_shown(listing)} over {_shown(version)}",
    )


def over_python() -> Figure:
    _, listing, python = _measured()
    return Figure(
        "`cede pool list` over `python -c pass`",
        listing[0] / python[0],
        most=6.0,
        detail=f"{_shown(listing)} over {_shown(python)}",
    )


def _measured() -> tuple[list[float], list[float], list[float]]:
    """Sorted milliseconds of the version, the list and a Python that does nothing."""
    cede = [sys.executable, "-c", "import sys; from cede.cli.main import main; sys.exit(main())"]
    commands = ([*cede, "--version"], [*cede, "pool", "list"], [sys.executable, "-c", "pass"])
    took: tuple[list[float], ...] = ([], [], [])
    with serving("cede.cli") as service:
        environ = {**os.environ, "CEDE_CONFIG": str(service.database.parent / "client.yaml")}
        environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed was compiled once
        for _ in range(RUNS):
            for command, times in zip(commands, took, strict=True):
                started = perf_counter()
                subprocess.run(command, env=environ, stdout=subprocess.DEVNULL, check=True)
                times.append(1000 * (perf_counter() - started))
    version, listing, python = map(sorted, took)
    return version, listing, python


def _shown(times: list[float]) -> str:
    return f"{times[0]:.0f} ms (median {median(times):.0f})"


FIGURES = [over_version, over_python]
