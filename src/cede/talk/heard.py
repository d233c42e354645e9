"""Messages that a host hears from an application. `number` is that of the hint concerned."""

from __future__ import annotations

from dataclasses import dataclass

from cede.checkpoint import manifest


@dataclass(frozen=True, slots=True)
class Answered:
    """The application has noticed the hint. Sent once for each hint."""

    number: int


@dataclass(frozen=True, slots=True)
class Progress:
    number: int
    fraction: float | None
    estimate: float | None


@dataclass(frozen=True, slots=True)
class Deferral:
    """A request for time. The n-th of this hint has `count` n, also when it is heard again."""

    number: int
    count: int
    seconds: float
    why: str


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint was verified. `number` is None if it is older than the hint, or was not asked
    for.
    """

    number: int | None
    saved: manifest.Saved


@dataclass(frozen=True, slots=True)
class SaveFailed:
    """Saving failed, by the application's report or because its checkpoint is invalid. It may still
    succeed.
    """

    number: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Reach:
    """The first step at which a task of a gang can certainly still save."""

    number: int
    step: int


Heard = Answered | Progress | Deferral | Saved | SaveFailed | Reach
