"""The scores of a pool's queues: which waiter of equal standing goes first, in a pool with that
order.

All waiters of a queue are alike to every factor but their age, so the oldest one's score is the
queue's, and inside it the older one goes first. Scores are computed at the beginning of a pass.
"""

from __future__ import annotations

from cede.engine.ledger.ledger import PoolLedger
from cede.engine.ledger.queue import QueueKey
from cede.engine.nodes.inventory import NodeInventory
from cede.engine.queue import score
from cede.engine.queue.budget import penalty
from cede.engine.queue.score import PROFILES, UNKNOWN, Factors
from cede.engine.rights.price import saving_minutes
from cede.engine.state.state import State
from cede.model.pool import Pool
from cede.model.request import Request
from cede.model.settings import QueueOrder

# With more waiters than this the backlog is full, whatever their demands.
_BACKLOG_MAX = 10_000


def score_queues(state: State) -> None:
    """Score the queues of every pool that this pass decides and that orders by score."""
    for pool_id in state.dirty:
        ledger = state.ledgers[pool_id]
        if ledger.pool.settings.order is QueueOrder.SCORE:
            state.scores[pool_id] = ledger.scores = _score(state, ledger)


def _score(state: State, ledger: PoolLedger) -> dict[QueueKey, float]:
    queues = {key: queue.oldest for key, queue in ledger.queues.items() if len(queue)}
    scores: dict[QueueKey, float] = {}
    if not queues:
        return scores
    waiting = _backlog(state, ledger)
    groups, largest = _nodes(ledger.inventory)
    for key, oldest in queues.items():
        assert oldest is not None and key.scored is not None
        request = state.requests[oldest[2]]
        tenant, checkpoint = key.scored
        factors = Factors(
            priority=score.priority(request.terms.preemption_class),
            wait_time=score.wait_time(request.submitted_at, state.now),
            fair_share=_fair_share(state, ledger.pool, tenant),
            topology=score.topology(request.tasks, groups),
            backlog=waiting,
            checkpoint_efficiency=score.checkpoint_efficiency(
                saving_minutes(checkpoint, timeout=request.stop_policy.timeout)
            ),
            conformance=score.conformance(largest, request.tasks),
        )
        scores[key] = score_of(ledger, key, factors, state.budgets.get(tenant))
    return scores


def score_of(ledger: PoolLedger, key: QueueKey, factors: Factors, used: float | None) -> float:
    """The score of a queue; `used` is the used part of its tenant's budget."""
    weights = PROFILES[ledger.policies[key.policy_id].kind]
    return score.score(factors, weights, penalty(used))


def _fair_share(state: State, pool: Pool, name: str) -> float:
    tenant = state.tenancy.named.get(name)
    nodes = nodes_in(state, pool)
    if tenant is None or not nodes:
        return UNKNOWN
    used = sum(state.tenancy.held.values()) / nodes
    actual = state.tenancy.held.get(name, 0) / nodes
    return score.fair_share(tenant.fair_share_target, actual, tenant.burst_allowance, used)


def nodes_in(state: State, pool: Pool) -> int:
    """The number of nodes that the pool shares; 0 in a pool without nodes."""
    inventory = state.inventories.get(pool.id)
    return 0 if inventory is None else len(inventory.spots)


def is_bursting(state: State, pool: Pool, request: Request) -> bool:
    """Whether its tenant holds more than its target part of the nodes because it may burst."""
    tenant = state.tenancy.named.get(request.terms.tenant)
    nodes = nodes_in(state, pool)
    if tenant is None or tenant.burst_allowance is None or not nodes:
        return False
    return state.tenancy.held.get(tenant.name, 0) / nodes > tenant.fair_share_target


def _nodes(inventory: NodeInventory | None) -> tuple[int, int | None]:
    """The number of topology groups, and the most free nodes of one fingerprint."""
    if inventory is None:
        return 0, None
    return len(inventory.served), max(inventory.idle.values(), default=0)


def _backlog(state: State, ledger: PoolLedger) -> float:
    """Waiting tasks relative to running tasks."""
    queues = [(key.form, queue) for key, queue in ledger.queues.items() if len(queue)]
    running = ledger.parts
    if sum(len(queue) for _, queue in queues) > _BACKLOG_MAX:
        return score.backlog(running, running)
    waiting = 0
    for form, queue in queues:
        if form is not None:  # one form, so the same number of tasks each
            waiting += form.tasks * len(queue)
        else:
            waiting += sum(state.requests[each].tasks for each in queue)
    return score.backlog(waiting, running)
