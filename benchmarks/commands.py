"""What a short command costs beside the least that the command line and Python can take.

Processor time, best of 20, each measured in turn: a busy machine slows all of them, and the best of
each is what the program itself takes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from statistics import median

from benchmarks.jobs import node
from benchmarks.report import Figure
from tests.client.serving import BIN
from tests.support.sources import HERE

RUNS = 20
INSTALLED = BIN / "cede"
IN_PYTHON, COMPILED = 4.0, 0.5


def over_version() -> Figure:
    version, listing, _, _, _ = _measured()
    return Figure(
        "`cede pool list` over `cede --version`",
        listing[0] / version[0],
        most=2.0,
        detail=f"{_shown(listing)} over {_shown(version)}",
    )


def over_python() -> Figure:
    _, listing, _, _, python = _measured()
    return Figure(
        "`cede pool list` over `python -c pass`",
        listing[0] / python[0],
        most=6.0,
        detail=f"{_shown(listing)} over {_shown(python)}",
    )


def submission_over_python() -> Figure:
    _, _, submission, _, python = _measured()
    return Figure(
        "`cede submit -- true` in Python over `python -c pass`",
        submission[0] / python[0],
        most=IN_PYTHON,
        detail=f"{_shown(submission)} over {_shown(python)}",
    )


def installed_submission_over_python() -> Figure:
    _, _, _, installed, python = _measured()
    is_compiled = not INSTALLED.read_bytes().startswith(b"#!")
    return Figure(
        "`cede submit -- true` as installed over `python -c pass`",
        installed[0] / python[0],
        most=COMPILED if is_compiled else IN_PYTHON,
        detail=f"{_shown(installed)} over {_shown(python)}"
        + (", compiled" if is_compiled else ", not compiled"),
    )


@cache
def _measured() -> tuple[list[float], ...]:
    """Sorted milliseconds of processor time: of the version, the list, a submission by Python and
    by the installed command, and a Python that does nothing.
    """
    cede = [sys.executable, "-c", "import sys; from cede.cli.main import main; sys.exit(main())"]
    team = ("--component", "bench", "-t", "team", "--pool", "bench", "--gpu", "1")
    commands = (
        [*cede, "--version"],
        [*cede, "pool", "list"],
        [*cede, "submit", *team, "--", "true"],
        [str(INSTALLED), "submit", *team, "--", "true"],
        [sys.executable, "-c", "pass"],
    )
    took: tuple[list[float], ...] = ([], [], [], [], [])
    with (
        tempfile.TemporaryDirectory(prefix="cede-commands-") as folder,
        node(Path(folder), HERE) as found,
    ):
        environ = found.serving.environment()
        environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed was compiled once
        for _ in range(RUNS):
            for command, times in zip(commands, took, strict=True):
                times.append(_milliseconds(command, environ))
    return tuple(map(sorted, took))


def _milliseconds(command: list[str], environ: dict[str, str]) -> float:
    """Of processor time: what else runs here counts less than it does by the clock."""
    process = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return 1000 * (used.ru_utime + used.ru_stime)


def _shown(times: list[float]) -> str:
    return f"{times[0]:.1f} ms (median {median(times):.1f})"


FIGURES = [over_version, over_python, submission_over_python, installed_submission_over_python]
