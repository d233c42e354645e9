"""What must hold where classes, homes or prices decide, said once more without the engine's own
bookkeeping: who may be stopped for whom, at what price, and what is promised.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from functools import cached_property
from math import inf

from cede.engine.audit import audit
from cede.engine.explain.why import waiting_reason
from cede.engine.fair.status import Starving
from cede.engine.rights.standing import BORROWED, IN_SHARE, LOWEST
from cede.engine.shares.publish import hunger
from cede.engine.state.state import State
from cede.model.allocation import Allocation
from cede.model.amounts import total
from cede.model.lifecycle import AllocationState
from cede.model.policy import Kind, Policy
from cede.model.pool import Pool
from cede.model.request import Request
from cede.model.settings import Patience, Precedence, Price, Rank, Share
from cede.model.stopping import Checkpoint

from . import amount_checks
from .checks import (
    Broken,
    Promises,
    Usage,
    both,
    check_lost,
    claims,
    gives_way,
    limits_ok,
    one_task,
    own_room_ok,
    promised,
    rights_then,
    staying,
    suits,
    usage,
    within,
)
from .lending import HIGHEST, Lending

MINUTE = 60_000
BANDS = {0: 0} | dict.fromkeys((1, 2, 3), 1) | dict.fromkeys((4, 5, 6), 2)
BANDS |= dict.fromkeys((7, 8, 9), 3) | {10: 4}

Standing = tuple[int, int]


def is_classed(pool: Pool) -> bool:
    """Whether these checks are the ones for a pool."""
    return pool.settings.rank is Rank.CLASS or pool.settings.price is Price.CHECKPOINT


class Classes(Lending):
    """One pool as it is now, and who outranks whom in it."""

    # Standing ----------------------------------------------------------------------------------

    @cached_property
    def rights(self) -> dict[str, int]:
        found = audit.rights(audit.Alive(self.state), self.pool)
        for each in self.live:
            if self.by_place:
                nodes = {member.node_id for member in each.members}
                found[each.id] = self.place(self.state.policies[each.policy_id], nodes)
        return found

    def rank(self, policy: Policy, request: Request) -> int:
        if self.pool.settings.rank is Rank.PRIORITY:
            return policy.priority
        return HIGHEST if request.terms.sensitive else request.terms.preemption_class

    def rank_of(self, each: Allocation) -> int:
        policy = self.state.policies[each.policy_id]
        return self.rank(policy, self.state.requests[each.request_id])

    def standing(self, rank: int, rights: int) -> Standing:
        precedence = self.pool.settings.precedence
        if precedence is Precedence.RIGHTS_FIRST:
            return (rights, rank)
        if precedence is Precedence.RANK_FIRST:
            return (rank, rights)
        return (rights + 1_000 * (rank >= HIGHEST), rank)

    def of_holder(self, each: Allocation) -> Standing:
        return self.standing(self.rank_of(each), self.rights[each.id])

    def of_owner(self, owner: Request, gone: Container[str] = ()) -> Standing:
        """Of whoever was promised something, once `gone` gave up their place in the share."""
        assert owner.earmark is not None
        policy = self.state.policies[owner.earmark.policy_id]
        rights = audit.rights(audit.Alive(self.state), self.pool, gone)[owner.id]
        if self.by_place:
            rights = self.place(policy, {node_id for node_id, _ in owner.earmark.footprint})
        return self.standing(self.rank(policy, owner), rights)

    # Who may be stopped ------------------------------------------------------------------------

    def shielded(self, victim: Allocation) -> str:
        """What protects a holder from everybody; nothing if nothing does."""
        request = self.state.requests[victim.request_id]
        policy = self.state.policies[victim.policy_id]
        threshold = self.pool.settings.near_completion_threshold
        if not victim.preemptible or victim.leaving or victim.state is AllocationState.LOST:
            return "may not be stopped"
        if self.is_protected(request) or policy.kind is Kind.SENSITIVE:
            return "is sensitive, or of a class that nobody stops"
        ends = victim.ends_at if victim.started_at is not None else None
        if threshold and ends is not None and ends - self.state.now <= threshold:
            return "is nearly done"
        if policy.kind is Kind.SERVICE and self.rights[victim.id] == IN_SHARE:
            return "is a service at home"
        return ""

    def forbidden(self, waiter: Request, policy: Policy, mine: Standing, victim: Allocation) -> str:
        """Why a waiter of this standing may not stop a holder; nothing if it may."""
        if why := self.shielded(victim):
            return f"S6 {victim.id} {why}"
        own = victim.policy_id == policy.id
        rank, other = self.rank(policy, waiter), self.rank_of(victim)
        if own and rank == other:
            return "" if not waiter.preemptible else f"S7 {waiter.id} takes its equal {victim.id}"
        theirs = self.of_holder(victim)
        if not theirs < mine or (own and other > rank):
            return f"S7 {waiter.id} {mine} takes {victim.id} {theirs}"
        return self.in_one_band(waiter, policy, victim)

    def in_one_band(self, waiter: Request, policy: Policy, victim: Allocation) -> str:
        """Why the table of classes forbids a taking, where it does."""
        rank, other = self.rank(policy, waiter), self.rank_of(victim)
        if self.pool.settings.class_bands and rank != other and BANDS[rank] <= BANDS[other]:
            return f"S7 {waiter.id} of class {rank} takes {victim.id} of class {other}: one band"
        return ""

    def not_by_amounts(self, waiter: Request, policy: Policy, victims: Iterable[Allocation]) -> str:
        """Why a set of victims is not legal by amounts; nothing if it is."""
        victims = list(victims)
        found = [self.in_one_band(waiter, policy, each) for each in victims]
        found.append(amount_checks.wrong(self.state, waiter, policy, [each.id for each in victims]))
        return "; ".join(filter(None, found))

    # What it costs -----------------------------------------------------------------------------

    def cost(self, victims: Iterable[Allocation]) -> float:
        if self.pool.settings.price is not Price.CHECKPOINT:
            return 0
        return sum(self._price(each) + self.pool.settings.per_victim_cost for each in victims)

    def _price(self, each: Allocation) -> float:
        request = self.state.requests[each.request_id]
        kind = self.state.policies[each.policy_id].kind
        began = self.state.now if each.started_at is None else each.started_at
        ran = (self.state.now - began) // MINUTE
        if request.stop_policy.checkpoint is Checkpoint.AUTO:
            price = 5.0 * (3 if kind is Kind.ML_TRAINING else 1)
        else:  # what it computed is lost, on all of its GPUs
            price = float(ran * max(request.amounts.get("gpu", 0), 1))
        if whole := (each.walltime or 0) // MINUTE:
            used = ran / whole
            done = self.pool.settings.near_completion_fraction
            price += 1000 if used >= done else 1 if used < 0.1 else 100 * used
        return price * (0.5 if kind is Kind.INTERACTIVE else 1)

    def value(self, waiter: Request) -> float:
        if not self.pool.settings.value_bound or self.pool.settings.price is not Price.CHECKPOINT:
            return inf
        if waiter.walltime is None or self.is_immediate(waiter):
            return inf
        rank = waiter.terms.preemption_class if self.pool.settings.rank is Rank.CLASS else 0
        return waiter.walltime / MINUTE * waiter.amounts.get("gpu", 1) * (1 + rank)

    def is_immediate(self, waiter: Request) -> bool:
        """Sensitive work and the highest class neither wait first nor are worth too little."""
        return waiter.terms.sensitive or (
            self.pool.settings.rank is Rank.CLASS and waiter.terms.preemption_class >= HIGHEST
        )

    # Room --------------------------------------------------------------------------------------

    def fits(self, request: Request, nodes: Iterable[str], used: Usage) -> bool:
        """Whether a demand fits beside what is used; on nodes, on these."""
        if self.pool.nodes is None:
            return within(request.amounts, used.get("", {}), self.pool.capacity)
        shape, places = request.shape, 0
        for node_id in nodes:
            node = self.state.nodes[node_id]
            if not node.usable or not suits(request, node):
                continue
            here = dict(used.get(node_id, {}))
            most = request.tasks
            if shape is not None and shape.per_node is not None:
                most = shape.per_node
            while most and within(one_task(request), here, node.amounts):
                here = total([here, one_task(request)])
                most, places = most - 1, places + 1
        return places >= request.tasks

    def is_enough(
        self,
        waiter: Request,
        policy: Policy,
        gone: set[str],
        mine: Standing,
        reaches: list[set[str]],
    ) -> bool:
        """Whether a waiter would fit with these gone, beside promises that it may not cut."""
        stays = usage(
            self.state,
            self.pool.id,
            (a for a in self.state.allocations.values() if not a.leaving and a.id not in gone),
        )
        own = {each for each in gone if self.state.allocations[each].policy_id == policy.id}
        uncut = [
            each
            for each in self.state.waiting()
            if each.earmark is not None
            and each.earmark.pool_id == self.pool.id
            and each.id != waiter.id
            and self.of_owner(each, own) >= mine
            and not (
                self.rank(policy, each) == self.rank(policy, waiter)
                and gives_way(self.state, each, waiter, policy)
            )
        ]
        beside = both(stays, promised(self.state, self.pool.id, uncut))
        return limits_ok(self.state, waiter, policy, gone, "promised", uncut) and any(
            self.fits(waiter, nodes, beside) for nodes in reaches
        )

    def is_needed(
        self,
        waiter: Request,
        policy: Policy,
        gone: set[str],
        mine: Standing,
        reaches: list[set[str]],
    ) -> bool:
        """Whether a waiter would fit with these gone, and with none of them there."""
        return self.is_enough(waiter, policy, gone, mine, reaches) and not any(
            self.is_enough(waiter, policy, gone - {each}, mine, reaches) for each in gone
        )

    def levels(
        self, waiter: Request, policy: Policy, gone: Iterable[str] = ()
    ) -> Iterator[tuple[int, list[set[str]]]]:
        """The rights at which a waiter could be granted, and where it could sit then."""
        if not self.by_place:
            rights = rights_then(self.state, waiter, policy, gone)
            yield rights, self.reaches(waiter, policy, rights)
            return
        yield IN_SHARE, self.reaches(waiter, policy, IN_SHARE)
        if waiter.preemptible:
            yield BORROWED, self.reaches(waiter, policy, BORROWED)


# A taking --------------------------------------------------------------------------------------


class Judged:
    """One preemption: judged before it is carried out, and after."""

    def __init__(self, state: State, waiter: Request, policy: Policy, victims: list[str]) -> None:
        self.now = Classes(state, state.pools[policy.pool_id])
        self.waiter, self.policy, self.victims = waiter, policy, victims
        now = self.now
        self.holders = [state.allocations[each] for each in victims]
        self.rights = rights_then(state, waiter, policy, victims)
        self.why = {
            (rights, each.id): now.forbidden(waiter, policy, self._standing(rights), each)
            for rights in {self.rights, IN_SHARE, BORROWED}
            for each in self.holders
        }
        for each in self.holders:
            if why := now.shielded(each):
                raise Broken(f"S6 {each.id} {why}")
        self.not_by_amounts = now.not_by_amounts(waiter, policy, self.holders)
        self.by_amounts = not self.not_by_amounts and any(
            self.why[self.rights, each.id] for each in self.holders
        )
        self._count()

    def _standing(self, rights: int) -> Standing:
        return self.now.standing(self.now.rank(self.policy, self.waiter), rights)

    def _count(self) -> None:
        now, most = self.now, self.now.pool.settings.max_victims
        if 0 < most < len(self.victims):
            raise Broken(f"{self.waiter.id} takes {len(self.victims)} victims of at most {most}")
        cost, value = now.cost(self.holders), now.value(self.waiter)
        if not cost < value:
            raise Broken(f"{self.waiter.id} is worth {value}, and its victims cost {cost}")
        if not own_room_ok(now.state, self.waiter, self.policy, promise=True):
            raise Broken(f"S8 {self.waiter.id} is over its own bound and still takes")
        self._check_needed()
        if now.pool.settings.patience is Patience.STARVATION:
            ledger = now.state.ledgers[now.pool.id]
            if hunger(now.state, ledger, self.waiter, self.policy.id) is Starving.NON_STARVING:
                raise Broken(f"S7 {self.waiter.id} does not starve and takes {self.victims}")

    def _check_needed(self) -> None:
        """Nobody is stopped who is not in the way: for rights alone neither."""
        now, gone = self.now, set(self.victims)
        mine = LOWEST if self.by_amounts else self._standing(self.rights)
        if now.by_place or claims(now.state, now.pool.id):
            return
        reaches = now.reaches(self.waiter, self.policy, self.rights)
        for each in self.victims:
            if now.is_enough(self.waiter, self.policy, gone - {each}, mine, reaches):
                raise Broken(f"S8 {each} was not needed for {self.waiter.id}")

    def after(self) -> None:
        """The waiter stands where it was promised a place: at home only with all of its nodes."""
        state, pool = self.now.state, self.now.pool
        owner = state.requests[self.waiter.id]
        if owner.earmark is None or owner.earmark.pool_id != pool.id:
            raise Broken(f"S8 {self.victims} were stopped, and {owner.id} is promised nothing")
        then = Classes(state, pool)
        nodes = {node_id for node_id, _ in owner.earmark.footprint}
        rights = self.rights
        if then.by_place:
            rights = then.place(self.policy, nodes)
        for each in self.holders:
            if self.by_amounts or pool.settings.share is not Share.RESERVED:
                continue
            if why := self.why[rights, each.id]:
                raise Broken(f"{why}, and {self.not_by_amounts}")
        stays = both(staying(state, pool.id), promised(state, pool.id))
        for where, used in stays.items():
            most = state.nodes[where].amounts if where else pool.capacity
            if not within(dict.fromkeys(used, 0) | {"gpu": 0}, used, most) or any(
                amount > most.get(key, 0) for key, amount in used.items() if key in most
            ):
                raise Broken(f"S8 {self.victims} are not enough for {owner.id}")


# A state ---------------------------------------------------------------------------------------


def check_class_safety(state: State) -> None:
    """What holds everywhere: by recount, and that everybody is told why it waits."""
    if broken := audit.check(state):
        raise Broken("; ".join(broken))
    for request in list(state.waiting()):
        reason = waiting_reason(state, request)
        if "?" in reason.text + reason.fix:
            raise Broken(f"L10 the reason of {request.id} is incomplete: {reason}")


# Promises --------------------------------------------------------------------------------------


def class_promises(state: State, pool: Pool) -> Promises:
    now = Classes(state, pool)
    owners = [each for each in state.waiting() if each.earmark is not None]
    return Promises({each.id: now.of_owner(each) for each in owners}, {a.id for a in now.live})


def check_class_promises(state: State, pool: Pool, before: Promises, *, aged: bool) -> None:
    """Nobody is stopped for a waiter that does not start (S8, S28)."""
    now = Classes(state, pool)
    came = [now.of_holder(each) for each in now.live if each.id not in before.holders]
    there = class_promises(state, pool).owners
    check_lost(
        state, before, [*came, *(there[each] for each in there.keys() - before.owners)], aged
    )
