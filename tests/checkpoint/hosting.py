"""A host for one real program: a conversation, and the process it is about."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from cede.checkpoint.words import Protocol
from cede.talk import signals
from cede.talk.conversation import Conversation
from cede.talk.heard import Heard, Saved

PROGRAMS = Path(__file__).parent / "programs"
PATIENCE = 60.0
T = TypeVar("T")


def wait_for(look: Callable[[], T | None], what: str = "it") -> T:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.01)
    raise AssertionError(f"waited {PATIENCE} s for {what}")


class Host:
    """Starts programs in one place, one after the other, as an agent starts attempts."""

    def __init__(self, folder: Path, protocol: str) -> None:
        self.folder = folder
        self.talk = folder / "talk"
        self.checkpoints = folder / "checkpoints"
        self.protocol = Protocol(protocol)
        self.process: subprocess.Popen[str] | None = None
        self.heard: list[Heard] = []
        self._news: list[Heard] = []  # heard, and not yet listened to
        self.conversation = self._converse()
        self.conversation.open()

    def _converse(self) -> Conversation:
        return Conversation(self.talk, self.checkpoints, self.protocol, self._signal)

    def _signal(self, number: int) -> bool:
        assert self.process is not None
        return signals.send(signals.group(self.process.pid), number)

    def run(self, *command: str | Path, resume: Path | None = None, ready: str = "ready") -> None:
        environment = {**os.environ, **self.conversation.environment()}
        if resume is not None:
            environment["CEDE_RESUME_FROM"] = str(resume)
        self.output = self.folder / "output"
        with self.output.open("w") as stream:
            self.process = subprocess.Popen(
                [str(each) for each in command],
                env=environment,
                cwd=self.folder,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                text=True,
            )
        wait_for(lambda: ready in self.said() or self.process.poll() is not None, "its start")

    def run_program(self, name: str, *arguments: str, resume: Path | None = None) -> None:
        self.run(sys.executable, PROGRAMS / name, *arguments, resume=resume)

    def said(self) -> str:
        return self.output.read_text()

    def listen(self, kind: type[T]) -> T:
        """Poll until something of this kind is heard. Everything heard is in `heard`.

        One poll may bring several of a kind; the next call begins after the one that is returned.
        """

        def look() -> T | None:
            news = self.conversation.poll(time.monotonic())
            self.heard += news
            self._news += news
            while self._news:
                if isinstance(each := self._news.pop(0), kind):
                    return each
            return None

        try:
            return wait_for(look, kind.__name__)
        except AssertionError as error:
            raise AssertionError(f"{error}; heard {self.heard}; it said:\n{self.said()}") from None

    def hear(self, this: Heard) -> None:
        """Until this was heard, then or now: a quick save may be judged before its answer comes."""
        while this not in self.heard:
            self.listen(type(this))

    def listen_for_answer(self, number: int) -> Saved:
        """The checkpoint that answers the hint, whatever older ones are heard of."""
        while (saved := self.listen(Saved)).number != number:
            assert saved.number is None
        return saved

    def listen_for(self, seconds: float) -> list[Heard]:
        """What is heard within a time in which nothing should be."""
        end = time.monotonic() + seconds
        start = len(self.heard)
        while time.monotonic() < end:
            self.heard += self.conversation.poll(time.monotonic())
            time.sleep(0.01)
        return self.heard[start:]

    def restart(self) -> None:
        """The host dies and comes back; the program has noticed nothing."""
        self._news.clear()
        known = self.conversation.known
        self.conversation.close()
        self.conversation = self._converse()
        self.conversation.open(known=known)

    def kill(self) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def next_attempt(self) -> None:
        self.kill()
        self._news.clear()
        self.conversation.close()
        self.conversation = self._converse()
        self.conversation.open(fresh=True)

    def close(self) -> None:
        self.kill()
        self.conversation.close()
