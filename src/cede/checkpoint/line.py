"""The application's end of a conversation: the host's hints and the application's answers."""

from __future__ import annotations

import atexit
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Protocol as Interface

from cede.checkpoint import files
from cede.checkpoint.flag import Mapped
from cede.checkpoint.words import Answer, Hint, Protocol

CHECKPOINT_DIR = "CEDE_CHECKPOINT_DIR"
CHECKPOINT_PROTOCOL = "CEDE_CHECKPOINT_PROTOCOL"
RESUME_FROM = "CEDE_RESUME_FROM"
TALK_DIR = "CEDE_TALK_DIR"
ATTEMPT = "CEDE_ATTEMPT"
TASKS = "CEDE_TASKS"
ARRAY = "CEDE_ARRAY"  # then TASKS are those of the array, each of which saves by itself
SIGNAL = signal.SIGUSR1


class Line(Interface):
    def hint(self) -> Hint | None:
        """The latest hint, even if it was withdrawn."""

    def tell(self, answer: Answer) -> None:
        """Replace the answer."""


class NoLine:
    """The line of an application outside cede, which is never asked."""

    def hint(self) -> Hint | None:
        return None

    def tell(self, answer: Answer) -> None:
        pass


class SignalLine:
    """A line of the protocol `signal`: the signal wakes, and the hint is in a file.

    So a hint is not lost when the signal came before the handler was set, or went to another
    handler.
    """

    def __init__(self, talk: Path) -> None:
        self._talk = os.open(talk, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def hint(self) -> Hint | None:
        read = files.read_hint(self._talk)
        return read[0] if read else None

    def tell(self, answer: Answer) -> None:
        files.write_answer(self._talk, answer)


def conversation_of(environment: Mapping[str, str]) -> list[str]:
    """The variables of a conversation with another process, which must not be passed on."""
    names = (CHECKPOINT_DIR, CHECKPOINT_PROTOCOL, RESUME_FROM, TALK_DIR)
    return [name for name in names if name in environment] if TALK_DIR in environment else []


def number_in(environment: Mapping[str, str], name: str) -> int:
    """A number from 1 that cede puts into the environment; 1 without cede."""
    text = environment.get(name, "")
    is_number = text.isascii() and text.isdigit() and len(text) < 10
    return max(int(text), 1) if is_number else 1


def open_line(environment: Mapping[str, str]) -> Line:
    if not environment.get(TALK_DIR):
        return NoLine()
    talk = Path(environment[TALK_DIR])
    protocol = Protocol(environment.get(CHECKPOINT_PROTOCOL, Protocol.SIGNAL))
    if protocol is Protocol.SHM:
        return Mapped(talk / "flag")
    if protocol is Protocol.GRPC:
        from cede.checkpoint.grpc_line import GrpcLine

        return GrpcLine(talk)
    return SignalLine(talk)


def survive_signal(environment: Mapping[str, str]) -> None:
    """Set a handler for the hint's signal, which would end the process by default.

    An existing handler is called as before, and one that is not Python's stays alone.
    """
    if environment.get(CHECKPOINT_PROTOCOL) != Protocol.SIGNAL or not environment.get(TALK_DIR):
        return
    before = signal.getsignal(SIGNAL)
    if before is None:
        return

    def handler(number: int, frame: FrameType | None) -> None:
        if callable(before):
            before(number, frame)

    def ignore() -> None:
        # Python drops its handlers long before the process ends, and this one is no longer needed.
        if signal.getsignal(SIGNAL) is handler:
            signal.signal(SIGNAL, signal.SIG_IGN)

    with suppress(ValueError):  # not the main thread: no signal, but the file is read
        signal.signal(SIGNAL, handler)
        atexit.register(ignore)
