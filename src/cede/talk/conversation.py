"""One conversation with one application: hints go out, and answers come back.

An agent uses it for its attempts and `cede run` for its child. It keeps no clock of the stop and
stops no work. Its state is in the talk directory: a restarted host opens the same two directories,
hears again what still matters, and reports nothing that it did not verify itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from cede.checkpoint import clock, files
from cede.checkpoint.line import CHECKPOINT_DIR, CHECKPOINT_PROTOCOL, TALK_DIR
from cede.checkpoint.manifest import Saved as Verified
from cede.checkpoint.manifest import is_id
from cede.checkpoint.words import Answer, Hint, Protocol, Status, plain
from cede.talk.heard import Answered, Deferral, Heard, Progress, Reach, Saved, SaveFailed
from cede.talk.lines import FlagLine, Line, SignalLine
from cede.talk.verifier import Verifier

_TALK_FILES = ("app.sock", "flag", files.ANSWER, files.HINT, files.REACH, files.AGREED)
_FAILED = "it says that it saved itself, and there is no checkpoint"


class Conversation:
    def __init__(
        self,
        talk_directory: Path,
        checkpoint_directory: Path,
        protocol: Protocol | str,
        send_signal: Callable[[int], bool | None],
    ) -> None:
        self._talk_directory = talk_directory.absolute()
        self._checkpoint_directory = checkpoint_directory.absolute()
        self._protocol = Protocol(protocol)
        self._send_signal = send_signal
        self._verifier = Verifier(self._checkpoint_directory)
        self._hint: Hint | None = None
        self._before: frozenset[str] | None = None  # the checkpoints at the time of the hint
        self._last: Answer | None = None
        self._reach: tuple[int, int] | None = None
        self._agreed: tuple[int, int] | None = None
        self._trouble: SaveFailed | None = None
        self._talk = -1
        self._line: Line | None = None

    def environment(self) -> dict[str, str]:
        """The variables that the application needs. CEDE_RESUME_FROM is the caller's."""
        return {
            CHECKPOINT_DIR: str(self._checkpoint_directory),
            CHECKPOINT_PROTOCOL: str(self._protocol),
            TALK_DIR: str(self._talk_directory),
        }

    def open(self, *, fresh: bool = False, known: Collection[str] = ()) -> None:
        """Make missing directories and go on with earlier hints.

        `fresh`, for a new attempt in old directories: no earlier answer counts. `known` are the
        checkpoints from before this attempt, which are not reported as its own. A fresh
        conversation without any takes all that exist as known.
        """
        self._talk_directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._checkpoint_directory.mkdir(parents=True, exist_ok=True)
        self._talk = os.open(self._talk_directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for name in _TALK_FILES if fresh else ():
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._talk)
        self._verifier.know(None if fresh and not known else known)
        try:
            self._line = self._open_line()
        except OSError as error:  # the work blocks its directory: it is not asked
            self._line = SignalLine(self._talk, lambda number: None)
            self._trouble = SaveFailed(None, f"it cannot be asked: {error.strerror}")
        self._agreed = files.read_step(self._talk, files.AGREED)
        if (read := files.read_hint(self._talk)) is None:
            return
        self._hint, more = read
        before = more.get("before")
        self._before = frozenset(filter(is_id, before)) if isinstance(before, list) else None
        # After a kill between writing and sending it is unknown: asking twice is better than not at
        # all.
        was_sent = more.get("sent") is True and self._protocol is not Protocol.GRPC
        self._ask(self._hint, first=not was_sent)

    def hint(self, number: int, seconds_left: float, *, goes_on: bool = False) -> None:
        """Ask for a checkpoint, after which the work is stopped or `goes_on`. The same number again
        only changes the deadline; another replaces the earlier hint.
        """
        hint = Hint(number, clock.now() + seconds_left, goes_on=goes_on)
        is_first = self._hint is None or self._hint.number != number
        if is_first:
            self._verifier.look(None, before=None)
            self._before = self._verifier.seen()
            self._last = None
        elif self._hint is not None and self._hint.withdrawn:
            return  # withdrawn for good: a new hint takes the next number
        self._ask(hint, first=is_first)

    def go_on(self) -> None:
        """Withdraw the hint, if there is one."""
        if self._hint is not None and not self._hint.withdrawn:
            self._ask(replace(self._hint, withdrawn=True), first=True)

    def agree(self, number: int, step: int) -> None:
        """Tell a task of a gang the step at which all of them save for this hint; again if it
        moves.

        A failure is not reported, because what the application saves shows whether it has heard.
        """
        assert self._line is not None, "open() comes first"
        if self._agreed != (number, step):
            with suppress(OSError):  # damage to its directory is its own loss
                files.write_step(self._talk, files.AGREED, number, step)
                self._agreed = (number, step)

    def poll(self, now: float) -> list[Heard]:
        """The news since the last call; never waits. `now` is any clock that does not jump."""
        heard: list[Heard] = [self._trouble] if self._trouble else []
        self._trouble = None
        answer = self._answer()
        if answer is not None:
            heard += self._news(answer)
        heard += self._reached()
        says_saved = answer is not None and answer.status is Status.SAVED and answer != self._last
        self._verifier.look(None if says_saved else now, self._before)
        if says_saved and self._hint and self._verifier.seen() <= (self._before or frozenset()):
            heard.append(SaveFailed(self._hint.number, _FAILED))
        self._last = answer or self._last
        for id, verdict in self._verifier.verdicts():
            number = self._number_of(id)
            if isinstance(verdict, Verified):
                heard.append(Saved(None if self._is_too_early(verdict) else number, verdict))
            else:
                heard.append(SaveFailed(number, f"{id}: {plain(verdict.reason)}"))
        return heard

    @property
    def is_verifying(self) -> bool:
        """Whether existing checkpoints are still being verified."""
        return self._verifier.is_busy

    @property
    def known(self) -> frozenset[str]:
        """The checkpoints from before this attempt; the host of a later opening passes them on."""
        return self._verifier.known

    def look(self) -> None:
        """Look for checkpoints now, regardless of the last look."""
        self._verifier.look(None, self._before)

    def close(self) -> None:
        """Stop listening; the application and its files stay as they are."""
        self._verifier.close()
        if self._line is not None:
            self._line.close()
            os.close(self._talk)
            self._line = None

    def _open_line(self) -> Line:
        if self._protocol is Protocol.SHM:
            return FlagLine(self._talk)
        if self._protocol is Protocol.GRPC:
            from cede.talk.grpc_call import GrpcLine

            return GrpcLine(self._talk)
        return SignalLine(self._talk, self._send_signal)

    def _ask(self, hint: Hint, *, first: bool) -> None:
        assert self._line is not None, "open() comes first"
        self._hint = hint
        more = {"before": sorted(self._before or ()), files.AGREES: True}
        # Damage by the application to its directory is its own loss, and no reason for the host to
        # fail.
        try:
            files.write_hint(self._talk, hint, **more, sent=not first)
            self._line.ask(hint, first=first)
            if first:
                files.write_hint(self._talk, hint, **more, sent=True)
        except OSError as error:
            self._trouble = SaveFailed(hint.number, f"it cannot be asked: {error.strerror}")

    def _answer(self) -> Answer | None:
        """The answer to the present hint; answers to others are ignored."""
        assert self._line is not None, "open() comes first"
        if self._hint is None or self._hint.withdrawn:
            return None
        answer = self._line.answer()
        return answer if answer is not None and answer.number == self._hint.number else None

    def _news(self, answer: Answer) -> Iterator[Heard]:
        last = self._last
        if last is None:
            yield Answered(answer.number)
        if answer.deferrals > (last.deferrals if last else 0):
            yield Deferral(answer.number, answer.deferrals, answer.defer_seconds, answer.why)
        was = (last.fraction, last.estimate) if last else (None, None)
        if (answer.fraction, answer.estimate) != was:
            yield Progress(answer.number, answer.fraction, answer.estimate)
        was_failed = last is not None and last.status is Status.FAILED
        if answer.status is Status.FAILED and not was_failed:
            yield SaveFailed(answer.number, answer.why or "it says that it could not save itself")

    def _reached(self) -> Iterator[Heard]:
        if self._hint is None or self._hint.withdrawn:
            return
        reach = files.read_step(self._talk, files.REACH)
        if reach is not None and reach != self._reach and reach[0] == self._hint.number:
            self._reach = reach
            yield Reach(*reach)

    def _is_too_early(self, saved: Verified) -> bool:
        """Whether a task of a gang saved before the agreed step, so that it will save once more at
        it.
        """
        agreed = self._agreed
        is_about_it = agreed and self._hint and agreed[0] == self._hint.number
        return agreed is not None and bool(is_about_it) and saved.step < agreed[1]

    def _number_of(self, id: str) -> int | None:
        """The number of the hint that a checkpoint answers: the present one, if the checkpoint came
        after it.
        """
        if self._hint is None or self._hint.withdrawn or id in (self._before or ()):
            return None
        return self._hint.number
