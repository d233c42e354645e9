"""Nasty shapes of work, each a small program: `python programs.py SHAPE READY`.

Each makes the file READY once it is as nasty as it gets, and then goes on for ever. The rest of the
command line is only there to be recognised in the process table.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

PTRACE_TRACEME = 0


def ready() -> None:
    Path(sys.argv[2]).touch()


def for_ever() -> None:
    while True:
        time.sleep(60)


def ignore_everything() -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
        signal.signal(number, signal.SIG_IGN)


def double_fork() -> None:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            ready()
            for_ever()
        os._exit(0)
    for_ever()


def new_session() -> None:
    if os.fork() == 0:
        os.setsid()
        ready()
    for_ever()


def ignores_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.fork()
    ready()
    for_ever()


def stops_itself() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
        for_ever()
    ready()
    while True:
        os.kill(os.getpid(), signal.SIGSTOP)


def fork_bomb() -> None:
    """Only ever started under a limit of processes."""
    while True:
        try:
            os.fork()
        except OSError:
            ready()
            time.sleep(0.01)


def daemon_holds_the_log() -> None:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            ignore_everything()
            ready()
            while True:
                os.write(1, b"still here\n")
                time.sleep(0.05)
        os._exit(0)
    for_ever()


def reparents_and_ignores() -> None:
    for _ in range(3):
        if os.fork() == 0:
            if os.fork() == 0:
                os.setsid()
                ignore_everything()
                ready()
                for_ever()
            os._exit(0)
    ignore_everything()
    for_ever()


def forks_when_told() -> None:
    def more(number: int, frame: object) -> None:
        # Two at a time and under a limit, so that the machine is not what suffers.
        os.fork()
        os.fork()

    signal.signal(signal.SIGTERM, more)
    ready()
    for_ever()


def exec_loop() -> None:
    ready()
    time.sleep(0.005)
    os.execv(sys.executable, [sys.executable, "-S", *sys.argv])


def zombie_maker() -> None:
    for _ in range(50):
        if os.fork() == 0:
            os._exit(0)
    ready()
    for_ever()


def fills_the_log() -> None:
    ready()
    line = b"x" * 65536
    while True:
        os.write(1, line)
        os.write(2, line)


def traces_its_child() -> None:
    if os.fork() == 0:
        ctypes.CDLL(None).ptrace(PTRACE_TRACEME, 0, 0, 0)
        ready()
        os.kill(os.getpid(), signal.SIGTRAP)  # stopped under trace; nobody lets it go on
    for_ever()


def waits_in_vfork() -> None:
    """The child of a vfork blocks before its exec, and its parent with it."""
    fifo = f"{sys.argv[2]}.fifo"
    os.mkfifo(fifo)
    if os.fork() == 0:
        ready()
        opening = [(os.POSIX_SPAWN_OPEN, 0, fifo, os.O_RDONLY, 0)]
        os.posix_spawn("/bin/sleep", ["sleep", "60"], os.environ, file_actions=opening)
    for_ever()


def closes_everything() -> None:
    os.chdir("/proc")
    if os.fork() == 0:
        os.setsid()
        os.closerange(0, 4096)
        ready()
    for_ever()


def threads() -> None:
    for _ in range(20):
        threading.Thread(target=for_ever).start()
    ready()
    while True:
        pass


def forgets_its_environment() -> None:
    """Its processes have no marker; only a group or its supervisor knows them."""
    if "CEDE_ALLOCATION" in os.environ:
        os.execve(sys.executable, [sys.executable, "-S", *sys.argv], {})
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            ready()
        else:
            os._exit(0)
    for_ever()


SHAPES: dict[str, Callable[[], None]] = {
    each.__name__: each
    for each in (
        double_fork, new_session, ignores_signals, stops_itself, fork_bomb, daemon_holds_the_log,
        reparents_and_ignores, forks_when_told, exec_loop, zombie_maker, fills_the_log,
        traces_its_child, waits_in_vfork, closes_everything, threads, forgets_its_environment,
    )
}  # fmt: skip

if __name__ == "__main__":
    SHAPES[sys.argv[1]]()
