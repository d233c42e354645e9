"""From the supervisor's fork to the work's first instruction.

The child is told what to become, gets ready, waits until the supervisor has recorded it in
started.json, and becomes the work. So work without a started.json has never run, and starting it
again is safe.

The supervisor forks it before anything else, and it does as little as it can: after a fork every
page that either of the two writes to is copied, and Python writes to each object that it reads.
"""

from __future__ import annotations

import contextlib
import errno
import marshal
import os
import signal
from collections.abc import Mapping
from typing import Any, NoReturn

from cede.launch import contain, crash, namespace, processes
from cede.launch.lookup import cannot_enter, cannot_run

UMASK = 0o022
# Signals ignored by a supervisor, by Python, or by the process that started the agent.
IGNORED = {
    int(each)
    for each in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    if each in processes.POLITE or signal.getsignal(each) is not signal.SIG_DFL
}
# The bytes before a message to the child, which say its length.
LENGTH = 8
# Errors of a wrong command line, a missing program or a wrong directory. Any other (no memory, no
# descriptors, a broken disk) is the machine's.
USERS_ERRORS = {
    errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR, errno.EISDIR, errno.E2BIG,
    errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL, errno.ETXTBSY, errno.EPERM,
}  # fmt: skip


class Child:
    """The work as its supervisor sees it: `prepare` tells it what to become, `go` lets it run."""

    def __init__(self) -> None:
        self.output: dict[str, int] = {}
        theirs: list[int] = []
        for stream in ("stdout", "stderr"):
            self.output[stream], end = os.pipe()
            theirs.append(end)
            os.set_blocking(self.output[stream], False)
        self.failure, failed = os.pipe()
        os.set_blocking(self.failure, False)
        told, self._tell = os.pipe()
        supervisor = os.getpid()
        crash.at("fork_before")
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._tell)
            _become(supervisor, theirs, told, failed)
        crash.at("fork_after")
        for each in (*theirs, told, failed):
            os.close(each)
        self.start = processes.start_time(self.pid)
        self.became_work = False

    def prepare(self, spec: dict[str, Any], groups: list[str]) -> None:
        """Tell the child to get ready for the work of this spec in these groups."""
        what = marshal.dumps((spec, groups))
        self._say(len(what).to_bytes(LENGTH, "little") + what)

    def go(self) -> None:
        self._say(b"1")
        os.close(self._tell)

    def _say(self, data: bytes) -> None:
        # Without a reader it failed to get ready, and `why_not` has the reason.
        with contextlib.suppress(BrokenPipeError):
            while data:
                data = data[os.write(self._tell, data) :]

    def discard(self) -> None:
        """End the child: there will be no work."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

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


def _become(supervisor: int, output: list[int], told: int, failed: int) -> NoReturn:
    users = ""  # the part of the user's command that could be wrong here
    program = ""  # set once it is the program
    try:
        _die_with(supervisor)
        os.setsid()
        spec, groups = marshal.loads(_read(told, int.from_bytes(_read(told, LENGTH), "little")))
        # Its supervisor's /proc is closed; the work's own is not, and we need ours from here on.
        processes.prctl(processes.PR_SET_DUMPABLE, 1)
        contain.enter(groups, os.getpid())
        processes.reset_signals(IGNORED)
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
        _read(told, 1)
        users = program = spec["argv"][0]
        _execute(program, spec["argv"], spec["env"])
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


def _read(told: int, length: int) -> bytes:
    """Read from the supervisor; end here if it died before it recorded the child."""
    data = b""
    while len(data) < length:
        piece = os.read(told, length - len(data))
        if not piece:
            os._exit(1)
        data += piece
    return data


def _execute(program: str, argv: list[str], env: Mapping[str, str]) -> None:
    """Become the program, looked up as `os.execvpe` does, which would import modules first."""
    if "/" in program:
        os.execve(program, argv, env)
    problem: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    for folder in env.get("PATH", os.defpath).split(os.pathsep):
        try:
            os.execve(os.path.join(folder, program), argv, env)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:  # it exists: this error says more than that others are missing
            if isinstance(problem, FileNotFoundError):
                problem = error
    raise problem


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
