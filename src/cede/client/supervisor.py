"""A small process between the client and the work, so that the work never outlives its right to
run.

client ── control pipe ──▶ supervisor ── fork ──▶ work (a session of its own) ──▶ whatever it starts
       ◀── status pipe ───

The supervisor adopts every orphan below it, so it knows the whole tree even when parts leave their
session; where a cgroup can be made the tree is also in one. It kills all of it when the client says
so, when the client dies, when the work itself ends, and when the lease it was told of is over: the
last needs no help from the client, so a frozen or swapped-out parent cannot break the promise. When
the supervisor itself is killed the kernel kills the work, and the client kills what is left in the
cgroup.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from cede.client import clock
from cede.launch import processes
from cede.launch.contain import Group, Means, open_group

LINUX = sys.platform.startswith("linux")
NO_CGROUP: Means = {"kill": "subreaper", "at": "", "limits": {}}
# How long processes that the ended work left behind may take to obey a SIGTERM.
LEFTOVERS_GRACE = 2.0
# How often the supervisor checks that its parent still lives; the pipe tells sooner in nearly all
# cases.
LOOK = 1.0

# Our ends of other supervisors' pipes: a forked child must not keep them open.
parent_ends: set[int] = set()


def keep(
    work: Callable[[], NoReturn],
    means: Means,
    name: str,
    pipes: tuple[int, int],
    parent: int,
    kept: Sequence[int] = (),
) -> NoReturn:
    """Run the supervisor. Called in a forked child; never returns.

    `means` and `name` are those of the group, `pipes` for control and status; `kept` are
    descriptors to hold until all processes are gone.
    """
    try:
        os._exit(_Supervisor(work, means, name, pipes, parent, kept).run())
    except BaseException as error:
        # Whatever happened here, the work must not stay behind.
        for pid in processes.descendants(os.getpid()) if LINUX else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os.write(2, f"cede: the supervisor failed: {error!r}\n".encode(errors="replace"))
        os._exit(1)


class _Supervisor:
    def __init__(
        self,
        work: Callable[[], NoReturn],
        means: Means,
        name: str,
        pipes: tuple[int, int],
        parent: int,
        kept: Sequence[int],
    ) -> None:
        self.control, self.status = pipes
        self.parent = parent
        self.lease_until: float | None = None
        self.exit_status: int | None = None
        self.buffer = b""
        self.woken = _wake_on_child()
        if LINUX:
            processes.prctl(processes.PR_SET_CHILD_SUBREAPER, 1)
        self.groups = self._make_groups(means, name)
        self.pid = _start(work, self.groups, supervisor=os.getpid())
        _close_all_but({0, 1, 2, *pipes, *self.woken, *kept})
        # The terminal's Ctrl-C is for the client to forward; the supervisor must survive it to do
        # its work.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)

    def _make_groups(self, means: Means, name: str) -> list[Group]:
        """Return the tree below us, and a cgroup if one can be made: each has processes that left
        the other."""

        def find() -> list[int]:
            return processes.descendants(os.getpid()) if LINUX else []

        groups = [open_group(NO_CGROUP, name, find, self._childless)]
        if means["at"]:
            with contextlib.suppress(OSError):  # one could be made when it was tried
                cgroup = open_group(means, name, find, self._childless)
                cgroup.make({})
                groups.append(cgroup)
        return groups

    def run(self) -> int:
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(self.woken[0], select.POLLIN)
        while self.exit_status is None:
            ready = dict(poll.poll(self._pause() * 1000))
            if self.woken[0] in ready:
                os.read(self.woken[0], 512)
            if self.control in ready and not self._obey():
                self._kill()
            if os.getppid() != self.parent or self._lease_over():
                self._kill()
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
        """Carry out the orders that came; False once the control pipe is closed."""
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
                self._kill()
        return True

    def _kill(self) -> None:
        if self.exit_status is None:
            # Also before the work has entered the group. It is not reaped, so its pid is its own.
            _signal_group(self.pid, signal.SIGKILL)
            os.kill(self.pid, signal.SIGKILL)
        for group in self.groups:
            group.strike()

    def _reap(self) -> None:
        """Collect every child that ended, the work among them."""
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
        """End all processes that the ended work started; units are given back only after this."""
        deadline = clock.now() + LEFTOVERS_GRACE
        while not all(group.empty() for group in self.groups):
            if clock.now() >= deadline or self._lease_over() or os.getppid() != self.parent:
                self._kill()
            else:
                for group in self.groups:
                    group.signal(signal.SIGTERM)
            if select.select([self.woken[0]], [], [], 0.02)[0]:
                os.read(self.woken[0], 512)
            self._reap()
        if not LINUX:
            _signal_group(self.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):  # an empty directory does no harm
            for group in self.groups:
                group.remove()

    def _childless(self) -> bool:
        """Whether no process is below us: orphans become our children, so having none is proof."""
        if not LINUX:
            return True
        self._reap()
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return True
        return False

    def _report(self) -> None:
        # The parent may be gone.
        with contextlib.suppress(OSError):
            os.write(self.status, f"{self.exit_status}\n".encode())


def _start(work: Callable[[], NoReturn], groups: list[Group], supervisor: int) -> int:
    with warnings.catch_warnings():
        # After a fork there is one thread, but Python counts those of the process before it.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return pid
    try:
        if LINUX:
            processes.prctl(processes.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(1)
        os.setsid()
        for group in groups:
            group.enter(os.getpid())
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        work()
    except BaseException as error:
        os.write(2, f"cede: cannot start: {error!r}\n".encode(errors="replace"))
    finally:
        os._exit(1)


def _wake_on_child() -> tuple[int, int]:
    """Return a pipe that becomes readable whenever a child ends."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read, write


def _signal_group(leader: int, number: int) -> None:
    # The group may be empty.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def _close_all_but(wanted: set[int]) -> None:
    """Close descriptors of our parent: other processes wait for the ends of its pipes and sockets.
    Descriptors of the process's own stay: libraries with threads of their own (gRPC) start them
    anew in the forked child, and end the process when their epoll is gone.
    """
    for each in list(Path("/proc/self/fd").iterdir()) if Path("/proc/self/fd").exists() else []:
        number = int(each.name)
        # The descriptor of this very listing is there no more.
        with contextlib.suppress(OSError):
            if number not in wanted and not str(each.readlink()).startswith("anon_inode:"):
                os.close(number)
