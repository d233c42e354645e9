"""What a host hears from an application. `number` is that of the hint it is about."""

from __future__ import annotations

from dataclasses import dataclass

from cede.checkpoint import manifest


@dataclass(frozen=True, slots=True)
class Answered:
    """It has noticed the hint. Said once for each hint."""

    number: int


@dataclass(frozen=True, slots=True)
class Progress:
    number: int
    fraction: float | None
    estimate: float | None


@dataclass(frozen=True, slots=True)
class Deferral:
    """It asks for time. The n-th of this hint has `count` n, also when it is heard again."""

    number: int
    count: int
    seconds: float
    why: str


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint was verified. `number` is None if it is older than the hint, or unasked for."""

    number: int | None
    saved: manifest.Saved


@dataclass(frozen=True, slots=True)
class SaveFailed:
    """It says so, or what it calls a checkpoint is none. It may still succeed."""

    number: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Reach:
    """A task of a gang: `step` is the first at which it can certainly still save."""

    number: int
    step: int


Heard = Answered | Progress | Deferral | Saved | SaveFailed | Reach
