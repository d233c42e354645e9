"""Engines that share fairly, with one bug each, to show that the search finds such bugs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from cede.engine.fair.balance import Balance
from cede.engine.fair.status import Starving
from cede.engine.ledger import task_groups
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.ledger.queue import QueueKey
from cede.engine.rights.cover import Holding
from cede.engine.rights.standing import Standing
from cede.engine.shares import publish as fairness
from cede.engine.shares.publish import fair_settings
from cede.engine.state.state import State
from cede.engine.steps import preempt
from cede.engine.victims import choose as victims
from cede.engine.victims import goals
from cede.engine.victims import protection as patience
from cede.engine.victims.protection import Preemptor
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
    with (
        patch.object(preempt, "may_take", lambda *_: True),
        patch.object(preempt, "hungriest", lambda *_: Starving.STARVING),
    ):
        yield


@contextmanager
def never_has_enough() -> Iterator[None]:
    """Who starved takes on until shares are computed again, whatever it was given meanwhile."""
    with patch.object(fairness, "_still_below", lambda *_: True):
        yield


@contextmanager
def spares_nobody() -> Iterator[None]:
    """What is within a share is taken without starving aggressively."""
    with (
        patch.object(patience, "_aggressive", lambda *_: True),
        patch.object(preempt, "spares_within_share", lambda *_: False),
        patch.object(victims, "spares_within_share", lambda *_: False),
    ):
        yield


@contextmanager
def holder_is_not_asked() -> Iterator[None]:
    """Whether what is within a share may be taken is for the pool to say, not for a policy."""

    def settings(ledger: PoolLedger, policy_id: str, request: Request | None = None) -> Any:
        return fair_settings(ledger.pool.settings)

    with patch.object(patience, "settings_for", settings):
        yield


@contextmanager
def takes_from_equals() -> Iterator[None]:
    """Inside one policy nobody looks at how safe a holding is."""

    def inside(ledger: PoolLedger, policy_id: str, band: int, bound: Standing) -> dict[str, int]:
        result: dict[str, int] = {}
        for (_, _, other, _), amounts in ledger.tiers.items():
            if other == policy_id:
                add_to(result, amounts)
        return result

    with (
        patch.object(PoolLedger, "takeable_inside", inside),
        patch.object(victims, "may_take_own", lambda *_: True),
    ):
        yield


@contextmanager
def gives_nothing_inside() -> Iterator[None]:
    """Inside one policy nobody takes, however little of its share a request has."""
    with patch.object(victims, "may_take_own", lambda *_: False):
        yield


@contextmanager
def takes_unfairly() -> Iterator[None]:
    """Groups alone decide between policies, whoever is better off afterwards."""
    with (
        patch.object(goals.Fairness, "met", True),
        patch.object(goals.Fairness, "bars", lambda *_: False),
    ):
        yield


@contextmanager
def groups_alone() -> Iterator[None]:
    """The literal text of document 003: the holder's group in its own request decides, and whose
    policy it is does not.
    """

    def legal(
        state: State, ledger: PoolLedger, preemptor: Preemptor, keys: Iterable[str]
    ) -> Iterator[tuple[int, Holding]]:
        places = {each for key in keys for each in ledger.takeable.get(key, ())}
        found = [ledger.holdings[place[3]] for place in places]
        for holding in sorted(found, key=lambda each: (each.band, -each.index)):
            mine = (preemptor.request.part_of or preemptor.request.id) == holding.task_group
            if mine or not patience.is_open(state, ledger, holding):
                continue
            if holding.band == 0 or (
                holding.band == 1 and patience._aggressive(state, ledger, preemptor, holding)
            ):
                yield ledger.rights(holding.id), holding

    def below(
        ledger: PoolLedger, bound: Standing, within: str | None = None, **_: int | None
    ) -> dict[str, int]:
        result: dict[str, int] = {}
        for (_, _, policy_id, _), amounts in ledger.tiers.items():
            if within is None or within in ledger.chains[policy_id]:
                add_to(result, amounts)
        return result

    with (
        patch.object(victims, "legal_for", legal),
        patch.object(PoolLedger, "takeable_below", below),
        patch.object(PoolLedger, "takeable_inside", lambda *_: {}),
        takes_unfairly(),
    ):
        yield


@contextmanager
def nobody_is_safe() -> Iterator[None]:
    """What an owner may use without fear is taken like the rest."""
    with patch.object(task_groups, "_protected", lambda held, settings: [False] * len(held)):
        yield


@contextmanager
def task_group_limit_ignored() -> Iterator[None]:
    """A task group holds more than it may."""
    real = PoolLedger.queue_of

    def queue_of(ledger: PoolLedger, policy_id: str, request: Request) -> QueueKey:
        return real(ledger, policy_id, request)._replace(limit=())

    with patch.object(PoolLedger, "queue_of", queue_of):
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

    def is_open(state: State, ledger: PoolLedger, holding: Holding) -> bool:
        backoff = ledger.pool.settings.preemptive_scheduling_backoff
        lasts = [state.staged.get(node_id) for node_id, _ in holding.footprint]
        return all(last is None or state.now >= last + backoff for last in lasts)

    with patch.object(patience, "is_open", is_open):
        yield


@contextmanager
def takes_too_soon() -> Iterator[None]:
    """A node takes again at its next heartbeat, without a pause."""

    def is_open(state: State, ledger: PoolLedger, holding: Holding) -> bool:
        if ledger.pool.settings.patience is Patience.NONE:
            return True
        lasts = [(each, state.staged.get(each)) for each, _ in holding.footprint]
        return all(last is None or state.beats[each] > last for each, last in lasts)

    with patch.object(patience, "is_open", is_open):
        yield


@contextmanager
def takes_once() -> Iterator[None]:
    """A node that took once never takes again."""

    def is_open(state: State, ledger: PoolLedger, holding: Holding) -> bool:
        return not any(node_id in state.staged for node_id, _ in holding.footprint)

    with patch.object(patience, "is_open", is_open):
        yield


@contextmanager
def takes_no_more() -> Iterator[None]:
    """No taking from another policy is ever found to be fair."""
    with patch.object(Balance, "rises", lambda *_: False):
        yield


@contextmanager
def entitled_by_use() -> Iterator[None]:
    """What is due follows what is held, and so it moves with every taking."""

    def entitled(state: State, ledger: PoolLedger) -> Any:
        solver, capacity = state.solvers[ledger.pool.id].solver, ledger.pool.capacity
        return {
            each: {
                key: part * capacity[key]
                for key, part in zip(solver.keys, solver.share(each).total, strict=True)
            }
            for each in ledger.policies
        }

    with patch.object(fairness, "_entitled", entitled):
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
    "family limit ignored": (task_group_limit_ignored, "a bounded family"),
    "no pause": (no_pause, "one node"),
    "takes unheard": (takes_unheard, "one node without back-off"),
    "takes too soon": (takes_too_soon, "one node with a long back-off"),
    "takes once": (takes_once, "one node"),
    "takes unfairly": (takes_unfairly, "no fairer"),
    "takes no more": (takes_no_more, "one node"),
    "entitled by use": (entitled_by_use, 3_000_000_173),
}
