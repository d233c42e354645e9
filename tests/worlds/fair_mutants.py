"""Engines that share fairly, with one bug each, to show that the search finds such bugs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from cede.engine import fairness, families, patience, preempt, victims
from cede.engine.books import Books
from cede.engine.fairness import fair_settings
from cede.engine.lane import LaneKey
from cede.engine.patience import Taker
from cede.engine.share import Holding
from cede.engine.standing import Standing
from cede.engine.state import State
from cede.model.amounts import add_to
from cede.model.request import Request
from cede.model.settings import Patience

from .mutants import no_earmark, two_orders

Mutant = Callable[[], AbstractContextManager[None]]


@contextmanager
def nobody_starves() -> Iterator[None]:
    """Whoever is below its share waits for ever."""
    with patch.object(preempt, "may_take", lambda *_: False):
        yield


@contextmanager
def everybody_starves() -> Iterator[None]:
    """A waiter takes as soon as it cannot be granted."""
    with patch.object(preempt, "may_take", lambda *_: True):
        yield


@contextmanager
def never_has_enough() -> Iterator[None]:
    """Who starved takes on until shares are computed again, whatever it was given meanwhile."""
    with patch.object(fairness, "_still_below", lambda *_: True):
        yield


@contextmanager
def spares_nobody() -> Iterator[None]:
    """What is within a share is taken without starving aggressively."""
    with patch.object(patience, "_aggressive", lambda *_: True):
        yield


@contextmanager
def holder_is_not_asked() -> Iterator[None]:
    """Whether what is within a share may be taken is for the pool to say, not for a policy."""

    def settings(books: Books, policy_id: str, request: Request | None = None) -> Any:
        return fair_settings(books.pool.settings)

    with patch.object(patience, "settings_for", settings):
        yield


@contextmanager
def takes_from_equals() -> Iterator[None]:
    """Inside one policy nobody looks at how safe a holding is."""

    def inside(books: Books, policy_id: str, band: int, bound: Standing) -> dict[str, int]:
        result: dict[str, int] = {}
        for (_, _, other, _), amounts in books.tiers.items():
            if other == policy_id:
                add_to(result, amounts)
        return result

    with (
        patch.object(Books, "takeable_inside", inside),
        patch.object(victims, "may_take_own", lambda *_: True),
    ):
        yield


@contextmanager
def gives_nothing_inside() -> Iterator[None]:
    """Inside one policy nobody takes, however little of its share a request has."""
    with patch.object(victims, "may_take_own", lambda *_: False):
        yield


@contextmanager
def groups_alone() -> Iterator[None]:
    """The literal text of document 003: the holder's group in its own request decides, and whose
    policy it is does not.
    """

    def legal(
        state: State, books: Books, taker: Taker, keys: Iterable[str]
    ) -> Iterator[tuple[int, Holding]]:
        places = {each for key in keys for each in books.takeable.get(key, ())}
        found = [books.holdings[place[3]] for place in places]
        for holding in sorted(found, key=lambda each: (each.band, -each.index)):
            mine = (taker.request.part_of or taker.request.id) == holding.family
            if mine or not patience.is_open(state, books, holding):
                continue
            if holding.band == 0 or (
                holding.band == 1 and patience._aggressive(state, books, taker, holding)
            ):
                yield books.rights(holding.id), holding

    def below(books: Books, bound: Standing, within: str | None = None) -> dict[str, int]:
        result: dict[str, int] = {}
        for (_, _, policy_id, _), amounts in books.tiers.items():
            if within is None or within in books.chains[policy_id]:
                add_to(result, amounts)
        return result

    with (
        patch.object(victims, "legal_for", legal),
        patch.object(Books, "takeable_below", below),
        patch.object(Books, "takeable_inside", lambda *_: {}),
    ):
        yield


@contextmanager
def nobody_is_safe() -> Iterator[None]:
    """What an owner may use without fear is taken like the rest."""
    with patch.object(families, "_protected", lambda held, settings: [False] * len(held)):
        yield


@contextmanager
def family_limit_ignored() -> Iterator[None]:
    """A family holds more than it may."""
    real = Books.lane_of

    def lane_of(books: Books, policy_id: str, request: Request) -> LaneKey:
        return real(books, policy_id, request)._replace(limit=())

    with patch.object(Books, "lane_of", lane_of):
        yield


@contextmanager
def own_settings_ignored() -> Iterator[None]:
    """Policies inherit nothing: they starve as their pool says."""
    real = fairness.inherit  # type: ignore[attr-defined]

    def inherit(above: Any, own: Any, kind: Any) -> Any:
        return real(above, {}, kind)

    with patch.object(fairness, "inherit", inherit):
        yield


@contextmanager
def no_pause() -> Iterator[None]:
    """A node takes again and again, as fast as it can."""
    with patch.object(patience, "is_open", lambda *_: True):
        yield


@contextmanager
def takes_unheard() -> Iterator[None]:
    """A node takes again after its back-off, whether it was heard of or not."""

    def is_open(state: State, books: Books, holding: Holding) -> bool:
        backoff = books.pool.settings.preemptive_scheduling_backoff
        lasts = [state.staged.get(node_id) for node_id, _ in holding.footprint]
        return all(last is None or state.now >= last + backoff for last in lasts)

    with patch.object(patience, "is_open", is_open):
        yield


@contextmanager
def takes_too_soon() -> Iterator[None]:
    """A node takes again at its next heartbeat, without a pause."""

    def is_open(state: State, books: Books, holding: Holding) -> bool:
        if books.pool.settings.patience is Patience.NONE:
            return True
        lasts = [(each, state.staged.get(each)) for each, _ in holding.footprint]
        return all(last is None or state.beats[each] > last for each, last in lasts)

    with patch.object(patience, "is_open", is_open):
        yield


@contextmanager
def takes_once() -> Iterator[None]:
    """A node that took once never takes again."""

    def is_open(state: State, books: Books, holding: Holding) -> bool:
        return not any(node_id in state.staged for node_id, _ in holding.footprint)

    with patch.object(patience, "is_open", is_open):
        yield


# With a scene, or the number of a drawn world, in which it shows.
FAIRLY: dict[str, tuple[Mutant, str | int]] = {
    "no earmark": (no_earmark, 3_000_000_018),
    "two orders": (two_orders, 3_000_000_000),
    "nobody starves": (nobody_starves, "one node"),
    "everybody starves": (everybody_starves, "one node"),
    "never has enough": (never_has_enough, "half is enough"),
    "own settings ignored": (own_settings_ignored, "half is enough"),
    "spares nobody": (spares_nobody, "in pieces"),
    "the holder is not asked": (holder_is_not_asked, "in pieces, and the holder says no"),
    "takes from equals": (takes_from_equals, "inside"),
    "gives nothing inside": (gives_nothing_inside, "inside"),
    "groups alone": (groups_alone, "turns"),
    "nobody is safe": (nobody_is_safe, "without fear"),
    "family limit ignored": (family_limit_ignored, "a bounded family"),
    "no pause": (no_pause, "one node"),
    "takes unheard": (takes_unheard, "one node without back-off"),
    "takes too soon": (takes_too_soon, "one node with a long back-off"),
    "takes once": (takes_once, "one node"),
}
