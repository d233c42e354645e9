"""The host's end of each protocol: passes hints on and reads the application's answers.

The application owns the talk directory and may do anything to it. Nothing here waits for it,
follows its links or maps its files.
"""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol as Interface

from cede.checkpoint import files, flag
from cede.checkpoint.words import Answer, Hint

_FLAG = "flag"
# Looking for a listener takes longer than looking for an answer.
_LOOKS_A_SECOND = 10
# Without O_NONBLOCK a FIFO in its place would block.
_OPEN = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Line(Interface):
    def ask(self, hint: Hint, *, first: bool) -> None:
        """Pass on a hint or its withdrawal. Not `first`: only its deadline has changed."""

    def answer(self) -> Answer | None:
        """The application's latest answer."""

    def close(self) -> None:
        """Stop listening."""


class SignalLine:
    """A line whose hint is in `hint.json`, written by the conversation; the signal wakes.

    While `send_signal` returns False no process listens yet, and the signal is sent again.
    """

    def __init__(self, talk: int, send_signal: Callable[[int], bool | None]) -> None:
        self._talk = talk
        self._send = send_signal
        self._is_unheard = False
        self._looks = 0

    def ask(self, hint: Hint, *, first: bool) -> None:
        if hint.withdrawn:
            self._is_unheard = False
        elif first:
            self._is_unheard = self._send(signal.SIGUSR1) is False

    def answer(self) -> Answer | None:
        self._looks += 1
        if self._is_unheard and self._looks % _LOOKS_A_SECOND == 0:
            self._is_unheard = self._send(signal.SIGUSR1) is False
        return files.read_answer(self._talk)

    def close(self) -> None:
        pass


class FlagLine:
    """The page of `cede.checkpoint.flag`, read and written as a file."""

    def __init__(self, talk: int) -> None:
        self._flag = _open_flag(talk)

    def ask(self, hint: Hint, *, first: bool) -> None:
        os.pwrite(self._flag, flag.pack_hint(hint), flag.HINT_AT)

    def answer(self) -> Answer | None:
        return flag.unpack_answer(os.pread(self._flag, flag.SIZE, 0))

    def close(self) -> None:
        os.close(self._flag)


def _open_flag(talk: int) -> int:
    """The flag of a conversation that goes on, or a new one that replaces whatever exists."""
    with suppress(OSError):
        found = os.open(_FLAG, _OPEN, dir_fd=talk)
        status = os.fstat(found)
        # One name only: a second name would be a file elsewhere, which would be overwritten.
        is_ours = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
        if is_ours and flag.is_flag(os.pread(found, flag.SIZE + 1, 0)):
            return found
        os.close(found)
    partial = f"{_FLAG}.partial"
    with suppress(FileNotFoundError):
        os.unlink(partial, dir_fd=talk)
    made = os.open(partial, _OPEN | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=talk)
    os.write(made, flag.blank())
    owner = os.fstat(talk)
    if os.geteuid() == 0:  # the application runs as the owner of its talk directory
        os.fchown(made, owner.st_uid, owner.st_gid)
    os.rename(partial, _FLAG, src_dir_fd=talk, dst_dir_fd=talk)
    return made
