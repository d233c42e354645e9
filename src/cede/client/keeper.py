"""A small process between us and the work, so that the work never outlives its right to run.

us ── control pipe ──▶ keeper ── fork ──▶ work (a session of its own) ──▶ whatever it starts
   ◀── status pipe ───

The keeper adopts every orphan below it, so it knows the whole tree even when parts leave their
group. It kills the tree when we tell it to, when we die, when the work itself ends, and when the
lease it was told of is over: the last needs no help from us, so a frozen or swapped-out parent
cannot break the promise.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from cede.client import clock

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# How long what the work left behind may take to obey a SIGTERM, once the work itself has ended.
LEFTOVERS_GRACE = 2.0
# How often the keeper looks whether its parent still lives; the pipe tells sooner in nearly all
# cases.
LOOK = 1.0

# Our ends of other keepers' pipes: a forked child must not keep them open.
parent_ends: set[int] = set()


def keep(work: Callable[[], NoReturn], control: int, status: int, parent: int) -> NoReturn:
    """The keeper's whole life. Runs in a forked child and never returns."""
    try:
        os._exit(_Keeper(work, control, status, parent).run())
    except BaseException as error:
        # Whatever happened here, the tree must not stay behind.
        _kill_tree(signal.SIGKILL)
        os.write(2, f"cede: the keeper failed: {error!r}\n".encode(errors="replace"))
        os._exit(1)


class _Keeper:
    def __init__(
        self, work: Callable[[], NoReturn], control: int, status: int, parent: int
    ) -> None:
        self.control = control
        self.status = status
        self.parent = parent
        self.lease_until: float | None = None
        self.exit_status: int | None = None
        self.buffer = b""
        self.woken = _wake_on_child()
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.pid = _start(work, keeper=os.getpid())
        _close_all_but({0, 1, 2, control, status, self.woken[0], self.woken[1]})
        # The terminal's Ctrl-C is for us to forward; the keeper must survive it to do its work.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)

    def run(self) -> int:
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(self.woken[0], select.POLLIN)
        while self.exit_status is None:
            ready = dict(poll.poll(self._pause() * 1000))
            if self.woken[0] in ready:
                os.read(self.woken[0], 512)
            if self.control in ready and not self._obey():
                _kill_tree(signal.SIGKILL)
            if os.getppid() != self.parent or self._lease_over():
                _kill_tree(signal.SIGKILL)
            self._reap()
        self._sweep()
        self._report()
        return 0

    def _pause(self) -> float:
        if self.lease_until is None:
            return LOOK
        return min(max(self.lease_until - clock.now(), 0.0), LOOK)

    def _lease_over(self) -> bool:
        return self.lease_until is not None and clock.now() >= self.lease_until

    def _obey(self) -> bool:
        """Carry out the orders that came; False when nobody is left to give any."""
        try:
            data = os.read(self.control, 4096)
        except OSError:
            data = b""
        if not data:
            return False
        *orders, self.buffer = (self.buffer + data).split(b"\n")
        for order in orders:
            verb, _, value = order.partition(b" ")
            if verb == b"lease":
                self.lease_until = float(value)
            elif verb == b"signal":
                _signal_group(self.pid, int(value))
            elif verb == b"kill":
                _kill_tree(signal.SIGKILL)
        return True

    def _reap(self) -> None:
        """Collect every child that ended, our own work among them."""
        while True:
            try:
                pid, wait_status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.pid:
                self.exit_status = os.waitstatus_to_exitcode(wait_status)

    def _sweep(self) -> None:
        """The work is over; so is everything it started. Units are given back only after this."""
        deadline = clock.now() + LEFTOVERS_GRACE
        number = signal.SIGTERM
        while _kill_tree(number):
            self._reap()
            if clock.now() >= deadline or self._lease_over() or os.getppid() != self.parent:
                number = signal.SIGKILL
            if select.select([self.woken[0]], [], [], 0.02)[0]:
                os.read(self.woken[0], 512)
        self._reap()
        _signal_group(self.pid, signal.SIGKILL)

    def _report(self) -> None:
        # Nobody is left to tell.
        with contextlib.suppress(OSError):
            os.write(self.status, f"{self.exit_status}\n".encode())


def _start(work: Callable[[], NoReturn], keeper: int) -> int:
    with warnings.catch_warnings():
        # After a fork there is one thread, but Python counts those of the process before it.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return pid
    try:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(1)
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        work()
    finally:
        os._exit(1)


def _wake_on_child() -> tuple[int, int]:
    """A pipe that becomes readable whenever a child ends."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read, write


def _prctl(option: int, value: int) -> bool:
    """Linux's process control; elsewhere the group and the pipes have to do."""
    if not sys.platform.startswith("linux"):
        return False
    return bool(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0)


def _kill_tree(number: int) -> bool:
    """Signal everything below this process; whether there was anything."""
    found = descendants(os.getpid())
    for pid in found:
        # It was faster.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    return bool(found)


def _signal_group(group: int, number: int) -> None:
    # Nobody is left in it.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def descendants(root: int) -> list[int]:
    """Everything below `root` that has not ended, nearest first."""
    found: list[int] = []
    todo = [root]
    while todo:
        for child in _children(todo.pop()):
            todo.append(child)
            if not _ended(child):
                found.append(child)
    return found


def _children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(each) for task in tasks for each in (task / "children").read_text().split()]
    except OSError:
        return []


def _ended(pid: int) -> bool:
    """Whether only its exit status is left of a process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (OSError, IndexError):
        return True


def _close_all_but(wanted: set[int]) -> None:
    for each in list(Path("/proc/self/fd").iterdir()) if Path("/proc/self/fd").exists() else []:
        number = int(each.name)
        if number not in wanted:
            # The descriptor of this very listing.
            with contextlib.suppress(OSError):
                os.close(number)
