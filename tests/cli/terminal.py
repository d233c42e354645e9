"""A person at a terminal of 80 columns: commands are typed and what is shown is kept."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.client.serving import BIN, WAIT_SECONDS

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
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    base = {k: v for k, v in os.environ.items() if not k.startswith("CEDE_") and k != "COLUMNS"}
    process = subprocess.Popen(
        [sys.executable, "-m", "cede.cli", *arguments],
        env={**base, "PATH": f"{BIN}{os.pathsep}{base['PATH']}", "TERM": "xterm", **(env or {})},
        cwd=cwd,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen = b""
    try:
        while data := _read(ours):
            seen += data
        code = process.wait(WAIT_SECONDS)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(ours)
    text = seen.decode(errors="replace").replace("\r\n", "\n")
    return Shown(code, _CONTROL.sub("", text), text)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # every other end is closed: it has ended
        return b""
