"""The audit: recount everything from scratch and name every broken invariant.

It shares no code with what it checks: sums, rights and places are computed again, slowly, from the
entities alone. The server runs it before it takes writes and every minute; the worlds run it on
every state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from operator import attrgetter, itemgetter
from typing import Any

from cede.engine.audit import turns
from cede.engine.audit.groups import FREE, LESS_SAFE, ROUNDING, SAFE, Entitled, Held, safety
from cede.engine.state.state import State
from cede.model.allocation import Allocation, Member
from cede.model.amounts import UNBOUNDED_WHEN_ABSENT, Amounts, total, total_of_many
from cede.model.bounds import TREE_DEPTH_MAX
from cede.model.lifecycle import HOLDING, LEAVING, WAITING, AllocationState
from cede.model.node import Node
from cede.model.policy import Policy
from cede.model.pool import Pool
from cede.model.request import Earmark, Request
from cede.model.settings import Rank, Settings, Share
from cede.model.terms import USUAL

# Rights: covered by the policy's own share, one less for each band and step up the tree, or
# uncovered.
IN_SHARE, BORROWED = 2 * TREE_DEPTH_MAX, 0
# Above every instant and index: the place of a start is its instant times this, plus the index.
LATEST = 1 << 62
# A holding as it fills a share: (preemptible, less safe, place, id), and its amounts.
Filled = tuple[tuple[bool, int, int, str], Amounts]


def check(state: State) -> list[str]:
    """Every broken invariant, each with its id and the numbers; empty if there is none."""
    alive = Alive(state)
    in_turn = turns.Kept(state)
    found = [*_lives(alive), *turns.check(in_turn), *_configuration(state), *_tenants(alive)]
    kept = turns.kept_back(state, in_turn)
    for pool in state.pools.values():
        found += [*_capacity(alive, pool), *_promises(alive, pool), *_ledger(alive, pool, kept)]
        if pool.nodes is not None:
            found += _nodes(alive, pool)
        bands = bands_in(alive, pool)
        for policy in state.policies.values():
            if policy.pool_id == pool.id:
                found += _policy(alive, policy, bands)
    return found


class Alive:
    """A state with its holders and promises indexed by pool and by policy: counting costs what is
    alive, however many policies there are.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.waiting = [each for each in state.requests.values() if each.status in WAITING]
        self.allocations = [
            each for each in state.allocations.values() if each.state is not AllocationState.ENDED
        ]
        self.leaving = {each.id for each in self.allocations if each.state in LEAVING}
        self._live: dict[str, list[Allocation]] = {}
        self._promised: dict[str, list[tuple[Request, Earmark]]] = {}
        for each in self.allocations:
            for id_ in (each.pool_id, each.policy_id):
                self._live.setdefault(id_, []).append(each)
        for request in self.waiting:
            if (earmark := request.earmark) is not None:
                for id_ in (earmark.pool_id, earmark.policy_id):
                    self._promised.setdefault(id_, []).append((request, earmark))

        # By policy: its holdings in order, as counted last, and the bands that were given.
        self.in_order: dict[str, tuple[Mapping[str, int], list[Filled]]] = {}

    def live(self, of: Pool | Policy) -> list[Allocation]:
        """The live allocations in a pool, or under a policy."""
        return self._live.get(of.id, [])

    def promised(self, of: Pool | Policy) -> list[tuple[Request, Earmark]]:
        """The waiters that were promised capacity in a pool, or under a policy."""
        return self._promised.get(of.id, [])


def holdings_in_order(alive: Alive, policy: Policy, bands: Mapping[str, int]) -> list[Filled]:
    """A policy's allocations and earmarks in the order in which they fill its share; `bands` are
    those of its pool.
    """
    known = alive.in_order.get(policy.id)
    if known is None or known[0] != bands:
        known = alive.in_order[policy.id] = (bands, _in_order(alive, policy, bands))
    return known[1]


def _in_order(alive: Alive, policy: Policy, bands: Mapping[str, int]) -> list[Filled]:
    state = alive.state
    pool = state.pools[policy.pool_id]
    alone, reserved = fair_alone(state, pool), pool.settings.share is Share.RESERVED
    held: list[Filled] = []
    for each in alive.live(policy):
        last = each.index if reserved else _last_start(state, each, alone)
        place = (each.preemptible, -bands.get(each.id, 0), last, each.id)
        held.append((place, pool.metered(each.amounts)))
    for request, earmark in alive.promised(policy):
        band = bands.get(request.id, 0)
        index = _after_all(earmark.index) if alone else earmark.index
        place = (request.preemptible, -band, index, request.id)
        held.append((place, pool.metered(request.amounts)))
    return sorted(held, key=itemgetter(0))


def bands_in(alive: Alive, pool: Pool) -> dict[str, int]:
    """The safety of each holding of a pool inside its task group; only of those that have one."""
    if pool.settings.share is Share.RESERVED:
        return {}
    claims = alive.state.ledgers[pool.id].published.claims
    result: dict[str, int] = {}
    for task_group, members in task_groups_in(alive, pool).items():
        if (claim := claims.get(task_group)) is not None:
            bands = safety(members, claim)
            result |= {one.id: band for one, band in zip(members, bands, strict=True)}
    return result


def task_groups_in(alive: Alive, pool: Pool) -> dict[str, list[Held]]:
    """The staying holdings and the promises of every task group, in the order of the last start."""
    state = alive.state
    alone = fair_alone(state, pool)
    found: dict[str, list[Held]] = {}
    for each in alive.live(pool):
        if not each.leaving:
            task_group = state.requests[each.request_id].part_of or each.request_id
            held = Held(each.id, pool.metered(each.amounts), _last_start(state, each, alone))
            found.setdefault(task_group, []).append(held)
    for request, earmark in alive.promised(pool):
        index = _after_all(earmark.index) if alone else earmark.index
        held = Held(request.id, pool.metered(request.amounts), index)
        found.setdefault(request.part_of or request.id, []).append(held)
    for members in found.values():
        members.sort(key=lambda each: each.started)
    return found


def _last_start(state: State, allocation: Allocation, alone: bool) -> int:
    """The place of an allocation's last start, where shares are fair: saved progress counts as a
    new start; where they `alone` decide, starts are in order of time.
    """
    request = state.requests.get(allocation.request_id)
    saved = None if request is None else request.saved
    index = allocation.index if saved is None else max(allocation.index, saved.index)
    if not alone:
        return index
    started = allocation.started_at
    if started is None:
        return _after_all(index)
    return max(started, 0 if saved is None else saved.at) * LATEST + index


def _after_all(index: int) -> int:
    """The place of a holding that has not started: behind all others."""
    return LATEST * LATEST + index


def rights(alive: Alive, pool: Pool, gone: Container[str] = ()) -> dict[str, int]:
    """The rights of every holding of a pool, by the definition: running sums against the shares,
    from the lowest policies up; as if `gone` had given up their place.
    """
    state = alive.state
    policies = [each for each in state.policies.values() if each.pool_id == pool.id]
    if fair_alone(state, pool):
        return _groups(alive, pool, policies, gone)
    shares = {each.id: shares_of(state, each) for each in policies}
    bands = bands_in(alive, pool)
    counting = counted_keys(state, pool)
    result: dict[str, int] = {}
    by_place = any(_home(state, each) is not None for each in policies)

    def fill(policy: Policy) -> tuple[list[Amounts], list[tuple[Filled, int]]]:
        """The amounts covered here and below, and the uncovered holdings with the steps that they
        have come.
        """
        covered: list[Amounts] = []
        waiting = [(each, 0) for each in holdings_in_order(alive, policy, bands)]
        if not by_place:  # a holding that yields its place fills no share
            result.update((place[3], BORROWED) for (place, _), _ in waiting)
            waiting = [
                each
                for each in waiting
                if each[0][0][3] not in alive.leaving and each[0][0][3] not in gone
            ]
        if by_place:  # then rights go by home, not by share
            home = _home(state, policy) or set()
            for (place, _), _ in waiting:
                at_home = _nodes_of(state, place[3]) <= home
                result[place[3]] = IN_SHARE if at_home else BORROWED
            waiting = []
        for child in policies:
            if child.parent_id == policy.id:
                below, rest = fill(child)
                covered += below
                waiting += rest
        for share in shares[policy.id]:
            waiting.sort(key=lambda each: each[0][0])
            inside = _cut(share, counting, covered, (each[1] for each, _ in waiting))
            for each, distance in waiting[:inside]:
                result[each[0][3]] = IN_SHARE - distance
                covered.append(each[1])
            waiting = [(each, distance + 1) for each, distance in waiting[inside:]]
        return covered, waiting

    for policy in policies:
        if policy.parent_id is None:
            for (place, _), _ in fill(policy)[1]:
                result[place[3]] = BORROWED
    return result


def _cut(
    share: Mapping[str, float],
    counting: Iterable[str],
    covered: Iterable[Amounts],
    waiting: Iterable[Amounts],
) -> int:
    """The number of `waiting` amounts, from the first on, that a share covers after `covered`."""
    filled, inside = total(covered), 0
    running = {key: filled.get(key, 0) for key in counting}
    for amounts in waiting:
        for key in running:
            running[key] += amounts.get(key, 0)
        if any(running[key] > share.get(key, 0) for key in running):
            break
        inside += 1
    return inside


def fair_alone(state: State, pool: Pool) -> bool:
    """Whether fair shares alone decide between the policies of a pool."""
    if pool.settings.share is not Share.FAIR_SHARE or pool.settings.rank is not Rank.NONE:
        return False
    mine = (each for each in state.policies.values() if each.pool_id == pool.id)
    return not any(_home(state, each) is not None for each in mine)


def _groups(
    alive: Alive, pool: Pool, policies: list[Policy], gone: Container[str]
) -> dict[str, int]:
    """The same where fair shares alone decide: the groups of each policy's holdings, by their last
    start, non-preemptible ones first. Promises are always in share; leaving holdings fill nothing.
    """
    state = alive.state
    published = state.ledgers[pool.id].published
    result: dict[str, int] = {}
    for policy in policies:
        held = []
        for place, amounts in holdings_in_order(alive, policy, {}):
            allocation = state.allocations.get(place[3])
            if place[3] in gone or (allocation is not None and allocation.leaving):
                result[place[3]] = BORROWED
            else:
                held.append((place, Held(place[3], amounts, place[2])))
        held.sort(key=lambda each: (each[0][0], each[1].started, each[1].id))
        members = [each for _, each in held]
        due = published.dues.get(policy.id)
        found = [FREE] * len(members)
        if due is not None:
            found = safety(members, Entitled(due, _unprotecting(pool)))
        for each, group in zip(members, found, strict=True):
            promised = each.id not in state.allocations
            rights = {SAFE: IN_SHARE, LESS_SAFE: IN_SHARE - 1, FREE: BORROWED}[group]
            result[each.id] = IN_SHARE if promised else rights
    return result


def _unprotecting(pool: Pool) -> Settings:
    """The pool's settings without the usage threshold, which protects single requests and is no
    part of their policy's groups.
    """
    return replace(pool.settings, non_preemptible_resource_usage_threshold={})


def _home(state: State, policy: Policy) -> set[str] | None:
    """The ids of a policy's own nodes; of two policies for one node the first by name has it. None
    without a home.
    """
    if policy.home is None or state.pools[policy.pool_id].nodes is None:
        return None
    mine = [each for each in state.policies.values() if each.pool_id == policy.pool_id]
    taken: set[str] = set()
    for each in sorted(mine, key=lambda each: (each.name, each.id)):
        has = {
            node.id
            for node in state.nodes.values()
            if node.pool_id == policy.pool_id
            and each.home is not None
            and each.home.has(node.name, node.labels)
        } - taken
        if each is policy:
            return has
        taken |= has
    return taken


def _nodes_of(state: State, holding_id: str) -> set[str]:
    if holding_id in state.allocations:
        return {each.node_id for each in state.allocations[holding_id].members}
    earmark = state.requests[holding_id].earmark
    return set() if earmark is None else {node_id for node_id, _ in earmark.footprint}


def shares_of(state: State, policy: Policy) -> list[Mapping[str, float]]:
    """A policy's share, band by band from the safest on."""
    pool = state.pools[policy.pool_id]
    if pool.settings.share is Share.RESERVED:
        return [policy.reserved]
    share = state.ledgers[pool.id].published.shares.get(policy.id, {})
    parts = (
        pool.settings.aggressive_preemption_satisfaction_threshold,
        pool.settings.preemption_satisfaction_threshold,
    )
    return [{key: part * amount + ROUNDING for key, amount in share.items()} for part in parts]


def counted_keys(state: State, pool: Pool) -> set[str]:
    """The keys that count for rights: those of which a policy has a share."""
    if pool.settings.share is not Share.RESERVED:
        return set(pool.capacity)
    return {
        key
        for each in state.policies.values()
        if each.pool_id == pool.id
        for key, amount in each.reserved.items()
        if amount and pool.bounds_key(key)
    }


def _lives(alive: Alive) -> Iterator[str]:
    held = {each.request_id: each for each in alive.allocations}
    if len(held) < len(alive.allocations):
        for request_id, times in Counter(each.request_id for each in alive.allocations).items():
            if times > 1:
                yield f"S9 request {request_id} has {times} live allocations"
    for request in alive.state.requests.values():
        if request.status in HOLDING:
            allocation = held.pop(request.id, None)
            if allocation is None:
                yield f"S9 request {request.id} is {request.status} and holds nothing"
            elif allocation.attempt != request.attempt:
                yield f"S9 allocation {allocation.id} is not of attempt {request.attempt}"
            elif allocation.amounts != request.amounts:
                yield f"S10 allocation {allocation.id} does not hold its request's whole demand"
        if request.earmark is not None and request.status not in WAITING:
            yield f"S28 request {request.id} is {request.status} and still owns an earmark"
    for allocation in held.values():
        yield f"S9 allocation {allocation.id} is live, its request is not holding"


def _configuration(state: State) -> Iterator[str]:
    for policy in state.policies.values():
        pool = state.pools.get(policy.pool_id)
        if pool is None:
            yield f"S4 policy {policy.name} is in no pool"
            continue
        for key, amount in policy.reserved.items():
            if not 0 <= amount <= policy.limit.get(key, amount) or key not in pool.capacity:
                yield f"S4 policy {policy.name} reserves {amount} {key}"
    for pool in state.pools.values():
        mine = [each for each in state.policies.values() if each.pool_id == pool.id]
        yield from _tree(mine)
        tops = [each for each in mine if each.parent_id is None]
        for key, amount in total(each.reserved for each in tops).items():
            if amount > pool.capacity.get(key, 0):
                most = pool.capacity.get(key, 0)
                yield f"S4 pool {pool.name} has {amount} {key} reserved of {most}"


def _tenants(everything: Alive) -> Iterator[str]:
    """S2 of quotas, with its exception; S21: every cached number of a tenant equals a recount."""
    state = everything.state
    counts = state.tenancy
    alive, held, promised = Counter[str](), Counter[str](), Counter[str]()
    waiters, newest = Counter[tuple[str, str]](), dict[str, int]()
    unusual = (each for each in state.requests.values() if each.terms is not USUAL)
    owned = {each.id: each for each in unusual if each.terms.tenant}
    for request in owned.values():
        name = request.terms.tenant
        if not request.ended:
            alive[name] += 1
            promised[name] += request.tasks if request.earmark is not None else 0
            waiters.update((name, policy.pool_id) for policy in state.places(request.id))
    for each in everything.allocations if owned else ():
        if (owner := owned.get(each.request_id)) is not None:
            name = owner.terms.tenant
            held[name] += len({one.node_id for one in each.members}) or owner.tasks
            newest[name] = max(newest.get(name, 0), each.index)
    waiting = {
        (name, pool): n for name, pools in counts.waiters.items() for pool, n in pools.items()
    }
    for what, cached, recount in (
        ("alive", counts.alive, alive),
        ("held", counts.held, held),
        ("promised", counts.promised, +promised),
        ("waiting", waiting, waiters),
    ):
        if cached != dict(recount):
            yield f"S21 tenants: {what} is {cached}, recounted {dict(recount)}"
    for tenant in state.tenants.values():
        if counts.named.get(tenant.name) is not tenant:
            yield f"S21 tenant {tenant.name} is not known by its name"
        over = tenant.max_nodes is not None and held[tenant.name] > tenant.max_nodes
        if over and newest[tenant.name] > tenant.edited:
            yield f"S2 tenant {tenant.name}: {held[tenant.name]} nodes of {tenant.max_nodes}"


def _tree(policies: list[Policy]) -> Iterator[str]:
    """S4 of a pool's policies: every parent exists, no policy is below itself, and the reserves
    below a policy are within its own.
    """
    by_id = {each.id: each for each in policies}
    for policy in policies:
        seen, above = {policy.id}, policy.parent_id
        while above is not None and above in by_id and above not in seen:
            seen.add(above)
            above = by_id[above].parent_id
        if above is not None:
            yield f"S4 policy {policy.name} has a parent that is not there, or is below itself"
        below = total(each.reserved for each in policies if each.parent_id == policy.id)
        for key, amount in below.items():
            if amount > policy.reserved.get(key, 0):
                yield f"S4 policy {policy.name}: {amount} {key} reserved below it"


def _capacity(alive: Alive, pool: Pool) -> Iterator[str]:
    """S1, with its exception: nothing may have been granted over a lowered capacity since the
    edit.
    """
    live = alive.live(pool)
    for key, held in pool.metered(total_of_many(each.amounts for each in live)).items():
        if held > pool.capacity.get(key, 0):
            since = [each.id for each in live if each.index > pool.edited and each.amounts.get(key)]
            if since:
                most = pool.capacity.get(key, 0)
                yield f"S1 pool {pool.name}: {held} {key} held of {most}; {since}"


def _promises(alive: Alive, pool: Pool) -> Iterator[str]:
    """S28: staying and promised amounts together are within capacity."""
    staying = [each.amounts for each in alive.live(pool) if each.id not in alive.leaving]
    promised = [request.amounts for request, _ in alive.promised(pool)]
    both = total_of_many((*staying, *promised))
    for key in pool.metered(total_of_many(promised)):
        if both[key] > pool.capacity.get(key, 0):
            yield f"S28 pool {pool.name}: {both[key]} {key} promised of {pool.capacity.get(key, 0)}"


def _held_twice(
    allocation: Allocation, member: Member, devices: dict[tuple[str, str, str], str]
) -> Iterator[str]:
    """S3: devices of a task that another task has too; `devices` are those seen so far."""
    holder = f"{allocation.id}/{member.task}"
    for key, names in member.devices.items():
        for name in names:
            other = devices.setdefault((member.node_id, key, name), holder)
            if other != holder or names.count(name) > 1:
                yield f"S3 device {key} {name} of {member.node_id}: {other} and {holder}"


def _nodes(alive: Alive, pool: Pool) -> Iterator[str]:
    """S3, S10 and S28 on every node: tasks sit where there is room, and devices are held once. A
    node that came back with less keeps its holders and gets nothing more.
    """
    state = alive.state
    mine = {each.id: each for each in state.nodes.values() if each.pool_id == pool.id}
    if total(each.amounts for each in mine.values()) != dict(pool.capacity):
        yield f"S21 pool {pool.name}: its capacity is not what its nodes have"
    held: dict[str, list[Amounts]] = {node_id: [] for node_id in mine}
    staying: dict[str, list[Amounts]] = {node_id: [] for node_id in mine}
    newest = dict.fromkeys(mine, 0)
    devices: dict[tuple[str, str, str], str] = {}
    for each in alive.live(pool):
        tasks, members = state.requests[each.request_id].tasks, each.members
        leaving = each.id in alive.leaving
        if len(members) != tasks or not mine.keys() >= {one.node_id for one in members}:
            yield f"S10 allocation {each.id} sits on {len(members)} nodes, not on {tasks}"
            continue
        one = _of_one(pool.metered(each.amounts), tasks)
        for member in members:
            node_id = member.node_id
            held[node_id].append(one)
            newest[node_id] = max(newest[node_id], each.index)
            if not leaving:
                staying[node_id].append(one)
                node = mine[node_id]
                if node.claimed_by and each.state is not AllocationState.LOST:  # it never reported
                    yield from _intruder(state, node, each.request_id)
            if member.devices:
                yield from _held_twice(each, member, devices)
    for request, earmark in alive.promised(pool):
        for node_id, _ in earmark.footprint:
            yield from _intruder(state, mine[node_id], request.id)
    promised = _promised_on(alive, pool)
    for node_id, node in mine.items():
        for which, many in (
            ("S3", held[node_id]),
            ("S28", [*staying[node_id], *promised.get(node_id, [])]),
        ):
            if which == "S28" and node_id not in promised:
                continue
            if which == "S3" and newest[node_id] <= node.edited:
                continue
            yield from _overfull(node, which, total_of_many(many))
    yield from _inventory(state, pool, held)


def _of_one(amounts: Amounts, tasks: int) -> Amounts:
    """The amounts of one of `tasks` equal tasks."""
    return amounts if tasks == 1 else {key: n // tasks for key, n in amounts.items()}


def _overfull(node: Node, which: str, amounts: Amounts) -> Iterator[str]:
    for key, amount in amounts.items():
        # A key that this node does not meter may be metered by a node that joined later.
        metered = key in node.amounts or key not in UNBOUNDED_WHEN_ABSENT
        if metered and amount > node.amounts.get(key, 0):
            yield f"{which} node {node.name}: {amount} {key} of {node.amounts.get(key, 0)}"


def _intruder(state: State, node: Node, request_id: str) -> Iterator[str]:
    """S29: on a claimed node only sensitive work of its claimant stays, and is promised."""
    request = state.requests[request_id]
    if node.claimed_by and (request.owner != node.claimed_by or not request.terms.sensitive):
        yield f"S29 node {node.name} is claimed by {node.claimed_by}, and {request_id} has it"


def _promised_on(alive: Alive, pool: Pool) -> dict[str, list[Amounts]]:
    promised: dict[str, list[Amounts]] = {}
    for request, earmark in alive.promised(pool):
        tasks = request.tasks
        one = _of_one(pool.metered(request.amounts), tasks)
        for node_id, count in earmark.footprint:
            promised.setdefault(node_id, []).extend([one] * count)
    return promised


def _inventory(state: State, pool: Pool, held: dict[str, list[Amounts]]) -> Iterator[str]:
    """S21: every cached number of a node equals a recount."""
    inventory = state.inventories[pool.id]
    for node_id, spot in inventory.spots.items():
        used = total_of_many(held.get(node_id, []))
        for key, free in zip(inventory.keys, spot.free, strict=True):
            recount = spot.node.amounts[key] - used.get(key, 0) if key in spot.node.amounts else 0
            if taken := spot.node.others.get(key, 0):
                recount = max(recount - taken, min(recount, 0))
            if free != recount:
                yield f"S21 node {spot.node.name}: {free} {key} free, recounted {recount}"
        listed = (spot.now in inventory.now.nodes) + (spot.promise in inventory.promise.nodes)
        if listed != 2 * spot.node.usable:
            yield f"S21 node {spot.node.name} is listed {listed} times"
    for listing in (inventory.now, inventory.promise):
        if listing.grouped is not None and listing.grouped.free != _free_by_group(
            inventory, listing
        ):
            yield f"S21 pool {pool.name}: what is free in its groups is not what its nodes have"


def _free_by_group(inventory: Any, listing: Any) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for room, node_id in listing.nodes:
        group = inventory.spots[node_id].node.group
        before = found.get(group, (0,) * len(room))
        found[group] = tuple(each + max(left, 0) for each, left in zip(before, room, strict=True))
    return found


def _policy(alive: Alive, policy: Policy, bands: Mapping[str, int]) -> Iterator[str]:
    """S2 and S5, with the exception for a lowered bound."""
    state = alive.state
    pool = state.pools[policy.pool_id]
    held = holdings_in_order(alive, policy, bands)
    edited = max(policy.edited, pool.edited)
    yield from _subtree(alive, policy)
    fixed = [each for each in held if not each[0][0]]
    limits = {key: policy.limit_of(key, pool) for _, amounts in held for key in amounts}
    reserves = {key: policy.reserved_of(key, pool) for _, amounts in fixed for key in amounts}
    # Within a limit, leaving amounts may be promised, and promised amounts are not held yet.
    live = [each for each in held if each[0][3] in state.allocations]
    stays = [each for each in held if each[0][3] not in alive.leaving]
    for code, counted, bounds in (
        ("S2 limit", live, limits),
        ("S2 limit", stays, limits),
        ("S5 reserved", fixed, reserves),
    ):
        for key, amount in total_of_many(amounts for _, amounts in counted).items():
            bound = bounds[key]
            if bound is None or amount <= bound:
                continue
            since = [
                place[3]
                for place, amounts in counted
                if place[2] % LATEST > edited and amounts.get(key)
            ]
            if since:
                yield f"{code} of policy {policy.name}: {amount} {key} held of {bound}; {since}"


def _subtree(alive: Alive, policy: Policy) -> Iterator[str]:
    """S2 for a policy and those below it: held amounts, and staying plus promised amounts, are
    within its limit.
    """
    policies = alive.state.policies
    mine = {policy.id}
    while more := {p.id for p in policies.values() if p.parent_id in mine} - mine:
        mine |= more
    if len(mine) == 1:
        return
    pool = alive.state.pools[policy.pool_id]
    live = [each for one in sorted(mine) for each in alive.live(policies[one])]
    promised = [
        (earmark.index, request.amounts)
        for one in sorted(mine)
        for request, earmark in alive.promised(policies[one])
    ]
    staying = [(each.index, each.amounts) for each in live if not each.leaving]
    edited = max(policy.edited, pool.edited)
    for counted in ([(each.index, each.amounts) for each in live], [*staying, *promised]):
        for key, limit in policy.limit.items():
            amount = sum(amounts.get(key, 0) for _, amounts in counted)
            since = [index for index, amounts in counted if index > edited and amounts.get(key)]
            if amount > limit and since:
                yield f"S2 limit of policy {policy.name}: {amount} {key} below it of {limit}"


def _ledger(alive: Alive, pool: Pool, kept: Iterable[str]) -> Iterator[str]:
    """S21: every cached sum, right and place equals a recount."""
    state = alive.state
    ledger = state.ledgers[pool.id]
    live = alive.live(pool)
    recounts = {
        "live": total_of_many([each.amounts for each in live]),
        "leaving": total_of_many([each.amounts for each in live if each.id in alive.leaving]),
        "takeable": total_of_many(
            [
                each.amounts
                for each in live
                if each.preemptible
                and each.id not in alive.leaving
                and each.state is not AllocationState.LOST
                and not ledger.holdings[each.id].safe
            ]
        ),
    }
    cached = {
        "live": ledger.live,
        "leaving": ledger.leaving,
        "takeable": total(ledger.tiers.values()),
    }
    for which, whole in recounts.items():
        if (recount := pool.metered(whole)) != cached[which]:
            yield f"S21 pool {pool.name}: {which} is {cached[which]}, recounted {recount}"
    for holding_id, right in rights(alive, pool).items():
        if holding_id not in ledger.holdings or ledger.rights(holding_id) != right:
            yield f"S21 pool {pool.name}: rights of {holding_id} are not {right}"
    yield from _queues(alive, pool, kept)


def _queues(alive: Alive, pool: Pool, kept: Iterable[str]) -> Iterator[str]:
    """S21 of waiters: each is in the queue of its kind, or in none."""
    state = alive.state
    ledger, places = state.ledgers[pool.id], state.places
    absent = {*state.delayed, *kept, *(request.id for request, _ in alive.promised(pool))}
    fair = pool.settings.share is not Share.RESERVED  # then holdings decide the queue of a waiter
    queues: dict[Any, tuple[Any, list[str]]] = {}  # each with the waiters that belong to it
    last: dict[str, tuple[Any, list[str]]] = {}  # by policy: of the waiter before
    for request in alive.waiting:
        id_, asked = request.id, _asked(request)
        for policy in places(id_):
            if policy.pool_id != pool.id:
                continue
            known = last.get(policy.id)
            if known is None or fair or known[0] != asked or asked[0] is not USUAL:
                like = (policy.id, id_ if fair else _kind_of(request))
                if like not in queues:
                    queue = ledger.queues.get(ledger.queue_of(policy.id, request))
                    queues[like] = (() if queue is None else queue.members, [])
                known = last[policy.id] = (asked, queues[like][1])
            known[1].append(id_)
    for members, ids in queues.values():
        for id_ in ids:
            if (id_ in members) == (id_ in absent):
                yield f"S21 pool {pool.name}: request {id_} is not in its queue"


# What decides the queue of a waiter with usual terms.
_asked = attrgetter(
    *("terms", "amounts", "preemptible", "walltime", "stop_policy"),
    *("shape", "part_of", "pin", "subject"),
)


def _kind_of(request: Request) -> Any:
    """A key that is equal for requests of one queue; with unusual terms the request's id."""
    if request.terms is not USUAL or request.shape is not None or request.part_of or request.pin:
        return request.id
    asked = tuple(request.amounts.items())
    return asked, request.preemptible, request.walltime, request.stop_policy.checkpoint
