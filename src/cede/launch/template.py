"""`python -m cede.launch.template`: a process that has imported the supervisor and forks one per
launch.

A launch is one message on its standard input, a socket: the attempt's directory, and the writing
end of a pipe. The fork becomes the supervisor, reports on the pipe that it took over, and depends
on no other process from then on. The template knows nothing of attempts and keeps nothing: killed
at any moment it is started again, and a launch whose pipe ends without a byte never happened.

It has one thread and three descriptors, so that a fork of it inherits nothing else.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import traceback
from contextlib import suppress
from typing import NoReturn

from cede.launch import crash, places, processes, supervisor
from cede.launch.places import Place

# Functions of the C library that a supervisor and its child call: the template looks them up, so
# that no fork has to.
C_FUNCTIONS = ("prctl", "signal", "inotify_init1", "inotify_add_watch")
MESSAGE_MAX = 1 << 13  # longer than every path


def serve(line: socket.socket) -> None:
    """Fork a supervisor for every message, until the agent is gone."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(line, MESSAGE_MAX, 1)
        if not message:
            return
        (tell,) = descriptors
        os.set_inheritable(tell, False)
        directory = os.fsdecode(message)
        crash.at("template_before")
        try:
            if os.fork() == 0:
                _supervise(directory, tell)
        except OSError as error:
            _refuse(directory, tell, error)
        crash.at("template_after")
        os.close(tell)


def _supervise(directory: str, tell: int) -> NoReturn:
    """Run the fork: the supervisor of one attempt, which outlives the template."""
    try:
        processes.reset_signals((signal.SIGCHLD,))  # it collects its work itself
        for each in (0, 2):  # the socket, and the agent's: `_say` writes elsewhere
            os.dup2(1, each)
        os.setsid()
        crash.at("template_forked", os.getppid())
        crash.at("taking_over")
        supervisor.supervise(directory, tell)
        os._exit(0)
    except BaseException:
        with suppress(OSError):
            _say(directory, traceback.format_exc())
        with suppress(OSError):  # it took over before; what it left is swept up
            os.write(tell, bytes([supervisor.FAILED]))
    finally:
        os._exit(1)


def _say(directory: str, words: str) -> None:
    """Write a supervisor's last words where people and its agent look for them."""
    with Place(directory) as place:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with open(place.open(places.SUPERVISOR_LOG, flags), "ab") as log:
            log.write(words.encode(errors="replace"))


def _refuse(directory: str, tell: int, error: OSError) -> None:
    """Report why there is no supervisor, where its own last words would be."""
    try:
        _say(directory, f"cannot fork: {error}\n")
        os.write(tell, bytes([supervisor.FAILED]))
    except OSError:
        return  # the pipe ends without a byte, which means the same


def main() -> int:
    processes.keep_signals_out()
    # The kernel collects supervisors: no process waits for them here.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    processes.close_to_account()
    for name in C_FUNCTIONS:
        getattr(processes.libc, name)
    # Pages that the collector does not touch stay shared between the template and its forks.
    gc.disable()
    gc.freeze()
    with socket.socket(fileno=0) as line:
        serve(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
