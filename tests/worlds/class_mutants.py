"""Engines with one bug each, where classes, homes and prices decide."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from unittest.mock import patch

from cede.engine.admin import claims
from cede.engine.audit import audit
from cede.engine.ledger import ledger
from cede.engine.ledger.exchange import Part
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.nodes.homes import Homes
from cede.engine.rights.cover import Holding
from cede.engine.rights.price import ShieldSettings
from cede.engine.rights.standing import Standing, standing
from cede.engine.state.state import State
from cede.engine.steps import preempt
from cede.engine.victims import pricing, subsets
from cede.engine.victims import protection as patience
from cede.engine.victims.cheapest import VictimSettings
from cede.engine.victims.goals import Goal
from cede.model.allocation import Allocation
from cede.model.policy import Policy
from cede.model.pool import Pool
from cede.model.request import Request
from cede.model.settings import Precedence
from cede.model.shape import Footprint

from .classes import EXCHANGE, RIGHTS_ALONE
from .world import World

Mutant = Callable[[], AbstractContextManager[None]]


@contextmanager
def sensitive_ignored() -> Iterator[None]:
    """Sensitive work is stopped like any other of its class."""

    def shield(state: State, pool: PoolLedger, holding: Holding) -> pricing.Shield | None:
        found = real(state, pool, holding)
        return None if found is pricing.Shield.SENSITIVE else found

    def rank(mine: PoolLedger, policy_id: str, request: Request) -> int:
        return request.terms.preemption_class

    real = pricing.shield
    with patch.object(patience, "shield", shield), patch.object(PoolLedger, "rank", rank):
        yield


@contextmanager
def max_victims_ignored() -> Iterator[None]:
    def search(mine: PoolLedger, count: int) -> VictimSettings:
        return replace(pricing.search(mine, count), max_victims=count)

    with patch("cede.engine.victims.choose.search", search):
        yield


@contextmanager
def equals_take() -> Iterator[None]:
    """Of an equal class one takes without being at home."""

    def lower(rights: int, rank: int, precedence: Precedence) -> Standing:
        first, second = standing(rights, rank, precedence)
        return (first, second - 1)

    def below(
        mine: PoolLedger, bound: Standing, within: str | None = None, **more: int | None
    ) -> dict[str, int]:
        return real(mine, (bound[0], bound[1] + 1), within, **more)

    real = PoolLedger.takeable_below
    with (
        patch("cede.engine.victims.choose.standing", lower),
        patch.object(PoolLedger, "takeable_below", below),
    ):
        yield


@contextmanager
def near_completion_ignored() -> Iterator[None]:
    with patch.object(pricing, "ShieldSettings", lambda _, unsaved: ShieldSettings(0, unsaved)):
        yield


@contextmanager
def home_before_class() -> Iterator[None]:
    """A higher class yields to who is at home, although classes come first."""

    def home_first(rights: int, rank: int, precedence: Precedence) -> Standing:
        if precedence is Precedence.RANK_FIRST:
            precedence = Precedence.HOME_FIRST
        return standing(rights, rank, precedence)

    with (
        patch.object(ledger, "standing", home_first),
        patch("cede.engine.victims.choose.standing", home_first),
    ):
        yield


@contextmanager
def at_home_with_one_node() -> Iterator[None]:
    """A gang is at home as soon as one of its nodes is."""

    def at_home(homes: Homes, policy_id: str, footprint: Footprint) -> bool:
        return any(homes.owner.get(node_id) == policy_id for node_id, _ in footprint)

    def rights(alive: audit.Alive, pool: Pool) -> dict[str, int]:
        mine = alive.state.ledgers[pool.id]
        return {each: mine.rights(each) for each in mine.holdings}

    # The recount is told to agree, so that only what this leads to can be seen.
    with patch.object(Homes, "at_home", at_home), patch.object(audit, "rights", rights):
        yield


@contextmanager
def lending_without_limit() -> Iterator[None]:
    real = Homes.__init__

    def lends_all(homes: Homes, policies: dict[str, Policy], *inventory: object) -> None:
        lenders = {pid: replace(each, max_borrow_pct=1.0) for pid, each in policies.items()}
        real(homes, lenders, *inventory)  # type: ignore[arg-type]

    with patch.object(Homes, "__init__", lends_all):
        yield


@contextmanager
def exchanges_unseen() -> Iterator[None]:
    """Rights are judged with everybody there: a full share has no room for a higher class."""

    def nothing(*_: object) -> Iterator[tuple[int, Part]]:
        return iter(())

    with patch.object(preempt, "exchanges", nothing):
        yield


@contextmanager
def stopped_for_rights() -> Iterator[None]:
    """Somebody is stopped so that a waiter is in share, and not for room."""

    def always(goals: Sequence[Goal], away: Iterable[Holding]) -> bool:
        return True

    with patch.object(subsets, "all_needed", always):
        yield


@contextmanager
def place_kept_until_left() -> Iterator[None]:
    """Who is stopped in exchange fills the share until it has left, and the promise is borrowed."""
    with patch.object(Allocation, "yields", property(lambda _: False)):
        yield


@contextmanager
def claims_stop_anybody() -> Iterator[None]:
    """A claim stops whoever is there, sensitive work too."""
    with patch.object(claims, "_held_fast", lambda *_: None):
        yield


@contextmanager
def claims_ignored() -> Iterator[None]:
    """A claimed node takes everybody's work."""
    real = Homes._open_to
    with patch.object(Homes, "_open_to", lambda homes, claimant: real(homes, None)):
        yield


# With a world in which each shows, and what is then said of it.
BY_CLASS: dict[str, tuple[Mutant, int | World, str]] = {
    "sensitive work is stopped": (sensitive_ignored, 5_000_000_033, "S6 .* is sensitive"),
    "more victims than there may be": (
        max_victims_ignored,
        5_000_000_001,
        "2 victims of at most 1",
    ),
    "equals take from each other": (equals_take, 5_000_000_003, "S7 r0 .* takes r3"),
    "work that is nearly done is stopped": (
        near_completion_ignored,
        5_000_000_073,
        "S6 .* is nearly done",
    ),
    "a higher class yields to home": (home_before_class, 5_000_000_095, "S7 r3 .* takes r0"),
    "a gang is at home with one node": (at_home_with_one_node, 5_000_000_013, "L3 r1 could take"),
    "a full share has no room for a higher class": (
        exchanges_unseen,
        6_000_000_285,
        "L3 r4 could take",
    ),
    "somebody is stopped for rights alone": (
        stopped_for_rights,
        RIGHTS_ALONE,
        "S8 .* was not needed for r2",
    ),
    "a place in the share is kept until it is left": (
        place_kept_until_left,
        EXCHANGE,
        "L3 r2 could take",
    ),
    "a claim stops sensitive work": (
        claims_stop_anybody,
        6_000_000_049,
        "r1.1.* are stopped for a claim",
    ),
    "a claimed node takes everybody's work": (claims_ignored, 5_000_000_019, "S29 .* r2 has it"),
    "everything is lent": (lending_without_limit, 5_000_000_000, "red lends .*, at most 0"),
}
