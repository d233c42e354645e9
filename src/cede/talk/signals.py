"""Signals only processes that listen.

By default SIGUSR1 ends a process. Work is often a shell that waits for a program, or has started
programs that know nothing of cede, and all of them are in its process group. Starting work with the
signal ignored would spare them, but then a shell script could not trap it either.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path


def send(pids: Iterable[int], number: int) -> bool:
    """Send to each process that has a handler for the signal; whether there was one."""
    reached = False
    for pid in pids:
        with suppress(OSError, ValueError):  # gone meanwhile
            if _catches(pid, number):
                os.kill(pid, number)
                reached = True
    return reached


def group(leader: int) -> Iterator[int]:
    """The processes of a process group. A caller with a cgroup reads its `cgroup.procs` instead."""
    for name in os.listdir("/proc"):  # noqa: PTH208  (a number is all that is needed)
        if name.isdigit():
            with suppress(OSError):
                if os.getpgid(int(name)) == leader:
                    yield int(name)


def _catches(pid: int, number: int) -> bool:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False
