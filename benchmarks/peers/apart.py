"""Peers from the package index live in an environment of their own, build/peers, and run there in a
process that is told what to do by lines. scripts/peers makes the environment.

They listen on every address of the machine, whatever they are told, and whoever reaches Ray may run
programs. So they get a network of their own that has nothing but the loopback address.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from benchmarks.peers.peer import run

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / "build" / "peers" / "bin" / "python"
STOP_SECONDS = 60.0
INSIDE = Path(__file__).parent / "inside"
ALONE = ("unshare", "--net", PYTHON, INSIDE / "alone.py")


def missing(module: str) -> str:
    if not PYTHON.exists():
        return f"no {module}: scripts/peers has not made build/peers"
    for command, why in (
        ((PYTHON, "-c", f"import {module}"), f"no {module}"),
        ((*ALONE, PYTHON, "-c", ""), "it would listen on every address of this machine"),
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            return f"{why}: {done.stderr.strip()[-200:]}"
    return ""


def version(package: str) -> str:
    program = f"from importlib.metadata import version; print(version('{package}'))"
    return run(PYTHON, "-c", program)


class Host:
    """A program of `inside`, with its folder and its slots as arguments."""

    def __init__(self, program: str, home: Path, slots: int, **environ: str) -> None:
        self._home = home
        self._log = home / f"{program}.log"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*ALONE, PYTHON, INSIDE / program, home, str(slots)],
                env={**os.environ, **environ},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                cwd=home,
            )

    def beside(self, program: str, *arguments: object) -> str:
        """What another program of `inside` prints, run in the network of this one."""
        network = f"--net=/proc/{self.process.pid}/ns/net"
        return run("nsenter", network, PYTHON, INSIDE / program, *arguments, cwd=self._home)

    def ask(self, line: str) -> object:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.answer()

    def answer(self) -> object:
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        assert said, f"it ended: {self._log.read_text(errors='replace')[-2000:]}"
        return json.loads(said)

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_SECONDS)
        with suppress(ProcessLookupError):  # what is left of it and of what it has started
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
