"""Process information from the kernel, and signals that never reach another process."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterable

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
# Descriptors held at once while signalling; far below every usual limit.
BATCH = 200
# A supervisor ignores polite signals: stopping it would leave its work unsupervised.
POLITE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
PAGE = 4096


# Loaded once: it makes classes, which costs a supervisor more than most of its work.
libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    if libc.prctl(option, value, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


def close_to_account() -> None:
    """Close this process to others of its account: its environment, memory and descriptors in
    /proc, and ptrace. Does nothing on a system that is not Linux.
    """
    if sys.platform.startswith("linux"):
        prctl(PR_SET_DUMPABLE, 0)


def keep_signals_out() -> None:
    """Ignore polite signals and block none, in this process and its children."""
    for number in POLITE:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def reset_signals(numbers: Iterable[int]) -> None:
    """Reset signals to their defaults; `signal.signal` would make enumerations of its arguments."""
    for number in numbers:
        libc.signal(number, None)


def start_time(pid: int) -> int | None:
    """The instant at which a process started, in ticks since boot: with the pid, its identity."""
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def _stat(pid: int | str) -> list[bytes] | None:
    """The fields of /proc/PID/stat from the state to the start time; None if there is no such
    process.
    """
    try:
        file = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        # In one read: the kernel writes less than a page.
        return os.read(file, PAGE).rpartition(b")")[2].split(None, 20)
    except ProcessLookupError:
        return None
    finally:
        os.close(file)


def everybody() -> list[int]:
    return [int(each) for each in os.listdir("/proc") if each.isdecimal()]


def descendants(root: int) -> list[int]:
    """All processes below `root` that have not ended, in one look at the process table."""
    children: dict[int, list[int]] = {}
    for pid in everybody():
        if fields := _stat(pid):
            children.setdefault(int(fields[1]), []).append(pid)
    found: list[int] = []
    todo = [root]
    while todo:
        below = children.get(todo.pop(), [])
        todo += below
        found += below
    return [pid for pid in found if not ended(pid)]


def marked(marker: Iterable[str]) -> list[int]:
    """Processes whose first environment has all of these `NAME=value`, and which have not ended."""
    wanted = {each.encode() for each in marker}
    found = []
    for pid in everybody():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                has = wanted.issubset(file.read().split(b"\0"))
        except OSError:
            continue  # gone, or another user's
        if has and not ended(pid):
            found.append(pid)
    return found


def ended(pid: int) -> bool:
    """Whether nothing, or only its exit status, is left of a process."""
    fields = _stat(pid)
    return fields is None or fields[0] in b"ZX"


def send(number: int, members: Callable[[], list[int]]) -> None:
    """Send a signal to every member.

    Between listing a pid and signalling it, the pid may have become another process's. So the
    process is held first and looked up again: if it lives, its pid is its own, and the second list
    is right.
    """
    listed = members()
    for first in range(0, len(listed), BATCH):
        held = {pid: fd for pid in listed[first : first + BATCH] if (fd := hold(pid)) is not None}
        try:
            for pid in held.keys() & set(members()):
                try:
                    signal.pidfd_send_signal(held[pid], number)
                except ProcessLookupError:
                    continue  # it has ended already
        finally:
            for fd in held.values():
                os.close(fd)


def hold(pid: int) -> int | None:
    """A descriptor of a process; None if there is none."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None
