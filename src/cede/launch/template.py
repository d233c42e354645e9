"""`python -m cede.launch.template`: a process that has imported the supervisor and forks one per
launch.

A launch is one message on its standard input, a socket: the attempt's directory, and the writing
end of a pipe. The fork becomes the supervisor, says on the pipe that it took over, and belongs to
nobody from then on. The template knows nothing of attempts and keeps nothing: killed at any moment
it is started again, and a launch whose pipe ends without a word never happened.

It has one thread and three descriptors, so that a fork of it inherits nothing else.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import traceback
from typing import NoReturn

from cede.launch import crash, places, processes, supervisor
from cede.launch.places import Place

MESSAGE_MAX = 1 << 13  # above every path


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
                _supervise(line, directory, tell)
        except OSError as error:
            _refuse(directory, tell, error)
        crash.at("template_after")
        os.close(tell)


def _supervise(line: socket.socket, directory: str, tell: int) -> NoReturn:
    """The fork: the supervisor of one attempt, whatever becomes of the template."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # it collects its work itself
        line.detach()
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        os.dup2(null, 0)
        os.close(null)
        with Place(directory) as place:
            _log_to(place)
        os.setsid()
        crash.at("template_forked", os.getppid())
        crash.at("taking_over")
        supervisor.supervise(directory, tell)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        try:
            os.write(tell, bytes([supervisor.FAILED]))
        except OSError:
            os._exit(1)  # it took over before; what it left is swept up
    finally:
        os._exit(1)


def _log_to(place: Place) -> None:
    log = place.open(places.SUPERVISOR_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 2)
    os.close(log)


def _refuse(directory: str, tell: int, error: OSError) -> None:
    """Say why there is no supervisor, where its own last words would be."""
    try:
        with Place(directory) as place:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            with open(place.open(places.SUPERVISOR_LOG, flags), "ab") as log:
                log.write(f"cannot fork: {error}\n".encode())
        os.write(tell, bytes([supervisor.FAILED]))
    except OSError:
        return  # the pipe ends without a word, which says the same


def main() -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    # The kernel collects supervisors: nobody waits for them here.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    processes.close_to_account()
    # Pages that the collector does not touch stay shared between the template and its forks.
    gc.disable()
    gc.freeze()
    with socket.socket(fileno=0) as line:
        serve(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
