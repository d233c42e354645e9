"""When a waiter may take, and when a holder may be stopped.

A waiter may have to starve first, and longer for what is within a share. In a pool of nodes it then
takes at the heartbeat of a node, once for every back-off. A holder's first seconds are its own, as
far as the pool says.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cede.engine.books import Books
from cede.engine.fair.status import Starving
from cede.engine.fairness import hunger, settings_for
from cede.engine.lane import LaneKey
from cede.engine.price import Shield
from cede.engine.pricing import shield
from cede.engine.share import Holding
from cede.engine.site import locate
from cede.engine.standing import IN_SHARE, Standing
from cede.engine.state import State
from cede.model.policy import Kind
from cede.model.request import Request
from cede.model.settings import Patience
from cede.model.shape import Footprint


@dataclass(frozen=True, slots=True)
class Taker:
    """A waiter as it will be once granted: its rights, and how safe it is in its family."""

    request: Request
    key: LaneKey
    rights: int
    band: int
    standing: Standing

    @property
    def policy_id(self) -> str:
        return self.key.policy_id

    @property
    def rank(self) -> int:
        return self.key.rank

    def locate(self, state: State, books: Books) -> Footprint | None:
        """Where it could be promised a place."""
        own = (self.request.id,)
        return locate(state, books, self.key, self.rights, self.standing, promise=True, own=own)


def may_take(state: State, books: Books, waiter: Request, policy_id: str) -> bool:
    """Whether a waiter has waited long enough to take at all."""
    if books.pool.settings.patience is Patience.NONE:
        return True
    return hunger(state, books, waiter, policy_id) is not Starving.NON_STARVING


class Spared(StrEnum):
    """Why a waiter may not stop a holder of lower standing for now, if nothing shields it."""

    MIN_RUN = "min_run"
    CLASS_BAND = "class_band"
    SERVICE_AT_HOME = "service_at_home"
    RETURN_GRACE = "return_grace"
    WITHIN_SHARE = "within_share"
    BACK_OFF = "back_off"


def spared(
    state: State, books: Books, taker: Taker, holding: Holding, level: int
) -> Spared | Shield | None:
    """What keeps a holder of lower standing out of a waiter's reach for now; None if nothing."""
    if protected(state, holding, level, taker.rights):
        return Spared.MIN_RUN
    if not _may_by_table(books, taker, holding):
        return Spared.CLASS_BAND
    if (found := shield(state, books, holding)) is not None:
        return found
    if _serves_at_home(books, holding):
        return Spared.SERVICE_AT_HOME
    if _returns_later(state, books, taker, holding):
        return Spared.RETURN_GRACE
    within = books.fair and level == IN_SHARE - 1  # of its own policy's fair share
    if within and not _aggressive(state, books, taker, holding):
        return Spared.WITHIN_SHARE
    return None if is_open(state, books, holding) else Spared.BACK_OFF


def may_take_own(state: State, books: Books, taker: Taker, holding: Holding) -> bool:
    """Whether a waiter may stop a holder of its own policy: of lower rank as it may any other, and
    none of higher; of its own rank non-preemptible work any, other work one that is less safe in
    its family than it will be itself.
    """
    level = books.rights(holding.id)
    if holding.rank != taker.rank:  # only classes differ inside a policy
        lower = holding.rank < taker.rank and books.standing_of(holding.id) < taker.standing
        return lower and spared(state, books, taker, holding, level) is None
    if protected(state, holding, level, taker.rights) or not is_open(state, books, holding):
        return False
    if shield(state, books, holding) is not None:
        return False
    if not taker.request.preemptible:
        return True
    if not books.fair or not holding.band < taker.band:
        return False
    return holding.band == 0 or _aggressive(state, books, taker, holding)


def _may_by_table(books: Books, taker: Taker, holding: Holding) -> bool:
    """Document 004's table of classes, where the pool goes by it: taking crosses a band."""
    if not books.pool.settings.class_bands or taker.rank == holding.rank:
        return True  # who is of one class is at home, or may take nothing
    return _class_band(taker.rank) > _class_band(holding.rank)


def _serves_at_home(books: Books, holding: Holding) -> bool:
    """Whether a holder is a service on its own policy's nodes, which nobody is stopped on."""
    kind = books.policies[holding.policy_id].kind
    return kind is Kind.SERVICE and books.rights(holding.id) == IN_SHARE


def _returns_later(state: State, books: Books, taker: Taker, holding: Holding) -> bool:
    """Whether a borrower still has time to give a policy its nodes back by itself."""
    grace = books.policies[taker.policy_id].return_grace
    if not grace or taker.rights != IN_SHARE or taker.rank != holding.rank:
        return False
    since = max(taker.request.submitted_at, taker.request.not_before) + grace
    if state.now >= since:
        return False
    state.wake_by(books.pool.id, since)
    return True


def _class_band(rank: int) -> int:
    return -(-rank // 3)  # 0; 1 to 3; 4 to 6; 7 to 9; 10


def _aggressive(state: State, books: Books, taker: Taker, holding: Holding) -> bool:
    """Whether a waiter may take what is within a share: it starves aggressively, and the holder's
    policy allows it.
    """
    if books.pool.settings.patience is Patience.NONE:
        return True
    if forbids_aggressive(state, books, holding) is not None:
        return False
    hungry = hunger(state, books, taker.request, taker.policy_id)
    return hungry is Starving.AGGRESSIVELY_STARVING


def forbids_aggressive(state: State, books: Books, holding: Holding) -> str | None:
    """The setting that keeps a holder from being taken within its share."""
    settings = settings_for(books, holding.policy_id)
    if not settings.allow_aggressive_preemption:
        return "allow_aggressive_preemption"
    if settings.allow_aggressive_preemption_for_gangs:
        return None
    request_id = state.allocations[holding.id].request_id
    gang = state.requests[request_id].tasks > 1
    return "allow_aggressive_preemption_for_gangs" if gang else None


def is_open(state: State, books: Books, holding: Holding) -> bool:
    """Whether the nodes of a holder may take now: heard of since they last did, and not too soon
    after.
    """
    if not state.staged or books.pool.settings.patience is Patience.NONE:
        return True
    backoff = books.pool.settings.preemptive_scheduling_backoff
    for node_id, _ in holding.footprint:
        last = state.staged.get(node_id)
        if last is None:
            continue
        if state.beats.get(node_id, 0) <= last or state.now < last + backoff:
            return False
    return True


def note_stage(state: State, books: Books, holdings: list[Holding]) -> None:
    """These nodes have taken: the next time is after a heartbeat and the back-off."""
    if books.pool.settings.patience is Patience.NONE:
        return
    nodes = {node_id for each in holdings for node_id, _ in each.footprint}
    for node_id in nodes:
        state.staged[node_id] = state.now
    if nodes:
        state.wake_by(books.pool.id, state.now + books.pool.settings.preemptive_scheduling_backoff)


def protected(state: State, holding: Holding, holder_rights: int, waiter_rights: int) -> bool:
    """Whether a holder is inside its first seconds: `reclaim_min_run` against a waiter of higher
    rights, `min_run` against any other.
    """
    allocation = state.allocations[holding.id]
    settings = state.pools[allocation.pool_id].settings
    first = settings.reclaim_min_run if waiter_rights > holder_rights else settings.min_run
    return bool(first) and state.now < allocation.allocated_at + first
