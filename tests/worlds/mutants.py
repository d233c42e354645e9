"""Engines with one bug each, to show that the search finds such bugs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from cede.engine import decide
from cede.engine.ledger import account
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.nodes.inventory import NodeInventory
from cede.engine.rights.cover import Holding
from cede.engine.rights.standing import BORROWED, IN_SHARE, Standing
from cede.engine.state.state import State
from cede.engine.steps import preempt, sparing
from cede.engine.victims import amounts as by_amounts
from cede.engine.victims import choose as victims
from cede.engine.victims.protection import Preemptor
from cede.model.amounts import Amounts, add_to
from cede.model.plan import Plan


@contextmanager
def no_earmark() -> Iterator[None]:
    """Victims are stopped, and what they free is promised to nobody."""

    real = preempt.preempt_all

    def forgets(state: State, plan: Plan, pool_ids: list[str]) -> None:
        real(state, plan, pool_ids)
        for owner in [each for each in state.waiting() if each.earmark is not None]:
            state.put(replace(owner, earmark=None))
        state.unearmarked.clear()
        plan.again = False

    with (
        patch.object(decide, "preempt_all", forgets),
        patch.object(decide, "spare", lambda state, plan: False),
    ):
        yield


@contextmanager
def two_orders() -> Iterator[None]:
    """The literal rules: reclaim ignores priority, and priority ignores reservations."""

    def literal(rank: int, level: int, mine: int, rights: int) -> bool:
        return rank < mine or (rights == IN_SHARE and level == BORROWED)

    def legal(
        state: State, ledger: PoolLedger, preemptor: Preemptor, short: Amounts
    ) -> Iterator[tuple[int, Holding]]:
        for place in sorted({each for key in short for each in ledger.takeable.get(key, ())}):
            holding = ledger.holdings[place[3]]
            other = holding.policy_id != preemptor.policy_id
            if other and literal(place[1], place[0], preemptor.rank, preemptor.rights):
                yield place[0], holding

    def below(
        ledger: PoolLedger, bound: Standing, within: str | None = None, **_: int | None
    ) -> dict[str, int]:
        rights, mine = bound
        result: dict[str, int] = {}
        for (level, rank, _, _), amounts in ledger.tiers.items():
            if literal(rank, level, mine, rights):
                add_to(result, amounts)
        return result

    with (
        patch.object(victims, "legal_for", legal),
        patch.object(PoolLedger, "takeable_below", below),
    ):
        yield


@contextmanager
def too_many_victims() -> Iterator[None]:
    """Nobody is given back."""
    with patch.object(victims, "_give_back", lambda chosen, goals: chosen):
        yield


@contextmanager
def capacity_forgets_leaving() -> Iterator[None]:
    """Capacity is granted again before its release is committed."""
    real = State._hold

    def hold(state: State, allocation: object) -> None:
        real(state, allocation)  # type: ignore[arg-type]
        ledger = state.ledgers[allocation.pool_id]  # type: ignore[attr-defined]
        if allocation.leaving:  # type: ignore[attr-defined]
            for key, amount in allocation.amounts.items():  # type: ignore[attr-defined]
                ledger.live[key] -= amount

    with patch.object(State, "_hold", hold):
        yield


@contextmanager
def promises_without_nodes() -> Iterator[None]:
    """An earmark on nodes is counted for its pool, but keeps nobody off its nodes."""
    real = NodeInventory.hold

    def hold(inventory: NodeInventory, holding: Holding) -> None:
        real(inventory, replace(holding, each={}) if holding.earmark else holding)

    with patch.object(NodeInventory, "hold", hold):
        yield


@contextmanager
def out_of_service_forgotten() -> Iterator[None]:
    """A promise outlives the node that it is on."""
    with patch.object(NodeInventory, "_is_broken", lambda inventory, spot, promise: False):
        yield


@contextmanager
def nobody_is_spared() -> Iterator[None]:
    """Victims stop although there is room for them."""
    with patch.object(decide, "spare", lambda state, plan: False):
        yield


@contextmanager
def nothing_is_rehearsed() -> Iterator[None]:
    """Passes stand as they were first decided. A rehearsal mends what other steps get wrong, so
    their planted bugs are looked for without it.
    """
    with patch.object(decide, "regrets", lambda *_: {}):
        yield


@contextmanager
def grants_are_stopped() -> Iterator[None]:
    """What a pass has granted it stops like anything else."""
    real = preempt.Taking._preempt

    def forgets(taking: preempt.Taking, *taken: Any) -> bool:
        taking.plan.granted.clear()
        return real(taking, *taken)

    with patch.object(preempt.Taking, "_preempt", forgets):
        yield


@contextmanager
def nothing_is_taken_back() -> Iterator[None]:
    """Every decision of a pass stands, whatever it decides after it."""
    with nobody_is_spared(), grants_are_stopped(), nothing_is_rehearsed():
        yield


@contextmanager
def victims_do_not_wait() -> Iterator[None]:
    """What victims free is promised to somebody whom they outrank."""
    with patch.object(sparing._Sparing, "_below", lambda *_: []):
        yield


@contextmanager
def room_from_outside_unseen() -> Iterator[None]:
    """Victims are not looked at when somebody else ends: they come back, and cut promises."""
    with patch.object(State, "_note_room", lambda *_: None):
        yield


@contextmanager
def betters_are_stopped() -> Iterator[None]:
    """In a victim's stead whoever stands above it is stopped."""
    real = sparing.levels

    def raised(*asked: Any) -> Iterator[Any]:
        for _, share in real(*asked):
            yield IN_SHARE, share

    def reach(
        ledger: PoolLedger, bound: Standing, within: str | None = None, **more: int | None
    ) -> dict[str, int]:
        return takeable(ledger, (99, 99), within, **more)

    takeable = PoolLedger.takeable_below
    with (
        patch.object(sparing, "levels", raised),
        patch.object(PoolLedger, "takeable_below", reach),
    ):
        yield


@contextmanager
def leaving_counts() -> Iterator[None]:
    """What a policy has on its way out counts as if it stayed."""

    def beyond(ledger: PoolLedger, policy_id: str) -> dict[str, int]:
        used, reserved = ledger.used[policy_id], ledger.policies[policy_id].reserved
        return {key: max(used.get(key, 0) - reserved.get(key, 0), 0) for key in ledger.counting}

    with patch.object(by_amounts, "beyond_reserve", beyond):
        yield


@contextmanager
def departments_forgotten() -> Iterator[None]:
    """Only the victim's own policy keeps its reserve, not its department."""
    with patch.object(by_amounts.Kept, "_losers", lambda kept, policy_id: (policy_id,)):
        yield


@contextmanager
def what_does_not_count_is_taken() -> Iterator[None]:
    """By amounts also work is stopped that holds nothing of what is reserved."""

    def is_beyond(
        ledger: PoolLedger, preemptor: Preemptor, holding: Holding, kept: by_amounts.Kept
    ) -> bool:
        inside = preemptor.policy_id in ledger.chains[holding.policy_id]
        return not inside and not kept.bars(holding)

    with patch.object(by_amounts, "_is_beyond", is_beyond):
        yield


@contextmanager
def nobody_takes_by_amounts() -> Iterator[None]:
    """An owner waits although its reserve is held beyond others' reserves."""
    with patch.object(preempt, "inside_reserve", lambda *_: False):
        yield


@contextmanager
def room_of_victims_is_granted() -> Iterator[None]:
    """Others are granted what victims will want that come back above a promise."""
    with patch.object(account, "kept_for_returning", lambda *_: []):
        yield


# Each with a world in which it shows. Should it not do so there any more, the next ones are tried.
ON_NODES = {
    "no earmark": (no_earmark, 28),
    "two orders": (two_orders, 0),
    "too many victims": (too_many_victims, 0),
    "promises without nodes": (promises_without_nodes, 0),
    "promises on nodes out of service": (out_of_service_forgotten, 0),
}

# The same in worlds whose reserves are in pieces.
IN_PIECES = {
    "who is on its way out counts as staying": (leaving_counts, 7_000_000_009),
    "departments are forgotten": (departments_forgotten, 7_000_000_101),
    "what does not count is taken": (what_does_not_count_is_taken, 2_000_002_126),
    "nobody takes by amounts": (nobody_takes_by_amounts, 7_000_000_000),
}

MUTANTS = {
    "no earmark": (no_earmark, 59),
    "nobody is spared": (nobody_is_spared, 0),
    "what is granted is stopped": (grants_are_stopped, 0),
    "victims do not wait": (victims_do_not_wait, 0),
    "room from outside is not seen": (room_from_outside_unseen, 11),
    "betters are stopped in a victim's stead": (betters_are_stopped, 0),
    "the room of victims is granted": (room_of_victims_is_granted, 83_187),
    "two orders": (two_orders, 11),
    "too many victims": (too_many_victims, 33),
    "capacity granted before its release": (capacity_forgets_leaving, 2),
}
