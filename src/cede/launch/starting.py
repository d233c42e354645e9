"""The agent's side of the template: starts it, sends launches to it, and starts it again.

Any number of threads may launch at once. A launch has its own pipe, whose writing end goes to the
future supervisor. One byte on it is the answer. Its end without a byte means that no process has it
any more, so that no supervisor came of it and none will: then the launch is sent again.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

import cede
from cede.launch import crash, places
from cede.launch.places import Place
from cede.launch.supervisor import KEPT_ALREADY, TOOK_OVER
from cede.model.errors import CedeError

# A supervisor that has not taken over by now is not going to.
LAUNCH_TIMEOUT = 20.0
# How long a launch also waits for the work: then its caller need not look for it.
START_TIMEOUT = 1.0
# How often a launch is sent again when its template, or its fork, is killed meanwhile.
TRIES = 5
END_TIMEOUT = 5.0


class LaunchFailed(CedeError):
    """No supervisor took over. The machine's fault, not the work's."""


class Template:
    """The template process of one agent. Close it, or use it in a `with`; supervisors go on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def close(self) -> None:
        with self._lock:
            self._end()

    def warm(self) -> None:
        """Start it before it is needed."""
        with self._lock:
            if self._line is None:
                self._start()

    def launch(self, directory: Path) -> None:
        """Start the supervisor of a prepared attempt, and return when it has taken over and, unless
        that takes long, when its work has started.

        Work that any process has started before is not started again.
        """
        if not sys.platform.startswith("linux"):
            raise LaunchFailed(f"work is kept on Linux only, and this is {sys.platform}")
        for _ in range(TRIES):
            answer = self._ask(directory)
            if answer in (TOOK_OVER, KEPT_ALREADY):
                return
            if answer is not None:
                raise LaunchFailed(f"the supervisor ended with code {answer}: {_words(directory)}")
        raise LaunchFailed(f"the supervisor was killed {TRIES} times before it took over")

    def _ask(self, directory: Path) -> int | None:
        """The supervisor's answer; None if it, or the template, died without one."""
        told, tell = os.pipe()
        try:
            try:
                self._send(os.fsencode(directory.absolute()), tell)
            finally:
                os.close(tell)
            poll = select.poll()  # `select` cannot take descriptors above 1023
            poll.register(told, select.POLLIN)
            if not poll.poll(LAUNCH_TIMEOUT * 1000):
                raise LaunchFailed(f"no supervisor took over within {LAUNCH_TIMEOUT:.0f} s")
            answer = os.read(told, 1)
            if answer == bytes([TOOK_OVER]):
                poll.poll(START_TIMEOUT * 1000)
            return answer[0] if answer else None
        finally:
            os.close(told)

    def _send(self, message: bytes, tell: int) -> None:
        with self._lock:
            for _ in range(TRIES):
                if self._line is None:
                    self._start()
                assert self._line is not None
                try:
                    socket.send_fds(self._line, [message], [tell])
                except (BrokenPipeError, ConnectionError):
                    self._end()  # it was killed; nothing that was sent to it is lost
                else:
                    return
        raise LaunchFailed(f"the template process was killed {TRIES} times")

    def _start(self) -> None:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._process = subprocess.Popen(
                # -S: it needs cede and the standard library, and starts sooner without the rest.
                [sys.executable, "-S", "-m", "cede.launch.template"],
                stdin=its.fileno(),
                stdout=subprocess.DEVNULL,
                cwd="/",
                env=supervisor_environment(),
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            its.close()
        self._line = ours

    def _end(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None
        if self._process is not None:
            try:
                self._process.wait(END_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


def supervisor_environment() -> dict[str, str]:
    """The supervisor's environment, without tokens and markers of attempts, which it does not
    need.
    """
    passed_on = ("LANG", "LC_ALL", "PATH", crash.VARIABLE)
    kept = {name: os.environ[name] for name in passed_on if name in os.environ}
    return {
        **kept,
        "PYTHONPATH": str(Path(cede.__file__).parents[1]),
        "PYTHONSAFEPATH": "1",
        "LD_BIND_NOW": "1",  # or every fork would look its functions up again
    }


def _words(directory: Path) -> str:
    """The last line that a supervisor wrote about itself."""
    try:
        with (
            Place(directory) as place,
            open(place.open(places.SUPERVISOR_LOG, os.O_RDONLY), errors="replace") as file,
        ):
            lines = file.read()[-4096:].strip().splitlines()
    except OSError as error:
        return str(error)
    return lines[-1] if lines else "it said nothing"
