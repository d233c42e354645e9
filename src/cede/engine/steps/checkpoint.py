"""Asks running work to save itself when that is worth it; the work goes on.

Carries out on the state the decisions of the broker (`saving.judge`). Each holder is examined when
its own timer is due (`due.look_due`): not before its least interval is over, then from time to
time, because the demand of others and its borrowed part change without it. An ask changes only the
work that a stop would lose: it stops no holder, and ends after the checkpoint time-out without an
answer. A stop replaces it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cede.engine.ledger.ledger import PoolLedger
from cede.engine.rights.standing import IN_SHARE
from cede.engine.state.due import first_look, look_due, unsaved_since
from cede.engine.state.saving import BrokerSettings, Judgement, Pressure, Running, backlog, judge
from cede.engine.state.state import State
from cede.engine.state.timers import Key
from cede.model.allocation import Allocation
from cede.model.copying import replace
from cede.model.durations import seconds
from cede.model.lifecycle import AllocationState
from cede.model.plan import Plan
from cede.model.request import Request
from cede.model.settings import Settings
from cede.model.stopping import Ask
from cede.model.usage import GPU

# Answers to whether work should save itself now; OVERDUE: its longest interval is over.
NOT_YET, WORTH_IT, OVERDUE = "not_yet", "worth_it", "overdue"


@dataclass(frozen=True, slots=True)
class Around:
    """The pressure in a holder's pool: the number of waiters by rank, and the backlog."""

    waiting: Counter[int]
    backlog: float

    def above(self, rank: int) -> int:
        return sum(count for each, count in self.waiting.items() if each > rank)


def ask_to_save(state: State, plan: Plan, due: Iterable[Key]) -> None:
    """Examine the holders whose timers are due; the pressure in each pool is computed once."""
    around: dict[str, Around] = {}
    for kind, entity_id in due:
        allocation = state.allocations.get(entity_id) if kind == "allocation" else None
        if allocation is None or allocation.state is not AllocationState.RUNNING:
            continue
        if allocation.open_ask is not None:
            plan.changed |= _give_up(state, allocation, allocation.open_ask)
        elif _may_be_asked(state, allocation):
            pool = state.pools[allocation.pool_id]
            if pool.id not in around:
                around[pool.id] = look_around(state.ledgers[pool.id])
            answer = _ask_if_due(state, allocation, around[pool.id])
            plan.judged[pool.name, answer] += 1
            plan.changed |= answer is not NOT_YET


def _may_be_asked(state: State, allocation: Allocation) -> bool:
    """Whether a holder may be asked by now: its timer may have been due for another cause."""
    request = state.requests[allocation.request_id]
    first = first_look(allocation, request, state.pools[allocation.pool_id].settings)
    return first is not None and first <= state.now


def _give_up(state: State, allocation: Allocation, ask: Ask) -> bool:
    """End an ask whose time is over, and return whether it was; the work goes on."""
    if ask.until > state.now:
        return False
    _put(state, allocation, replace(ask, over=True))
    _tell(state, "checkpoint_unanswered", allocation, hint=ask.number)
    return True


def _ask_if_due(state: State, allocation: Allocation, around: Around) -> str:
    running, pressure, judged = judge_now(state, allocation, around)
    if not judged.is_due:
        return NOT_YET
    timeout = state.requests[allocation.request_id].stop_policy.timeout
    number = state.next_index()
    took = None if allocation.asked is None else allocation.asked.took
    _put(state, allocation, Ask(number, state.now, state.now + timeout, took=took))
    _tell(
        state,
        "checkpoint_asked",
        allocation,
        hint=number,
        cost=round(judged.cost, 3),
        value=round(judged.value, 3),
        unsaved=state.now - max(running.started_at or 0, running.last_checkpoint_at or 0),
        borrowed=running.borrowed,
        waiting_higher=pressure.waiting_higher,
        backlog=round(pressure.backlog, 3),
    )
    return WORTH_IT if judged.is_worth_it else OVERDUE


def _put(state: State, allocation: Allocation, ask: Ask) -> None:
    state.put(replace(allocation, asked=ask))
    # A client that holds it is told of changes of its request only.
    state.put(state.requests[allocation.request_id])


def judge_now(
    state: State, allocation: Allocation, around: Around
) -> tuple[Running, Pressure, Judgement]:
    ledger, request = state.ledgers[allocation.pool_id], state.requests[allocation.request_id]
    running = _running(state, ledger, allocation, request)
    rank = ledger.holdings[allocation.id].rank
    pressure = Pressure(waiting_higher=around.above(rank), backlog=around.backlog)
    return running, pressure, judge(running, pressure, broker_settings(ledger.pool.settings))


def _running(state: State, ledger: PoolLedger, allocation: Allocation, request: Request) -> Running:
    nodes = max(1, len(allocation.footprint))
    return Running(
        now=state.now,
        started_at=allocation.started_at,
        last_checkpoint_at=None if request.saved is None else request.saved.at,
        checkpoint=request.stop_policy.checkpoint,
        # The duration of the last save is the best estimate there is.
        estimate=None if allocation.asked is None else allocation.asked.took,
        nodes=nodes,
        gpus_per_node=allocation.amounts.get(GPU, 0) // nodes,
        preemption_class=request.terms.preemption_class,
        borrowed=ledger.rights(allocation.id) < IN_SHARE,
        sensitive=request.terms.sensitive,
    )


def look_around(ledger: PoolLedger) -> Around:
    """The waiters of a pool; a waiter with places in several pools counts in each."""
    waiting: Counter[int] = Counter()
    for key, queue in ledger.queues.items():
        waiting[key.rank] += len(queue)
    holders = len(ledger.holdings) - len(ledger.earmarks)
    return Around(waiting, backlog(waiting.total(), holders))


def broker_settings(settings: Settings) -> BrokerSettings:
    return BrokerSettings(
        interval_min=settings.checkpoint_interval_min,
        interval_max=settings.checkpoint_interval_max,
    )


def story(state: State, allocation: Allocation) -> dict[str, Any]:
    """The checkpoints of a holder for `why`: the last one, an open ask, the next time it is
    examined. Empty for work that is never asked.
    """
    request = state.requests[allocation.request_id]
    settings = state.pools[allocation.pool_id].settings
    ask = allocation.open_ask
    if ask is None and first_look(allocation, request, settings) is None:
        return {}
    look = look_due(allocation, request, settings, state.now)
    _, _, judged = judge_now(state, allocation, look_around(state.ledgers[allocation.pool_id]))
    saved = request.saved
    since = unsaved_since(allocation, request)
    return {
        "checkpoint": {
            "last": None if saved is None else saved.id,
            "unsaved_for": seconds(max(state.now - since, 0)),
            "asked": None if ask is None else {"seconds_left": _until(state, ask.until)},
            "next_look_in": None if look is None or ask is not None else _until(state, look),
            "cost": round(judged.cost, 3),
            "value": round(judged.value, 3),
        }
    }


def _until(state: State, at: int) -> int | float | None:
    return seconds(max(at - state.now, 0))


def _tell(state: State, kind: str, allocation: Allocation, **data: object) -> None:
    state.emit(kind, request_id=allocation.request_id, pool_id=allocation.pool_id, **data)
