"""What must hold where classes, homes or prices decide, said once more without the engine's own
bookkeeping: whose a node is, who may be stopped for whom, at what price, and that nobody rests
while a set of victims exists, found by trying all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import floor, inf

from cede.engine import audit
from cede.engine.explain import waiting_reason
from cede.engine.fair.status import Starving
from cede.engine.fairness import hunger
from cede.engine.standing import BORROWED, IN_SHARE
from cede.engine.state import State
from cede.model.allocation import Allocation
from cede.model.amounts import total
from cede.model.lifecycle import AllocationState
from cede.model.node import Node
from cede.model.parting import Checkpoint
from cede.model.policy import Kind, Policy
from cede.model.pool import Pool
from cede.model.request import Request
from cede.model.settings import Patience, Precedence, Price, Rank, Share

from .checks import (
    Broken,
    Promises,
    Usage,
    both,
    claims,
    held_now,
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

MINUTE = 60_000
HIGHEST, UNSAVED = 10, 7
BANDS = {0: 0} | dict.fromkeys((1, 2, 3), 1) | dict.fromkeys((4, 5, 6), 2)
BANDS |= dict.fromkeys((7, 8, 9), 3) | {10: 4}

Standing = tuple[int, int]


def is_classed(pool: Pool) -> bool:
    """Whether these checks are the ones for a pool."""
    return pool.settings.rank is Rank.CLASS or pool.settings.price is Price.CHECKPOINT


@dataclass
class Classes:
    """One pool as it is now."""

    state: State
    pool: Pool

    # Whose nodes -------------------------------------------------------------------------------

    @cached_property
    def owners(self) -> dict[str, str]:
        """Nodes that are somebody's: of two who would have one, the first by name has it."""
        found: dict[str, str] = {}
        for policy in sorted(self._policies, key=lambda each: (each.name, each.id)):
            for node in self._nodes:
                if policy.home is not None and policy.home.has(node.name, node.labels):
                    found.setdefault(node.id, policy.id)
        return found

    @property
    def _nodes(self) -> list[Node]:
        return [each for each in self.state.nodes.values() if each.pool_id == self.pool.id]

    @property
    def _policies(self) -> list[Policy]:
        return [each for each in self.state.policies.values() if each.pool_id == self.pool.id]

    def home(self, policy: Policy) -> set[str]:
        return {node_id for node_id, owner in self.owners.items() if owner == policy.id}

    @property
    def by_place(self) -> bool:
        """Whether home is a place: as soon as one policy has nodes of its own."""
        has_nodes = self.pool.nodes is not None
        return has_nodes and any(each.home is not None for each in self._policies)

    def strangers(self, lender: Policy) -> set[str]:
        """Those of a policy's nodes on which others sit, or were promised a place."""
        found = {
            member.node_id
            for each in self.live
            if each.policy_id != lender.id
            for member in each.members
        }
        for each in self.state.waiting():
            mark = each.earmark
            if mark is not None and mark.pool_id == self.pool.id and mark.policy_id != lender.id:
                found |= {node_id for node_id, _ in mark.footprint}
        return found & self.home(lender)

    def most_lent(self, lender: Policy) -> int:
        if not lender.allow_lending or lender.kind is Kind.SENSITIVE:
            return 0
        return floor(lender.max_borrow_pct * len(self.home(lender)) + 1e-9)

    def reaches(self, request: Request, policy: Policy, rights: int) -> list[set[str]]:
        """The sets of nodes, each of which a waiter may use at these rights."""
        if rights == IN_SHARE and self.by_place:
            return [self.home(policy)]
        every = {each.id for each in self._nodes}
        mine = {each for each in every if self.owners.get(each, policy.id) == policy.id}
        if not policy.allow_borrowing or self._is_settled(request, policy):
            return [mine]
        options: list[set[str]] = [mine]
        for lender in self._policies:
            if lender.id != policy.id and self.home(lender):
                lent = list(self._lendable(lender))
                options = [each | more for each in options for more in lent]
        return options

    def _lendable(self, lender: Policy) -> Iterator[set[str]]:
        """What one policy may lend: what is lent already, with as many idle ones as it may."""
        if not self.most_lent(lender):
            yield set()
            return
        lent = self.strangers(lender)
        used = {member.node_id for each in self.live for member in each.members}
        for each in self.state.waiting():
            if each.earmark is not None:
                used |= {node_id for node_id, _ in each.earmark.footprint}
        idle = self.home(lender) - used
        more = min(max(self.most_lent(lender) - len(lent), 0), len(idle))
        for some in combinations(sorted(idle), more):
            yield lent | set(some)

    def _is_settled(self, request: Request, policy: Policy) -> bool:
        """Whether nobody could stop it, and nothing says when it ends."""
        if request.walltime is not None:
            return False
        sensitive = policy.kind is Kind.SENSITIVE and self.pool.settings.rank is Rank.CLASS
        return sensitive or not request.preemptible or self._is_protected(request)

    def _is_protected(self, request: Request) -> bool:
        if request.terms.sensitive:
            return True
        if self.pool.settings.rank is not Rank.CLASS:
            return False
        mine = request.terms.preemption_class
        unsaved = request.farewell.checkpoint is Checkpoint.NONE and mine >= UNSAVED
        return mine >= HIGHEST or (unsaved and self.pool.settings.protect_unsaved)

    # Standing ----------------------------------------------------------------------------------

    @cached_property
    def rights(self) -> dict[str, int]:
        found = audit.rights(self.state, self.pool)
        for each in self.live:
            if self.by_place:
                nodes = {member.node_id for member in each.members}
                found[each.id] = self.place(self.state.policies[each.policy_id], nodes)
        return found

    def place(self, policy: Policy, nodes: set[str]) -> int:
        """At home only with all of its nodes."""
        return IN_SHARE if nodes <= self.home(policy) else BORROWED

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

    def of_owner(self, owner: Request) -> Standing:
        assert owner.earmark is not None
        policy = self.state.policies[owner.earmark.policy_id]
        rights = audit.rights(self.state, self.pool)[owner.id]
        if self.by_place:
            rights = self.place(policy, {node_id for node_id, _ in owner.earmark.footprint})
        return self.standing(self.rank(policy, owner), rights)

    @property
    def live(self) -> list[Allocation]:
        every = self.state.allocations.values()
        return [each for each in every if each.live and each.pool_id == self.pool.id]

    # Who may be stopped ------------------------------------------------------------------------

    def shielded(self, victim: Allocation) -> str:
        """What protects a holder from everybody; nothing if nothing does."""
        request = self.state.requests[victim.request_id]
        policy = self.state.policies[victim.policy_id]
        threshold = self.pool.settings.near_completion_threshold
        if not victim.preemptible or victim.leaving or victim.state is AllocationState.LOST:
            return "may not be stopped"
        if self._is_protected(request) or policy.kind is Kind.SENSITIVE:
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
        if self.pool.settings.class_bands and rank != other and BANDS[rank] <= BANDS[other]:
            return f"S7 {waiter.id} of class {rank} takes {victim.id} of class {other}: one band"
        return ""

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
        if request.farewell.checkpoint is Checkpoint.AUTO:
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
        if waiter.walltime is None or waiter.terms.sensitive:
            return inf
        rank = waiter.terms.preemption_class if self.pool.settings.rank is Rank.CLASS else 0
        return waiter.walltime / MINUTE * waiter.amounts.get("gpu", 1) * (1 + rank)

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
        uncut = [
            each
            for each in self.state.waiting()
            if each.earmark is not None
            and each.earmark.pool_id == self.pool.id
            and each.id != waiter.id
            and self.of_owner(each) >= mine
        ]
        beside = both(stays, promised(self.state, self.pool.id, uncut))
        return limits_ok(self.state, waiter, policy, gone, "promised") and any(
            self.fits(waiter, nodes, beside) for nodes in reaches
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
        if not own_room_ok(now.state, self.waiter, self.policy):
            raise Broken(f"S8 {self.waiter.id} is over its own bound and still takes")
        if now.pool.settings.patience is Patience.STARVATION:
            books = now.state.books[now.pool.id]
            if hunger(now.state, books, self.waiter, self.policy.id) is Starving.NON_STARVING:
                raise Broken(f"S7 {self.waiter.id} does not starve and takes {self.victims}")

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
            if pool.settings.share is Share.RESERVED and (why := self.why[rights, each.id]):
                raise Broken(why)
        stays = both(staying(state, pool.id), promised(state, pool.id))
        for where, used in stays.items():
            most = state.nodes[where].amounts if where else pool.capacity
            if not within(dict.fromkeys(used, 0) | {"gpu": 0}, used, most) or any(
                amount > most.get(key, 0) for key, amount in used.items() if key in most
            ):
                raise Broken(f"S8 {self.victims} are not enough for {owner.id}")


# A state ---------------------------------------------------------------------------------------


def check_class_state(state: State, pool: Pool) -> None:
    now = Classes(state, pool)
    _check_lending(now)
    for request in list(state.waiting()):
        for policy in state.places(request.id):
            if policy.pool_id == pool.id and request.earmark is None:
                _check_rest(now, request, policy)


def check_class_safety(state: State) -> None:
    """What holds everywhere: by recount, and that everybody is told why it waits."""
    if broken := audit.check(state):
        raise Broken("; ".join(broken))
    for request in list(state.waiting()):
        reason = waiting_reason(state, request)
        if "?" in reason.text + reason.fix:
            raise Broken(f"L10 the reason of {request.id} is incomplete: {reason}")


def _check_lending(now: Classes) -> None:
    for lender in now._policies:
        lent = now.strangers(lender)
        if len(lent) > now.most_lent(lender):
            raise Broken(f"{lender.name} lends {sorted(lent)}, at most {now.most_lent(lender)}")
    for each in now.live:
        request, policy = now.state.requests[each.request_id], now.state.policies[each.policy_id]
        abroad = {
            m.node_id for m in each.members if now.owners.get(m.node_id, policy.id) != policy.id
        }
        if abroad and (now._is_settled(request, policy) or not policy.allow_borrowing):
            raise Broken(f"{each.id} sits on {sorted(abroad)}, and is never lent anything")


def _check_rest(now: Classes, request: Request, policy: Policy) -> None:
    """Nothing that fits is left waiting (L2), nor while others could be made to yield (L3)."""
    state, pool = now.state, now.pool
    if not own_room_ok(state, request, policy):
        return
    withheld = any(each.withhold for each in state.waiting() if each.id != request.id)
    beside = promised(state, pool.id)
    used, held = both(staying(state, pool.id), beside), held_now(state, pool.id)
    held = held if pool.nodes is None else both(held, beside)
    for _, reaches in now.levels(request, policy):
        fits = any(
            now.fits(request, each, used) and now.fits(request, each, held) for each in reaches
        )
        if fits and limits_ok(state, request, policy, (), "held") and not withheld:
            raise Broken(f"L2 {request.id} fits pool {pool.name} and waits")
    if withheld or any(claims(state, each.pool_id) for each in state.places(request.id)):
        return
    if pool.settings.patience is Patience.STARVATION:
        return  # the clocks decide, and who starves is checked where shares are
    if legal := _legal_set(now, request, policy):
        raise Broken(f"L3 {request.id} could take {legal}, and waits")


def _legal_set(now: Classes, waiter: Request, policy: Policy) -> list[str]:
    """A set of victims that would do, by trying all of them."""
    state, settings = now.state, now.pool.settings
    most = settings.max_victims or len(now.live)
    soon = _starts_at(now, waiter, policy) if settings.wait_first else inf
    holders = [each for each in now.live if not now.shielded(each)]
    for count in range(1, most + 1):
        for some in combinations(holders, count):
            if not now.cost(some) < now.value(waiter):
                continue
            if soon <= state.now + max(_parting(now, each) for each in holders):
                continue
            gone = {each.id for each in some}
            # Whoever would be in share only once its own policy's others are gone does not take
            # them: it is judged with them there.
            others = {each.id for each in some if each.policy_id != policy.id}
            for rights, reaches in now.levels(waiter, policy, others):
                mine = now.standing(now.rank(policy, waiter), rights)
                if any(now.forbidden(waiter, policy, mine, each) for each in some):
                    continue
                if now.is_enough(waiter, policy, gone, mine, reaches):
                    return sorted(gone)
    return []


def _parting(now: Classes, each: Allocation) -> int:
    saves = now.state.requests[each.request_id].farewell.checkpoint is Checkpoint.AUTO
    return (5 * MINUTE if saves else 0) + now.pool.settings.grace


def _starts_at(now: Classes, waiter: Request, policy: Policy) -> float:
    """When walltimes, and those who leave, have made room for a waiter."""
    if waiter.terms.sensitive:
        return inf
    ends = []
    for each in now.live:
        until = each.deadline if each.leaving else None
        known = [at for at in (each.ends_at, until) if at is not None]
        if known and each.state is not AllocationState.LOST:
            ends.append((min(known), each.id))
    gone: set[str] = set()
    for at, holder in sorted(ends):
        gone.add(holder)
        stays = (a for a in now.state.allocations.values() if a.id not in gone)
        used = both(usage(now.state, now.pool.id, stays), promised(now.state, now.pool.id))
        for _, reaches in now.levels(waiter, policy):
            if any(now.fits(waiter, each, used) for each in reaches):
                return max(at, now.state.now)
    return inf


# Promises --------------------------------------------------------------------------------------


def class_promises(state: State, pool: Pool) -> Promises:
    now = Classes(state, pool)
    owners = [each for each in state.waiting() if each.earmark is not None]
    return Promises({each.id: now.of_owner(each) for each in owners}, {a.id for a in now.live})


def check_class_promises(state: State, pool: Pool, before: Promises) -> None:
    """Nobody is stopped for a waiter that does not start (S8, S28): left alone, an owner keeps its
    promise until it holds, unless somebody of higher standing came first.
    """
    now = Classes(state, pool)
    came = [now.of_holder(each) for each in now.live if each.id not in before.holders]
    there = class_promises(state, pool).owners
    came += [each for owner, each in there.items() if owner not in before.owners]
    for owner_id, mine in before.owners.items():
        request = state.requests[owner_id]
        lost = request.waiting and request.earmark is None
        if lost and not any(each > mine for each in came):
            raise Broken(f"S8 {owner_id} was promised capacity and lost it to nobody above it")
