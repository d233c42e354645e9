"""From the supervisor's fork to the work's first instruction.

The forked child gets ready, waits until the supervisor has recorded it in started.json, and becomes
the work. So work without a started.json has never run, and starting it again is safe.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from typing import Any, NoReturn

from cede.launch import crash, namespace, processes
from cede.launch.contain import Group
from cede.launch.lookup import cannot_enter, cannot_run

UMASK = 0o022
# Signals ignored by a supervisor, by Python, or by the process that started the agent.
IGNORED = {
    *processes.POLITE,
    *(
        each
        for each in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
        if signal.getsignal(each) is not signal.SIG_DFL
    ),
}
# Errors of a wrong command line, a missing program or a wrong directory. Any other (no memory, no
# descriptors, a broken disk) is the machine's.
USERS_ERRORS = {
    errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR, errno.EISDIR, errno.E2BIG,
    errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL, errno.ETXTBSY, errno.EPERM,
}  # fmt: skip


class Child:
    """The work as its supervisor sees it. `go` lets it run."""

    def __init__(self, spec: dict[str, Any], group: Group) -> None:
        self.output: dict[str, int] = {}
        theirs: list[int] = []
        for stream in ("stdout", "stderr"):
            self.output[stream], end = os.pipe()
            theirs.append(end)
            os.set_blocking(self.output[stream], False)
        self.failure, failed = os.pipe()
        os.set_blocking(self.failure, False)
        ready, self._go = os.pipe()
        supervisor = os.getpid()
        crash.at("fork_before")
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._go)
            _become(spec, group, supervisor, theirs, ready, failed)
        crash.at("fork_after")
        for each in (*theirs, ready, failed):
            os.close(each)
        self.start = processes.start_time(self.pid)
        self.became_work = False

    def go(self) -> None:
        # Without a reader it failed to get ready, and `why_not` has the reason.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._go, b"1")
        os.close(self._go)

    def why_not(self) -> tuple[str, str] | None:
        """The cause and the error, if the work could not be started."""
        try:
            text = os.read(self.failure, 4096).decode(errors="replace")
        except BlockingIOError:
            return None
        # The other end was closed by the exec, or by the child's death.
        self.became_work = not text
        cause, _, error = text.partition(" ")
        return (cause, error) if text else None


def _become(
    spec: dict[str, Any], group: Group, supervisor: int, output: list[int], ready: int, failed: int
) -> NoReturn:
    users = ""  # the part of the user's command that could be wrong here
    program = ""  # set once it is the program
    try:
        # The supervisor's /proc is closed; the work's own is open, and the child needs its own from
        # here on.
        processes.prctl(processes.PR_SET_DUMPABLE, 1)
        _die_with(supervisor)
        os.setsid()
        group.enter(os.getpid())
        _plain_signals()
        _no_protection()
        os.umask(UMASK)
        stdin = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        for number, descriptor in enumerate((stdin, *output)):
            os.dup2(descriptor, number)
        _drop(spec["user"])
        hidden = spec.get("hide") or ()  # an older agent's spec has no such field
        if hidden:
            namespace.hide(hidden, spec["show"])
        processes.prctl(processes.PR_SET_NO_NEW_PRIVS, 1)
        if hidden:
            namespace.keep_signals_inside()
        _die_with(supervisor)  # again: a change of user forgets it
        users = spec["directory"]
        os.chdir(users)
        if not os.read(ready, 1):
            os._exit(1)  # the supervisor died before it recorded the child
        users = program = spec["argv"][0]
        os.execvpe(program, spec["argv"], spec["env"])
    except Exception as error:
        code: int | None = getattr(error, "errno", None)
        cause = "start_failed" if users and code in USERS_ERRORS else "infrastructure"
        text = str(error)
        if program and code:
            text = cannot_run(os.strerror(code), program, spec["env"])
        elif users and code:
            text = cannot_enter(code, users, spec["user"])
        os.write(failed, f"{cause} {text}".encode(errors="replace"))
    finally:
        os._exit(127)


def _die_with(supervisor: int) -> None:
    """Die with the supervisor: without it no process enforces the lease."""
    processes.prctl(processes.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(1)


def _plain_signals() -> None:
    """Reset all signals: a program expects none to be ignored or blocked."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _no_protection() -> None:
    """Give up the agent's protection from the out-of-memory killer, which is not for its work."""
    file = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
    try:
        if int(os.read(file, processes.PAGE)) < 0:
            os.pwrite(file, b"0", 0)
    finally:
        os.close(file)


def _drop(user: dict[str, Any] | None) -> None:
    if user is None:
        return
    for descriptor in (1, 2):
        # Else /dev/stdout, which opens them again, would be closed to their new owner.
        os.fchown(descriptor, user["uid"], user["gid"])
    os.setgroups(user["groups"])
    os.setresgid(user["gid"], user["gid"], user["gid"])
    os.setresuid(user["uid"], user["uid"], user["uid"])
