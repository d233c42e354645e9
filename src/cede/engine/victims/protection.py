"""When a waiter may preempt, and when a holder may be stopped.

A waiter may have to starve first, and longer for holdings within a share. In a pool of nodes it
then preempts at the heartbeat of a node, once for every back-off. A holder is protected in its
first seconds, as the pool's settings say.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from cede.engine.fair.status import Starving
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.ledger.queue import QueueKey
from cede.engine.nodes.placement import View
from cede.engine.queue.view import eligible_nodes, locate, site
from cede.engine.rights.cover import Holding
from cede.engine.rights.price import Shield
from cede.engine.rights.standing import IN_SHARE, WITHIN_SHARE, Standing
from cede.engine.shares.publish import hunger, settings_for
from cede.engine.state.state import State
from cede.engine.victims.pricing import shield
from cede.model.policy import Kind
from cede.model.request import Request
from cede.model.settings import Patience
from cede.model.shape import Footprint


class Preemptor(NamedTuple):
    """A waiter as it will be once granted: its rights, and its band in its task group."""

    request: Request
    key: QueueKey
    rights: int
    band: int
    standing: Standing
    by_amounts: bool = False  # it stops holders of any standing whose policies keep their reserves

    @property
    def policy_id(self) -> str:
        return self.key.policy_id

    @property
    def rank(self) -> int:
        return self.key.rank

    def locate(
        self, state: State, ledger: PoolLedger, instead_of: Iterable[str] = ()
    ) -> Footprint | None:
        """The nodes that could be promised to it, also in place of the promises of these owners."""
        own = (self.request.id, *instead_of)
        return locate(state, ledger, self.key, self.rights, self.standing, promise=True, own=own)

    def site(self, state: State, ledger: PoolLedger) -> View:
        """The nodes of the pool for it, with the promises gone that give way to it."""
        only = eligible_nodes(ledger, self.key, self.rights)[-1]
        promises = own_promises(ledger, self.key, self.standing)
        own = (self.request.id, *(each.id for each in promises))
        return site(state, ledger, self.standing, promise=True, own=own, only=only)


def own_promises(ledger: PoolLedger, key: QueueKey, standing: Standing) -> list[Holding]:
    """The promises to preemptible work of its own policy that non-preemptible work could preempt
    once granted, in the order in which they are dropped. Promises of lower standing do not bind it
    in any case. Where fair shares alone decide, work of one policy is equal.
    """
    if key.preemptible or not ledger.earmarks or ledger.balance is not None:
        return []
    found = [
        each
        for each in ledger.earmarks.values()
        if each.policy_id == key.policy_id
        and each.preemptible
        and each.rank == key.rank
        and ledger.standing_of(each.id) >= standing
    ]
    return sorted(found, key=lambda each: (*ledger.last_served(each), -each.index, each.id))


def may_take(state: State, ledger: PoolLedger, waiter: Request, policy_id: str) -> bool:
    """Whether a waiter has waited long enough to preempt at all."""
    if ledger.pool.settings.patience is Patience.NONE:
        return True
    return hunger(state, ledger, waiter, policy_id) is not Starving.NON_STARVING


class Stage(StrEnum):
    """The capacity that a waiter may have: free; also beyond shares; also between thresholds."""

    REGULAR = "regular"
    PREEMPTIVE = "preemptive"
    AGGRESSIVELY_PREEMPTIVE = "aggressively_preemptive"


def stage_of(state: State, ledger: PoolLedger, preemptor: Preemptor) -> Stage:
    """The stage in which a waiter is served."""
    return stage_for(state, ledger, preemptor.request, preemptor.policy_id)


def stage_for(state: State, ledger: PoolLedger, waiter: Request, policy_id: str) -> Stage:
    """The same for a request that waits in a policy."""
    if ledger.pool.settings.patience is Patience.NONE:
        return Stage.AGGRESSIVELY_PREEMPTIVE
    hungry = hunger(state, ledger, waiter, policy_id)
    if hungry is Starving.NON_STARVING:
        return Stage.REGULAR
    aggressive = hungry is Starving.AGGRESSIVELY_STARVING
    return Stage.AGGRESSIVELY_PREEMPTIVE if aggressive else Stage.PREEMPTIVE


class Spared(StrEnum):
    """Why a waiter may not stop a holder of lower standing for now, if nothing shields it."""

    MIN_RUN = "min_run"
    CLASS_BAND = "class_band"
    SERVICE_AT_HOME = "service_at_home"
    RETURN_GRACE = "return_grace"
    WITHIN_SHARE = "within_share"
    BACK_OFF = "back_off"


def spared(
    state: State, ledger: PoolLedger, preemptor: Preemptor, holding: Holding, level: int
) -> Spared | Shield | None:
    """The reason why a waiter may not stop a holder of lower standing now; None if it may."""
    if protected(state, holding, level, preemptor.rights):
        return Spared.MIN_RUN
    if not _may_by_table(ledger, preemptor, holding):
        return Spared.CLASS_BAND
    if (found := shield(state, ledger, holding)) is not None:
        return found
    if _serves_at_home(ledger, holding):
        return Spared.SERVICE_AT_HOME
    if _returns_later(state, ledger, preemptor, holding):
        return Spared.RETURN_GRACE
    within = ledger.fair and level == WITHIN_SHARE
    if within and not _aggressive(state, ledger, preemptor, holding):
        return Spared.WITHIN_SHARE
    return None if is_open(state, ledger, holding) else Spared.BACK_OFF


def spares_within_share(ledger: PoolLedger, hungry: Starving) -> bool:
    """Whether a waiter that starves so much may stop no holding between the two thresholds of a
    policy's fair share. Its own policy's are an exception: see `may_take_own`.
    """
    patient = ledger.pool.settings.patience is not Patience.NONE
    return ledger.fair and patient and hungry is not Starving.AGGRESSIVELY_STARVING


def may_take_own(state: State, ledger: PoolLedger, preemptor: Preemptor, holding: Holding) -> bool:
    """Whether a waiter may stop a holder of its own policy. Of lower rank it may by the common
    rules, of higher rank never. Of its own rank, non-preemptible work may stop any; other work one
    that is less safe in its task group than the waiter will be.
    """
    level = ledger.rights(holding.id)
    if holding.rank != preemptor.rank:  # only classes differ inside a policy
        lower = (
            holding.rank < preemptor.rank and ledger.standing_of(holding.id) < preemptor.standing
        )
        return lower and spared(state, ledger, preemptor, holding, level) is None
    if protected(state, holding, level, preemptor.rights) or not is_open(state, ledger, holding):
        return False
    if shield(state, ledger, holding) is not None:
        return False
    if not preemptor.request.preemptible:
        return True
    if not ledger.fair or not holding.band < preemptor.band:
        return False
    return holding.band == 0 or _aggressive(state, ledger, preemptor, holding)


def _may_by_table(ledger: PoolLedger, preemptor: Preemptor, holding: Holding) -> bool:
    """Document 004's table of classes, where the pool uses it: a preemption crosses a band."""
    if not ledger.pool.settings.class_bands or preemptor.rank == holding.rank:
        return True  # between equal classes only an owner at home may preempt
    return _class_band(preemptor.rank) > _class_band(holding.rank)


def _serves_at_home(ledger: PoolLedger, holding: Holding) -> bool:
    """Whether a holder is a service on its own policy's nodes, which is never stopped there."""
    kind = ledger.policies[holding.policy_id].kind
    return kind is Kind.SERVICE and ledger.rights(holding.id) == IN_SHARE


def _returns_later(
    state: State, ledger: PoolLedger, preemptor: Preemptor, holding: Holding
) -> bool:
    """Whether a borrower still has time to give a policy its nodes back by itself."""
    return preemptor.rank == holding.rank and return_grace_end(ledger, preemptor) > state.now


def return_grace_end(ledger: PoolLedger, preemptor: Preemptor) -> int:
    """The instant until which equals may give a waiter's policy its nodes back by themselves."""
    grace = ledger.policies[preemptor.policy_id].return_grace
    if not grace or preemptor.rights != IN_SHARE:
        return 0
    return max(preemptor.request.submitted_at, preemptor.request.not_before) + grace


def _class_band(rank: int) -> int:
    return -(-rank // 3)  # 0; 1 to 3; 4 to 6; 7 to 9; 10


def _aggressive(state: State, ledger: PoolLedger, preemptor: Preemptor, holding: Holding) -> bool:
    """Whether a waiter may stop a holder within a share: it starves aggressively, and the holder's
    policy allows it.
    """
    if ledger.pool.settings.patience is Patience.NONE:
        return True
    if forbids_aggressive(state, ledger, holding) is not None:
        return False
    hungry = hunger(state, ledger, preemptor.request, preemptor.policy_id)
    return hungry is Starving.AGGRESSIVELY_STARVING


def forbids_aggressive(state: State, ledger: PoolLedger, holding: Holding) -> str | None:
    """The setting that protects a holder within its share; None if there is none."""
    settings = settings_for(ledger, holding.policy_id)
    if not settings.allow_aggressive_preemption:
        return "allow_aggressive_preemption"
    if settings.allow_aggressive_preemption_for_gangs:
        return None
    request_id = state.allocations[holding.id].request_id
    gang = state.requests[request_id].tasks > 1
    return "allow_aggressive_preemption_for_gangs" if gang else None


def is_open(state: State, ledger: PoolLedger, holding: Holding) -> bool:
    """Whether a holder on these nodes may be stopped now: each node has had a heartbeat since its
    last preemption, and its back-off is over.
    """
    if not state.staged or ledger.pool.settings.patience is Patience.NONE:
        return True
    backoff = ledger.pool.settings.preemptive_scheduling_backoff
    for node_id, _ in holding.footprint:
        last = state.staged.get(node_id)
        if last is None:
            continue
        if state.beats.get(node_id, 0) <= last or state.now < last + backoff:
            return False
    return True


def note_stage(state: State, ledger: PoolLedger, holdings: list[Holding]) -> None:
    """Note a preemption on the nodes of these holders: the next one waits for a heartbeat and the
    back-off.
    """
    if ledger.pool.settings.patience is Patience.NONE:
        return
    nodes = {node_id for each in holdings for node_id, _ in each.footprint}
    for node_id in nodes:
        state.staged[node_id] = state.now
    if nodes:
        state.wake_by(
            ledger.pool.id, state.now + ledger.pool.settings.preemptive_scheduling_backoff
        )


def first_young(
    state: State, ledger: PoolLedger, preemptor: Preemptor, keys: Iterable[str]
) -> int | None:
    """The earliest grant among the holders of these keys that only their first seconds protect from
    a waiter.
    """
    settings = ledger.pool.settings
    if not settings.min_run and not settings.reclaim_min_run:
        return None
    young = [
        state.allocations[each.id].allocated_at
        for each in ledger.holdings.values()
        if each.takeable
        and each.policy_id != preemptor.policy_id
        and any(key in each.amounts for key in keys)
        and ledger.standing_of(each.id) < preemptor.standing
        and protected(state, each, ledger.rights(each.id), preemptor.rights)
    ]
    return min(young, default=None)


def protected(state: State, holding: Holding, holder_rights: int, waiter_rights: int) -> bool:
    """Whether a holder is inside its first seconds: `reclaim_min_run` against a waiter of higher
    rights, `min_run` against any other.
    """
    allocation = state.allocations[holding.id]
    settings = state.pools[allocation.pool_id].settings
    first = settings.reclaim_min_run if waiter_rights > holder_rights else settings.min_run
    return bool(first) and state.now < allocation.allocated_at + first
