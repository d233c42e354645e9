"""Attempts for tests, and a look at the process table that shares nothing with what is tested."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from cede.launch import places
from cede.launch.launcher import Kept, State, Status, launch, prepare, sweep
from cede.launch.probe import Containment
from cede.launch.spec import Fence, Limits, Spec

T = TypeVar("T")

WAIT = 60.0
PROGRAMS = Path(__file__).with_name("programs.py")
PIDS_LIMIT = 64


def until(condition: Callable[[], T], what: str = "it", wait: float = WAIT) -> T:
    """The first true answer; polls, because what is waited for happens in other processes."""
    deadline = time.monotonic() + wait
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.002)
    return answer


def survivors(mark: str) -> list[int]:
    """Every living process that has the mark in its environment or as one of its arguments."""
    wanted = {mark.encode(), f"CEDE_ALLOCATION={mark}".encode()}
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            words = (entry / "environ").read_bytes() + b"\0" + (entry / "cmdline").read_bytes()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            if wanted.intersection(words.split(b"\0")) and state not in "ZX":
                found.append(int(entry.name))
    return found


class Attempt:
    """One attempt in a directory of its own; its processes carry its allocation's id as mark."""

    def __init__(self, root: Path, containment: Containment, argv: list[str], **more: Any) -> None:
        self.mark = f"m{uuid.uuid4().hex}"
        self.containment = containment
        deadline = more.pop("deadline", None)
        env = {"PATH": os.environ["PATH"], "CEDE_ALLOCATION": self.mark, "CEDE_TASK": "0"}
        self.spec = Spec(
            fence=Fence(self.mark, 1, 0),
            argv=tuple(each.replace("{mark}", self.mark) for each in argv),
            env={**env, **more.pop("env", {})},
            directory=more.pop("directory", "/"),
            **more,
        )
        self.directory = prepare(root / "attempts", self.spec, containment, deadline)

    def launch(self) -> Kept:
        launch(self.directory)
        return Kept.adopt(self.directory)

    def status(self) -> Status:
        with Kept.adopt(self.directory) as kept:
            return kept.status()

    def ended(self, wait: float = WAIT) -> dict[str, Any]:
        """The exit record, once there is one."""

        def record() -> dict[str, Any] | None:
            return self.status().exit

        return until(record, "the exit record", wait) or {}

    def running(self) -> dict[str, Any]:
        until(lambda: self.status().state is State.RUNNING, "the start")
        return self.status().started or {}

    def supervisor_gone(self) -> None:
        kept = (State.STARTING, State.RUNNING)
        until(lambda: self.status().state not in kept, "the supervisor's end")

    def output(self, stream: str = "stdout") -> str:
        """What it printed; a stream to which nothing was printed has no file."""
        log = self.directory / f"{stream}.log"
        return log.read_text() if log.exists() else ""

    def contain_by(self, means: dict[str, Any]) -> None:
        """Let its supervisor believe that this machine contains work by these means."""
        file = self.directory / places.SPEC
        file.write_text(json.dumps({**json.loads(file.read_text()), places.MEANS: means}))

    def in_group(self) -> list[int]:
        """What the kernel lists in the attempt's group; nothing where no cgroup is used."""
        found: list[int] = []
        home = Path(self.containment.at or "/nowhere", self.spec.name)
        for directory, _, _ in os.walk(home):
            # The supervisor removes it when it is empty, perhaps while we look.
            with contextlib.suppress(OSError):
                found += map(int, Path(directory, "cgroup.procs").read_text().split())
        return found

    def assert_nothing_survives(self) -> None:
        assert survivors(self.mark) == []
        assert self.in_group() == []

    def clean_up(self) -> None:
        """Whatever the test did, nothing stays."""
        sweep(self.directory, supervisor_too=True)
        for pid in survivors(self.mark):
            with contextlib.suppress(ProcessLookupError):  # it was faster
                os.kill(pid, signal.SIGKILL)


def shape_of(root: Path, containment: Containment, shape: str) -> tuple[Attempt, Path]:
    """An attempt that runs a nasty shape, and the file that says when it is nasty."""
    ready = root / f"ready-{uuid.uuid4().hex}"
    limits = Limits(pids=PIDS_LIMIT if shape in ("fork_bomb", "forks_when_told") else None)
    argv = [sys.executable, "-S", str(PROGRAMS), shape, str(ready), "{mark}"]
    attempt = Attempt(root, containment, argv, limits=limits, log_bytes=1 << 20)
    return attempt, ready


@contextlib.contextmanager
def cleaned(attempt: Attempt) -> Iterator[Attempt]:
    try:
        yield attempt
    finally:
        attempt.clean_up()
