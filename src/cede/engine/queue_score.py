"""The score of the queue's lanes, where a pool goes by it: among equal standing, who goes first.

All waiters of a lane are alike to every factor but their age, so the score of the oldest stands for
the lane, and inside it the older one goes first. Scores are computed at the beginning of a pass.
"""

from __future__ import annotations

from cede.engine import score
from cede.engine.books import Books
from cede.engine.budget import penalty
from cede.engine.ground import Ground
from cede.engine.lane import LaneKey
from cede.engine.price import saving_minutes
from cede.engine.score import PROFILES, UNKNOWN, Factors
from cede.engine.state import State
from cede.model.pool import Pool
from cede.model.request import Request
from cede.model.settings import QueueOrder

# With more waiters than this there is a backlog, whatever each of them wants.
_BACKLOG_MAX = 10_000


def score_queues(state: State) -> None:
    """Score the lanes of every pool that this pass looks at and that goes by it."""
    for pool_id in state.dirty:
        books = state.books[pool_id]
        if books.pool.settings.order is QueueOrder.SCORE:
            _score(state, books)


def _score(state: State, books: Books) -> None:
    lanes = {key: lane.oldest for key, lane in books.lanes.items() if len(lane)}
    books.scores = {}
    if not lanes:
        return
    waiting = _backlog(state, books)
    groups, largest = _nodes(books.ground)
    for key, oldest in lanes.items():
        assert oldest is not None and key.scored is not None
        request = state.requests[oldest[2]]
        tenant, checkpoint = key.scored
        factors = Factors(
            priority=score.priority(request.terms.preemption_class),
            wait_time=score.wait_time(request.submitted_at, state.now),
            fair_share=_fair_share(state, books.pool, tenant),
            topology=score.topology(request.tasks, groups),
            backlog=waiting,
            checkpoint_efficiency=score.checkpoint_efficiency(
                saving_minutes(checkpoint, timeout=request.farewell.timeout)
            ),
            conformance=score.conformance(largest, request.tasks),
        )
        books.scores[key] = score_of(books, key, factors, state.budgets.get(tenant))


def score_of(books: Books, key: LaneKey, factors: Factors, used: float | None) -> float:
    """`used` is the part of its tenant's budget."""
    weights = PROFILES[books.policies[key.policy_id].kind]
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
    """How many nodes there are to be shared; none in a pool that only counts."""
    ground = state.grounds.get(pool.id)
    return 0 if ground is None else len(ground.spots)


def is_bursting(state: State, pool: Pool, request: Request) -> bool:
    """Whether its tenant has more than its part of the nodes because it may burst."""
    tenant = state.tenancy.named.get(request.terms.tenant)
    nodes = nodes_in(state, pool)
    if tenant is None or tenant.burst_allowance is None or not nodes:
        return False
    return state.tenancy.held.get(tenant.name, 0) / nodes > tenant.fair_share_target


def _nodes(ground: Ground | None) -> tuple[int, int | None]:
    """The topology groups there are, and the most free nodes that are of one fingerprint."""
    if ground is None:
        return 0, None
    return len(ground.served), max(ground.idle.values(), default=0)


def _backlog(state: State, books: Books) -> float:
    """What waits against what runs, in tasks."""
    lanes = [(key.form, lane) for key, lane in books.lanes.items() if len(lane)]
    running = books.parts
    if sum(len(lane) for _, lane in lanes) > _BACKLOG_MAX:
        return score.backlog(running, running)
    waiting = 0
    for form, lane in lanes:
        if form is not None:  # of one form, so of as many tasks each
            waiting += form.tasks * len(lane)
        else:
            waiting += sum(state.requests[each].tasks for each in lane)
    return score.backlog(waiting, running)
