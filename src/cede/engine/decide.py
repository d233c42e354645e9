"""The pass: decide what changes next. The same state and instant give the same plan.

The steps go from least to most disruptive, so that a step runs only on what the gentler ones left.
A taking can leave room for another waiter, so the steps are repeated until they change nothing: a
pass ends at rest. It considers only pools in which something changed since the last pass.
"""

from __future__ import annotations

from cede.engine.admin import quarantine
from cede.engine.admin.fleet import settle_drains, silence
from cede.engine.lifecycle.endings import expire
from cede.engine.lifecycle.pausing import announce
from cede.engine.queue.scoring import score_queues
from cede.engine.shares.publish import refresh, set_clocks
from cede.engine.state.journal import Noted
from cede.engine.state.state import State
from cede.engine.steps.checkpoint import ask_to_save
from cede.engine.steps.earmarks import drop, drop_dead
from cede.engine.steps.grant import grant_all
from cede.engine.steps.over_limit import stop_overruns
from cede.engine.steps.preempt import preempt_all, tell_weighed
from cede.engine.steps.rehearsal import regrets
from cede.engine.steps.sparing import let_victims_go, name_owners, spare
from cede.engine.steps.taken_back import forget_taken_back
from cede.engine.steps.withhold import keep_heads
from cede.model import bounds
from cede.model.plan import ANY, Barred, Plan, Refused


def decide(state: State, now: int) -> Plan:
    """Run one pass over `state`, which it changes; the plan lists its decisions."""
    due = state.begin_pass(now)
    changed = expire(state, due)  # 1. ended by time, and requests paused by an edit
    if state.displaced:
        changed |= announce(state)
    for kind, entity_id in due:
        changed |= kind == "node" and silence(state, entity_id)
    if state.draining:
        changed |= settle_drains(state)
    changed |= quarantine.end(state)
    refresh(state, due)  # 2. fair shares and scores, where they set the order
    score_queues(state)
    mark, pools = state.mark(), _dirty(state)
    plan = _without_regret(state)  # 3. to 8.
    forget_taken_back(state, plan)
    tell_weighed(state, plan)
    if (
        plan.took_back
        and not plan.decisions
        and not (state.events[-1:] and state.events[-1].index > plan.began)
    ):
        state.undo(mark)  # the tries came to nothing
        state.dirty.clear()
        state.roomier.clear()
        plan.changed = plan.again
    _note_refused(state, plan, pools)
    plan.changed |= changed or bool(plan.decisions)
    set_clocks(state, plan)
    ask_to_save(state, plan, due)  # 9. staying holders that should save themselves
    state.reschedule(due)
    timers = (state.timers.next(), quarantine.due(state))
    due_next = min((each for each in timers if each is not None), default=None)
    plan.next_timer = now if plan.again else due_next
    return plan


def _without_regret(state: State) -> Plan:
    """Decide; and if a rehearsal finds something that comes to nothing, again without that."""
    mark = state.mark()
    regretted: frozenset[Barred] = frozenset()
    tried: list[tuple[int, frozenset[Barred]]] = []
    refused: list[Refused] = []
    for _ in range(bounds.REHEARSALS_MAX):
        plan = _to_rest(state, regretted)
        found = regrets(state, plan, _next_pass)
        plan.refused = refused
        if not found:
            return plan
        tried.append((len(found), regretted))
        refused += found.values()
        if found.keys() <= regretted:
            break
        regretted |= found.keys()
        state.undo(mark)
    _, fewest = min(tried, key=lambda each: each[0])
    state.undo(mark)
    plan = _to_rest(state, fewest)
    plan.refused = refused
    return plan


def _note_refused(state: State, plan: Plan, pools: list[str]) -> None:
    """Note who would get what could be freed for each waiter that these pools refused that."""
    for pool_id in pools:
        found = {
            each.request_id: each.instead
            for each in plan.refused
            if each.pool_id == pool_id and _waits(state, each.request_id)
        }
        if found or pool_id in state.refused:
            state.refused[pool_id] = found


def _waits(state: State, request_id: str) -> bool:
    """Whether a request waits without a promise."""
    request = state.requests.get(request_id)
    return request is not None and request.waiting and request.earmark is None


def _to_rest(state: State, regretted: frozenset[Barred] = frozenset()) -> Plan:
    """Repeat the rounds until they change nothing."""
    plan = Plan(
        state.now,
        granted=Noted(state.journal),
        stopped=Noted(state.journal),
        undone=Noted(state.journal),
    )
    plan.regretted, plan.in_vain, plan.began = regretted, set(regretted), state.index
    for owner_id in sorted(waiter for waiter, what in regretted if what == ANY):
        if state.requests[owner_id].earmark is not None:
            drop(state, owner_id)  # a promise of an earlier pass
    for _ in range(bounds.ROUNDS_MAX):
        plan.again = False
        _round(state, plan)
        plan.changed |= plan.again
        if not plan.again and not _try_again(state, plan):
            for pool_id in state.dirty:
                state.ledgers[pool_id].forget_empty_queues()
            state.dirty.clear()
            break
    name_owners(state, plan)
    return plan


def _next_pass(state: State) -> Plan:
    refresh(state, [])
    score_queues(state)
    return _to_rest(state)


def _round(state: State, plan: Plan) -> None:
    for pool_id in _dirty(state):  # 3. promises that no longer hold
        plan.changed |= drop_dead(state, state.ledgers[pool_id])
    pools = [each for each in _dirty(state) if state.pools[each].quarantine is None]
    stop_overruns(state, plan, pools)  # 4. work above a limit, where it may not stay
    grant_all(state, plan, pools)  # 5. grants, in standing order
    # Capacity that is being freed is promised at once, and no holder may be stopped for its equal.
    if let_victims_go(state, plan):
        plan.again = True
    preempt_all(state, plan, pools)  # 6. takings, for waiters that no pool could grant
    if spare(state, plan):  # 7. victims that need not stop
        plan.again = True
    if not plan.again:
        keep_heads(state, plan, pools)  # 8. room for blocked heads


def _try_again(state: State, plan: Plan) -> bool:
    """Whether to try the takings that came to nothing again beside the present outcome: once for
    each new outcome.
    """
    if len(plan.in_vain) == len(plan.regretted):
        return False
    pools = (state.ledgers[each] for each in sorted(plan.promised))
    outcome = frozenset((*plan.stopped, *(owner for each in pools for owner in each.earmarks)))
    if outcome in plan.outcomes:
        return False
    plan.outcomes.add(outcome)
    plan.in_vain = set(plan.regretted)
    return True


def _dirty(state: State) -> list[str]:
    """The pools to decide, in a fixed order.

    A change in one pool may send its waiters to their other pools, so those are included.
    """
    pools = dict(state.dirty)
    if state.several:
        for pool_id in state.dirty:
            ledger = state.ledgers[pool_id]
            for key in ledger.queues:
                subject = ledger.policies[key.policy_id].subject
                pools.update((each.pool_id, None) for each in state.policies_of(subject))
    return sorted(pools, key=lambda pool_id: state.pools[pool_id].name)
