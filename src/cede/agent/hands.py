"""The interface that carries out a machine's orders: supervisors here, or the jobs of a cluster.

Every implementation passes `tests/bridge/test_contract.py`. Every call returns soon; its result is
an event of `poll`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from cede.agent import wire
from cede.agent.values import Ended, Event, Found, Key, Order, Report


@dataclass(frozen=True, slots=True)
class Swept:
    """The attempts that a sweep ended, and by name those that it could not kill, with the
    reason."""

    reports: list[Report] = field(default_factory=list)
    survivors: dict[str, str] = field(default_factory=dict)


class Hands(Protocol):
    # After a restart

    def adopt(self, orders: Collection[Order]) -> Mapping[Key, Found | Ended]:
        """Take over the orders of the journal; return the state of each. Living attempts are
        held from now on."""

    def sweep_unexplained(self, known: Collection[Key]) -> Swept:
        """S15: end what no journal entry explains."""

    # Instructions of the machine

    def look(self, order: Order) -> None:
        """Verify the checkpoints that an attempt could start from; `Looked` follows."""

    def launch(self, order: Order, deadline: float | None, done: Callable[[], None]) -> None:
        """Begin to start an attempt, and call `done` when `poll` has the result."""

    def set_deadline(self, key: Key, deadline: float | None) -> None: ...

    def stop(self, key: Key, grace: float) -> None: ...

    def hint(self, key: Key, number: int, seconds_left: float, *, goes_on: bool) -> None: ...

    def agree(self, key: Key, number: int, step: int) -> None: ...

    def go_on(self, key: Key) -> None: ...

    def keep_checkpoint(self, order: Order, checkpoint: str) -> None: ...

    def look_for_old(self, ask: Callable[[list[str]], None]) -> None: ...

    def remove_checkpoints(self, requests: Collection[str]) -> None: ...

    def forget(self, key: Key) -> None:
        """Remove an attempt's output, which will not be asked for any more."""

    def fence(self, key: Key) -> Ended | None:
        """Make certain that nothing of an attempt can start any more; what did is killed."""

    # Events

    def poll(self, now: float) -> Iterable[Event]: ...

    def answer(self, question: wire.LogQuestion) -> wire.Json:
        """Return a piece of an attempt's output."""

    # Further facts for the server

    @property
    def has_changed(self) -> bool:
        """Whether the facts of the registration have changed; True once for each change."""

    @property
    def has_news(self) -> bool:
        """Whether `news` has something that the server has not been told."""

    def news(self) -> wire.Json:
        """Return the additional facts that the next call reports."""

    def told(self, said: wire.Json) -> None:
        """Note that the server has stored the facts of a call."""

    def close(self) -> None:
        """Let go of all attempts, which go on."""
