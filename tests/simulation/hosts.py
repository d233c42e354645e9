"""Machines with clocks of their own, and everything that is random or reads a clock, replaced."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

from anyio import to_thread

from cede.agent import detect
from cede.server import clock, ids, tokens
from cede.server.api import context, limits

# Labels for people; nothing may depend on them (S27), so they jump.
_EPOCH = datetime(2030, 1, 1, tzinfo=UTC)


@dataclass(eq=False)
class Host:
    """One machine. Its clock runs a little fast or slow, and begins anywhere."""

    name: str
    time: Callable[[], float]
    rate: float = 1.0
    offset: float = 0.0
    boot: int = 1
    jump: float = 0.0  # of the wall clock
    unreachable: set[str] = field(default_factory=set)  # hosts that a partition is between

    def seconds(self) -> float:
        return self.time() * self.rate + self.offset

    @property
    def boot_id(self) -> str:
        return f"{self.name}-{self.boot}"


HERE: ContextVar[Host] = ContextVar("HERE")


def _wall(after: timedelta = timedelta()) -> str:
    host = HERE.get()
    then = _EPOCH + timedelta(seconds=host.time() + host.jump) + after
    return then.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _wall_milliseconds() -> int:
    return int((_EPOCH.timestamp() + HERE.get().time() + HERE.get().jump) * 1000)


async def _at_once(function: Callable[..., Any], *args: Any, **_: Any) -> Any:
    return function(*args)


class _Secrets:
    def __init__(self, dice: random.Random) -> None:
        self.randbits = dice.getrandbits


@contextmanager
def virtual(dice: random.Random) -> Iterator[None]:
    """Everything between here and the end is a matter of the seed alone."""
    replaced = [
        mock.patch.object(clock, "boottime", lambda: int(HERE.get().seconds() * 1000)),
        mock.patch.object(clock, "boot_id", lambda: HERE.get().boot_id),
        mock.patch.object(clock, "monotonic", lambda: HERE.get().seconds()),
        mock.patch.object(clock, "wall", _wall),
        mock.patch.object(clock, "wall_milliseconds", _wall_milliseconds),
        mock.patch.object(detect, "boot_id", lambda: HERE.get().boot_id),
        mock.patch.object(ids, "_last", 0),
        mock.patch.object(ids, "_random_tails", (dice.getrandbits(62) for _ in itertools.count())),
        mock.patch.object(tokens, "secrets", _Secrets(dice)),
        mock.patch.object(to_thread, "run_sync", _at_once),
        # What a call costs is measured in processor time, which differs from run to run.
        mock.patch.object(limits, "thread_time", lambda: 0.0),
        mock.patch.object(context, "thread_time", lambda: 0.0),
    ]
    for each in replaced:
        each.start()
    try:
        yield
    finally:
        for each in reversed(replaced):
            each.stop()
