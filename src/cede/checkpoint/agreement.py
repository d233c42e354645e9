"""How the tasks of a gang come to save at the same step, as one task sees it.

Each task answers a hint with a step that it can still save at, and the largest of these answers
comes back as the agreed step. A task that has passed it by then answers again and looks twice as
far ahead, so every delay is outrun after a few answers. No task ever waits: in lockstep training
the others wait for its next collective. Pure: it reads no file and no clock.
"""

from __future__ import annotations

from collections import deque

from cede.checkpoint.words import STEP_MAX

# How far ahead the first answer looks: a live agent and server need less time.
HORIZON = 2.0
# From this fraction of the time until the deadline on, a save that other tasks may not have is
# better than none.
PATIENCE = 0.75
_SAMPLE_SECONDS = 0.1
_SAMPLES = 20


class Pace:
    """The speed of steps, averaged over the last seconds."""

    def __init__(self) -> None:
        self.stride = 1  # steps from one call to the next
        self._done: int | None = None
        self._samples: deque[tuple[float, int]] = deque(maxlen=_SAMPLES)

    def note(self, done: int, now: float) -> None:
        if self._done is not None and done > self._done:
            self.stride = done - self._done
        elif self._done is not None and done < self._done:
            self._samples.clear()  # it counts anew
        self._done = done
        if not self._samples or now - self._samples[-1][0] >= _SAMPLE_SECONDS:
            self._samples.append((now, done))

    def rest(self, seconds: float) -> None:
        """Exclude the time of a save."""
        shifted = [(at + seconds, done) for at, done in self._samples]
        self._samples = deque(shifted, maxlen=_SAMPLES)

    def per_second(self) -> float:
        """The steps per second; 0 until something was measured."""
        if len(self._samples) < 2:
            return 0.0
        (start, first), (end, last) = self._samples[0], self._samples[-1]
        return (last - first) / (end - start)


class Agreement:
    """One task's part in the agreement about one hint, from the moment it notices the hint."""

    def __init__(self, number: int, noticed: float, pace: Pace, *, is_hosted: bool = True) -> None:
        """`is_hosted`: the host takes part. A host of an older version does not, and is answered by
        a save at once.
        """
        self.number = number
        self.reach: int | None = None  # the step that this task answered
        self._pace = pace
        self._is_hosted = is_hosted
        self._noticed = noticed
        self._horizon = HORIZON
        self._agreed: int | None = None
        self._wanted: int | None = None
        self._has_answered = False
        self._saved: dict[int, str] = {}

    def should_save(
        self, done: int, now: float, *, deadline: float, agreed: int | None, total: int | None
    ) -> bool:
        """Whether `done` is a step to save at; sets `reach` anew if the host must hear another
        answer.
        """
        self._agreed = agreed
        late_at = self._noticed + PATIENCE * (deadline - self._noticed)
        if agreed in self._saved:
            is_due = False
        elif done == agreed:
            is_due = True
        else:
            is_due = not self._has_answered and (not self._is_hosted or now >= late_at)
            if (agreed is None or agreed < done) and (self.reach is None or self.reach < done):
                self._answer(done, total, late_at - now)
        self._wanted = done if is_due else None
        return is_due

    def wants(self, step: int) -> bool:
        """Whether a checkpoint of this step answers the hint."""
        return self._wanted == step

    def save(self, step: int, id: str) -> None:
        """Note that a checkpoint of this step is on disk, asked for or not."""
        self._saved.setdefault(step, id)
        if self.wants(step):
            self._has_answered = True

    @property
    def settled(self) -> str:
        """This task's checkpoint of the agreed step; empty if there is none."""
        return self._saved.get(self._agreed, "") if self._agreed is not None else ""

    def _answer(self, done: int, total: int | None, seconds_left: float) -> None:
        """Set `reach` to the first step that comes after the horizon, at the present pace.

        No step comes after the last one, and a task saves at that one anyway. An unknown pace gives
        the next step, once: right if steps take seconds, and otherwise corrected.
        """
        stride, pace = self._pace.stride, self._pace.per_second()
        last = STEP_MAX if total is None else max(done, total)
        if pace == 0.0:
            self.reach = self.reach or min(done + stride, last)
            return
        horizon = min(self._horizon, max(seconds_left / 2, HORIZON))
        calls = int(pace * horizon / stride) + 1
        self.reach = min(done + calls * stride, last)
        self._horizon *= 2
