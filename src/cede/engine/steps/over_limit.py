"""Stops work above a limit, where the pool's setting does not let it end by itself.

Nothing is granted above a limit, so only an edit can put work there: a lower limit of a policy or
of a request, a smaller pool, a node that comes back with less. After a grace the fewest holders are
stopped that end the overrun, of equally small sets the newest, and never a protected holder: an
overrun that only protected holders could end stays, and is reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cede.engine.ledger.ledger import PoolLedger
from cede.engine.lifecycle.stopping import request_stop
from cede.engine.nodes.inventory import NodeInventory
from cede.engine.rights.cover import Holding
from cede.engine.state.state import State
from cede.engine.victims.candidates import Candidate
from cede.engine.victims.cheapest import VictimSettings, cheapest
from cede.engine.victims.goals import Goal, Shortage
from cede.model.amounts import UNBOUNDED_WHEN_ABSENT, Amounts
from cede.model.node import Node
from cede.model.plan import Plan, Preemption
from cede.model.reason import Code, Reason
from cede.model.settings import OverLimit


@dataclass(frozen=True, slots=True)
class Overrun:
    """The amounts held above one bound, and their holders. `where` names the bound for people."""

    where: str
    over: Amounts
    held: Amounts
    bound: Amounts
    holders: tuple[Holding, ...]  # with their amounts under that bound

    @property
    def key(self) -> str:
        return max(self.over, key=lambda key: (self.over[key], key))


def stop_overruns(state: State, plan: Plan, pool_ids: list[str]) -> None:
    """Stop work that has been above a limit for longer than the grace, in pools that say so."""
    for pool_id in pool_ids:
        ledger = state.ledgers[pool_id]
        if state.unchecked[pool_id] and ledger.pool.settings.over_limit is OverLimit.PREEMPT:
            state.unchecked[pool_id] = _stop_in(state, plan, ledger)


def _stop_in(state: State, plan: Plan, ledger: PoolLedger) -> bool:
    """Note and stop the overruns of one pool; return whether there are any."""
    grace = ledger.pool.settings.over_limit_grace
    found = {each.where: each for each in overruns(state, ledger)}
    known = state.over.get(ledger.pool.id, {})
    state.over[ledger.pool.id] = {where: known.get(where, state.now) for where in found}
    for where, since in state.over[ledger.pool.id].items():
        if where not in known:
            over = dict(found[where].over)
            state.emit("over_limit", pool_id=ledger.pool.id, where=where, over=over)
        if state.now < since + grace:
            state.wake_by(ledger.pool.id, since + grace)
            continue
        # Victims of a narrower limit may have ended this overrun as well.
        still = (each for each in overruns(state, ledger) if each.where == where)
        if (overrun := next(still, None)) is not None:
            _stop(state, plan, ledger, overrun)
    return bool(found)


def overruns(state: State, ledger: PoolLedger) -> Iterator[Overrun]:
    """All overruns of a pool, without leaving holders: of requests, of nodes, of policies from the
    lowest up, of the whole pool.
    """
    staying = [h for h in ledger.holdings.values() if not h.leaving and not h.earmark]
    yield from _of_requests(state, staying)
    if ledger.inventory is not None:
        yield from _of_nodes(ledger.inventory)
    for policy in sorted(ledger.policies.values(), key=lambda each: -len(ledger.chains[each.id])):
        if policy.limit:
            below = [h for h in staying if policy.id in ledger.chains[h.policy_id]]
            yield from _over(f"policy {policy.name}", policy.limit, below)
    if ledger.inventory is None:
        yield from _over(f"pool {ledger.pool.name}", ledger.pool.capacity, staying)


def _of_requests(state: State, staying: list[Holding]) -> Iterator[Overrun]:
    task_groups: dict[str, list[Holding]] = {}
    for holding in staying:
        task_groups.setdefault(holding.task_group, []).append(holding)
    for task_group, mine in task_groups.items():
        request = state.requests[state.allocations[mine[0].id].request_id]
        yield from _over(f"request {task_group}", request.terms.limit, mine)


def _of_nodes(inventory: NodeInventory) -> Iterator[Overrun]:
    for spot in inventory.spots.values():
        here = [
            _there(holding, tasks)
            for holding, tasks in spot.holdings.values()
            if not holding.leaving and not holding.earmark
        ]
        yield from _over(f"node {spot.node.name}", _has(spot.node, here), here)


def _over(where: str, bound: Amounts, holders: list[Holding]) -> Iterator[Overrun]:
    held: dict[str, int] = {}
    for holding in holders:
        for key, amount in holding.amounts.items():
            held[key] = held.get(key, 0) + amount
    over = {key: held[key] - most for key, most in bound.items() if held.get(key, 0) > most}
    if over:
        yield Overrun(where, over, held, bound, tuple(holders))


def _has(node: Node, here: list[Holding]) -> Amounts:
    """The amounts of a node, with 0 of each held key that it no longer names; keys that are
    unbounded when absent are left out.
    """
    held = dict.fromkeys(key for each in here for key in each.amounts)
    gone = [key for key in held if key not in UNBOUNDED_WHEN_ABSENT]
    return {**dict.fromkeys(gone, 0), **node.amounts}


def _there(holding: Holding, tasks: int) -> Holding:
    """A holder with its amounts on one node."""
    return holding.counting({key: tasks * amount for key, amount in holding.each.items()})


def _stop(state: State, plan: Plan, ledger: PoolLedger, overrun: Overrun) -> None:
    goals: list[Goal] = [Shortage(dict(overrun.over))]
    able = [each for each in overrun.holders if each.takeable and not each.safe]
    candidates = [Candidate(each, 0, each.rank, 0) for each in able]
    choice = cheapest(candidates, goals, VictimSettings(max_victims=len(candidates)))
    if choice.victims is None:  # the rest is protected: the overrun is reduced as far as possible
        victims = [each for each in able if goals[0].wants(each)]
    else:
        victims = [each.holding for each in choice.victims]
    if not victims:
        return
    key = overrun.key
    numbers = {"key": key, "held": overrun.held[key], "bound": overrun.bound[key]}
    reason = Reason(Code.OVER_LIMIT, {"pool": ledger.pool.name, "where": overrun.where, **numbers})
    for victim in victims:
        request_stop(state, victim.id, reason, taken_for=None)
    ids = tuple(victim.id for victim in victims)
    plan.decisions.append(Preemption(None, ledger.pool.id, ids, reason, len(ids)))
    plan.again = True
