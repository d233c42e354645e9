"""The client's side of a supervisor: starts work, passes signals on, reads how it ended."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn
from uuid import uuid4

from cede.client.supervisor import keep, parent_ends
from cede.launch import processes
from cede.launch.contain import Means, open_group
from cede.launch.lookup import cannot_run
from cede.launch.probe import killer

NOT_FOUND = 127
NOT_EXECUTABLE = 126
# The directory of our cgroups, and how long clearing one up may take.
GROUPS = "cede-run"
CLEAR_UP_TIMEOUT = 5.0
# One fork at a time: work that another thread forks meanwhile would keep the new pipes open, and
# their end would never be seen.
_forking = threading.Lock()
os.register_at_fork(after_in_child=_forking._at_fork_reinit)  # type: ignore[attr-defined]


def containment() -> Means:
    """The means of killing on this machine; the first call tries them, which takes a while."""
    with _forking:
        return killer(GROUPS)


class Child:
    """Work that runs below a supervisor. `wait` returns only when the whole tree of it is gone."""

    def __init__(
        self,
        work: Callable[[], NoReturn],
        lease_until: float | None = None,
        kept: Sequence[int] = (),
    ) -> None:
        """`kept`: descriptors that the supervisor holds until all processes are gone."""
        us = os.getpid()
        self._means, self._name = containment(), uuid4().hex
        with _forking:
            control_read, self._control = os.pipe()
            self._status, status_write = os.pipe()
            parent_ends.update((self._control, self._status))
            self.pid = _fork()
            if self.pid == 0:
                for each in parent_ends:
                    _close(each)
                keep(work, self._means, self._name, (control_read, status_write), us, kept)
            os.close(control_read)
            os.close(status_write)
        self.exit_code: int | None = None
        # A descriptor that was closed may be another child's by now.
        self._is_open, self._lock = True, threading.Lock()
        if lease_until is not None:
            self.lease(lease_until)

    def lease(self, until: float) -> None:
        """Order that the work is dead at this instant of the client's clock, unless a later one
        follows."""
        self._order(f"lease {until!r}")

    def signal(self, number: int) -> None:
        self._order(f"signal {int(number)}")

    def kill(self) -> None:
        self._order("kill")

    def wait(self, timeout: float) -> int | None:
        """Return the exit code once all processes are gone, negative for a signal; None after the
        timeout."""
        if self.exit_code is not None:
            return self.exit_code
        poll = select.poll()  # select itself knows no descriptor above 1023
        poll.register(self._status, select.POLLIN)
        if not poll.poll(max(timeout, 0.0) * 1000):
            return None
        text = os.read(self._status, 64).strip()
        if not text:
            self._clear_up()
        # Without a report the supervisor itself was killed; the work died with it.
        self.exit_code = int(text) if text else -signal.SIGKILL
        self.close()
        return self.exit_code

    def processes(self) -> list[int]:
        """Return all processes below the supervisor that have not ended."""
        return processes.descendants(self.pid)

    def _clear_up(self) -> None:
        """Kill what a killed supervisor left in its group; only a cgroup still knows it."""
        if self._means["at"]:
            group = open_group(self._means, self._name, list, lambda: True)
            with contextlib.suppress(OSError):  # what cannot be killed or removed now never can
                group.kill(timeout=CLEAR_UP_TIMEOUT)
                group.remove()

    def close(self) -> None:
        """Close the pipes; a supervisor that has lost its parent kills the work."""
        with self._lock:
            if self._is_open:
                self._is_open = False
                parent_ends.difference_update((self._control, self._status))
                _close(self._control)
                _close(self._status)
        # Collected elsewhere.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def _order(self, text: str) -> None:
        # The work is over; `wait` says how.
        with self._lock, contextlib.suppress(BrokenPipeError):
            if self._is_open:
                os.write(self._control, f"{text}\n".encode())


def command(argv: Sequence[str], environment: Mapping[str, str]) -> Callable[[], NoReturn]:
    """Make work that runs a program: an argument list, never a shell's line."""

    def run() -> NoReturn:
        # Python ignores these two for itself; a program expects to start with the defaults.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        if hasattr(signal, "SIGXFSZ"):
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        try:
            os.execvpe(argv[0], list(argv), dict(environment))
        except OSError as error:
            why = cannot_run(str(error.strerror), argv[0], environment)
            os.write(2, f"cede: cannot run it: {why}\n".encode(errors="replace"))
            os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)

    return run


def _fork() -> int:
    """Fork with empty output buffers, or the child would write their content a second time.

    Python warns of forks beside other threads. The supervisor takes none of their locks; a function
    that runs as a step sees what any fork sees, which the reference says.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _close(descriptor: int) -> None:
    # Closed already.
    with contextlib.suppress(OSError):
        os.close(descriptor)
