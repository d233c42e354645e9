"""A person at a terminal of 80 columns: commands are typed and what is shown is kept."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.client.serving import BIN, WAIT_SECONDS

CEDE = (sys.executable, "-m", "cede.cli")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Shown:
    """What a command showed, as lines without control sequences, and its exit code."""

    code: int
    text: str
    raw: str = ""

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def line(self) -> str:
        """The only line."""
        assert len(self.lines) == 1, self.text
        return self.lines[0]


def typed(
    *arguments: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    columns: int = 80,
) -> Shown:
    """Run `cede` on a pseudo-terminal of this width until it has ended."""
    with Typing(*arguments, env=env, cwd=cwd, columns=columns) as typing:
        return typing.ended()


class Typing:
    """A `cede`, or another program, on a terminal of its own, at which keys can be pressed."""

    def __init__(
        self,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        columns: int = 80,
        program: Sequence[str] = CEDE,
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        base = {k: v for k, v in os.environ.items() if not k.startswith("CEDE_") and k != "COLUMNS"}
        path = f"{BIN}{os.pathsep}{base['PATH']}"
        self.process = subprocess.Popen(
            [*program, *arguments],
            env={**base, "PATH": path, "TERM": "xterm", **(env or {})},
            cwd=cwd,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            # Its own terminal, so that Ctrl-C is a signal to whatever runs in the foreground.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self._seen = b""

    def __enter__(self) -> Typing:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)

    @property
    def raw(self) -> str:
        return self._seen.decode(errors="replace").replace("\r\n", "\n")

    @property
    def text(self) -> str:
        return _CONTROL.sub("", self.raw)

    def until(self, shown: str, times: int = 1, seconds: float = WAIT_SECONDS) -> None:
        """Wait until this was shown so often."""
        deadline = time.monotonic() + seconds
        while self.text.count(shown) < times:
            left = deadline - time.monotonic()
            ready = left > 0 and select.select([self._ours], [], [], left)[0]
            data = _read(self._ours) if ready else b""
            assert data, f"{shown!r} is not in {self.text!r}"
            self._seen += data

    def read_what_is_there(self) -> None:
        while select.select([self._ours], [], [], 0)[0] and (data := _read(self._ours)):
            self._seen += data

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def ended(self) -> Shown:
        while data := _read(self._ours):
            self._seen += data
        return Shown(self.process.wait(WAIT_SECONDS), self.text, self.raw)


CTRL_C = "\x03"


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # every other end is closed: it has ended
        return b""
