"""The pass: choose what changes next. Same state and instant, same plan.

The steps go from least to most disruptive, so that a step runs only on what the gentler ones left.
A pass looks only at pools in which something changed since the last one.
"""

from __future__ import annotations

from cede.engine.earmarks import drop_dead, let_victims_go
from cede.engine.endings import expire
from cede.engine.grants import grant_all
from cede.engine.preempt import preempt_all
from cede.engine.state import State
from cede.model.plan import Plan


def decide(state: State, now: int) -> Plan:
    """One pass over `state`, which it changes; what it decided is also in the plan."""
    plan = Plan(now)
    due = state.begin_pass(now)
    plan.changed = expire(state, due)  # 1. what is over by itself
    pools = sorted(state.dirty, key=lambda pool_id: state.pools[pool_id].name)
    for pool_id in pools:  # 2. promises that no longer hold
        plan.changed |= drop_dead(state, state.books[pool_id])
    grant_all(state, plan, pools)  # 3. grants, in standing order
    preempt_all(state, plan, pools)  # 4. takings, for whom no pool could grant
    state.dirty.clear()
    if let_victims_go(state):  # 5. victims that nobody needs any more
        plan.again = True
    state.reschedule(due)
    plan.changed |= bool(plan.decisions) or plan.again
    plan.next_timer = now if plan.again else state.timers.next()
    return plan
