"""Hints of a host and answers of an application, in any protocol.

Both are states, not messages: the latest one has everything that still matters, so a reader that
was away, or was restarted, has missed nothing. Values from the other side are made harmless here,
by `Answer.sane`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum

WHY_LENGTH_MAX = 200
# A year: longer estimates and deferrals are mistakes.
SECONDS_MAX = 366 * 24 * 3600.0
NUMBER_MAX = 2**63 - 1
# Steps stay exact in every JSON reader.
STEP_MAX = 2**53 - 1

# The service of the protocol grpc that the application serves, and its socket in the talk
# directory.
SERVICE = "cede.checkpoint.v1.Application"
SOCKET = "app.sock"


class Protocol(StrEnum):
    SIGNAL = "signal"
    SHM = "shm"
    GRPC = "grpc"


class Status(IntEnum):
    NONE = 0
    ANSWERED = 1
    SAVING = 2
    SAVED = 3
    FAILED = 4
    DEFERRED = 5


@dataclass(frozen=True, slots=True)
class Hint:
    """An ask to save. `deadline` is an instant of `clock.now`; with `goes_on` the work is not
    stopped afterwards.
    """

    number: int
    deadline: float
    withdrawn: bool = False
    goes_on: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """The state of the application's answer to the hint of this number.

    `deferrals` counts how often it has asked for time, and `defer_seconds` is its last request, so
    that a deferral is not lost when progress follows at once, and not counted twice.
    """

    number: int
    status: Status = Status.ANSWERED
    fraction: float | None = None
    estimate: float | None = None
    deferrals: int = 0
    defer_seconds: float = 0.0
    why: str = ""
    saved: str = ""

    def sane(self) -> Answer:
        return replace(
            self,
            fraction=_between(self.fraction, 1.0),
            estimate=_between(self.estimate, SECONDS_MAX),
            defer_seconds=_between(self.defer_seconds, SECONDS_MAX) or 0.0,
            why=plain(self.why),
            saved=plain(self.saved),
        )


def plain(text: str, most: int = WHY_LENGTH_MAX) -> str:
    """Foreign text as one short line without terminal control characters."""
    line = " ".join(text[: most * 4].split())
    return "".join(each for each in line if each.isprintable())[:most]


def _between(value: float | None, most: float) -> float | None:
    """A number from 0 to `most`; None if it is not one."""
    if value is None or math.isnan(value) or value < 0:
        return None
    return min(value, most)
