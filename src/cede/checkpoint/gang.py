"""The files through which a task of a gang agrees with the others; `agreement` decides."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

from cede.checkpoint import files
from cede.checkpoint.agreement import Agreement, Pace
from cede.checkpoint.line import ARRAY, TALK_DIR, TASKS, number_in
from cede.checkpoint.words import Hint


class Gang:
    def __init__(self, talk: str) -> None:
        self._talk = os.open(talk, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._pace = Pace()
        self._agreement: Agreement | None = None

    def note(self, done: int, now: float) -> None:
        """Measure how fast steps are done."""
        self._pace.note(done, now)

    def should_save(self, hint: Hint, done: int, total: int | None, now: float) -> bool:
        """Whether the tasks save at this step for this hint; writes the answer that the host must
        hear.
        """
        agreement = self._about(hint, now)
        before = agreement.reach
        is_due = agreement.should_save(
            done, now, deadline=hint.deadline, agreed=self._agreed(hint.number), total=total
        )
        if agreement.reach is not None and agreement.reach != before:
            with suppress(OSError):  # a full disk; then the deadline decides
                files.write_step(self._talk, files.REACH, hint.number, agreement.reach)
        return is_due

    def wants(self, hint: Hint, step: int) -> bool:
        """Whether a checkpoint of this step answers the hint."""
        agreement = self._agreement
        return agreement is not None and agreement.number == hint.number and agreement.wants(step)

    def save(self, step: int, id: str, seconds: float) -> None:
        """Note that a checkpoint of this step is on disk, and that writing it took `seconds`."""
        self._pace.rest(seconds)
        if self._agreement is not None:
            self._agreement.save(step, id)

    def settled(self, hint: Hint) -> str:
        """The checkpoint at the agreed step, which answers this hint; empty if there is none."""
        agreement = self._agreement
        return agreement.settled if agreement and agreement.number == hint.number else ""

    def _about(self, hint: Hint, now: float) -> Agreement:
        if self._agreement is None or self._agreement.number != hint.number:
            read = files.read_hint(self._talk)
            is_hosted = read is not None and read[1].get(files.AGREES) is True
            self._agreement = Agreement(hint.number, now, self._pace, is_hosted=is_hosted)
        return self._agreement

    def _agreed(self, number: int) -> int | None:
        read = files.read_step(self._talk, files.AGREED)
        return read[1] if read is not None and read[0] == number else None


def gang_of(environment: Mapping[str, str]) -> Gang | None:
    """The gang that this task belongs to; None if it is alone or outside cede."""
    talk = environment.get(TALK_DIR)
    in_gang = number_in(environment, TASKS) > 1 and not environment.get(ARRAY)
    return Gang(talk) if talk and in_gang else None
