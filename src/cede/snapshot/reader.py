"""The snapshot reader: plain data to a state, refusing references to nothing and impossible
states.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from cede.engine.admin import edits
from cede.engine.admin.presets import DEFAULT
from cede.engine.state.entities import Entity
from cede.engine.state.loading import policies_at_once
from cede.engine.state.state import State
from cede.model.allocation import Allocation, allocation_id
from cede.model.amounts import parse_amounts
from cede.model.fields import changed, deciding, read
from cede.model.lifecycle import AllocationState, RequestStatus
from cede.model.policy import Policy
from cede.model.reason import Code, Reason
from cede.model.request import PLAIN, Earmark, Request, Withhold
from cede.model.shape import Shape
from cede.model.stopping import Saved, StopPolicy
from cede.model.subject import Subject, parse_name
from cede.model.terms import Terms
from cede.model.work import Work
from cede.snapshot import dependencies
from cede.snapshot.claims import check_claims
from cede.snapshot.clocks import CLOCKS, read_clocks
from cede.snapshot.fields import (
    Entry,
    SnapshotError,
    amounts,
    asked,
    at,
    count,
    duration,
    entries,
    entry,
    flag,
    pin,
    reason,
    retry,
    saved,
    shape,
    stop_progress,
    subject,
    terms,
    text,
    timed,
)
from cede.snapshot.nodes import Devices, footprint, members, read_node, whole_node
from cede.snapshot.order import Placed, insert
from cede.snapshot.task_groups import in_tasks, names, spread
from cede.snapshot.tenants import accept_use, read_tenant
from cede.snapshot.tree import parents_first
from cede.snapshot.writer import STOPPING_SHOWN

__all__ = ["SnapshotError", "load"]

_TOP = {"now", "pools", "policies", "nodes", "tenants", "running", "requests", "claims"}
_POOL = {
    *("name", "preset", "capacity", "nodes", "settings", "description", "shrunk", "quarantine"),
    *CLOCKS,
}
_POLICY = {
    *("pool", "name", "component", "component_type", "parent"),
    *deciding(Policy),
}
_COMMON = {
    *("id", "component", "component_type", "pool", "resources", "settings", "preemptible"),
    *("submitted_at", "submitted_index", "attempt", "preempted_count", "lost_count", "retries"),
    *("left_count", "preemptions", "retry_delay", "retry_backoff", "lease", "lease_until"),
    *("tasks", "work", "saved", "part_of", "array_task", "pin"),
    *("owner", "policy", "last_checkpoint_at"),
    *(name for part in (Request, Shape, StopPolicy, Terms) for name in deciding(part)),
}
_RUNNING = _COMMON | {
    *("request", "allocated_at", "started_at", "index", "state", "for", "cancelled", "reason"),
    *("deadline", "told", "nodes", "members", "parting", "asked", "nowhere_else"),
    *("announced", "looks", "resume_point"),
}
_WAITING = _COMMON | {"gang", "earmark", "bypassed", "withhold", "not_before", "suspended"}
_EARMARK = {"pool", "amounts", "nodes", "index"}
_WITHHOLD = {"pool", "until", "nodes", "start"}
_STATES = {
    STOPPING_SHOWN if each is AllocationState.STOPPING else str(each): each
    for each in AllocationState
    if each is not AllocationState.ENDED
}
_CANCELLED = Reason(Code.CANCELLED, {"actor": "an operator"})
# The command of work is not in a snapshot; only that agents run it matters to decisions.
_UNTOLD = Work(("untold",))


def load(data: object) -> State:
    """The state that a snapshot describes, with the clock at its `now`."""
    top = entry(data, "", _TOP)
    now = timed(top, "", "now", 0)
    reader = _Reader(now)
    for path, each in entries(top, "nodes"):
        reader.node(path, each)
    for path, each in entries(top, "pools"):
        reader.pool(path, each)
    with policies_at_once(reader.state):
        for path, each in parents_first(entries(top, "policies")):
            reader.policy(path, each)
    for path, each in entries(top, "tenants"):
        read_tenant(reader.state, path, each)
    written = [
        [(path, in_tasks(path, each)) for path, each in entries(top, part)]
        for part in ("running", "requests")
    ]
    running, requests = spread(*written)
    known = names((*written[0], *written[1], *running, *requests))
    for position, (path, each) in enumerate(running):
        reader.running(path, each, position, known)
    for position, (path, each) in enumerate(requests):
        reader.waiting(path, each, len(running) + position)
    return reader.finish()


def _first(*instants: int | None) -> int:
    return next(each for each in instants if each is not None)


@dataclass(frozen=True, slots=True)
class _Holder:
    order: tuple[int, int, int]
    given: int | None  # its index in the snapshot
    allocation: Allocation
    path: str


class _Reader:
    def __init__(self, now: int) -> None:
        self.now = now
        self.state = State()
        self.pools: dict[str, str] = {}  # name: id, which is the name in a plan
        self.clocks: list[tuple[str, str, Entry]] = []
        self.shrunk: set[str] = set()
        self.requests: dict[str, Request] = {}
        self.paths: dict[str, str] = {}
        self.holders: list[_Holder] = []
        self.earmarks: list[tuple[int | None, str, Earmark]] = []

    def node(self, path: str, value: object) -> None:
        read_node(self.state, path, value, self.now)

    def pool(self, path: str, value: object) -> None:
        fields = entry(value, path, _POOL)
        with at(path):
            pool = edits.create_pool(
                self.state,
                id=str(fields.get("name")),
                name=fields.get("name"),
                capacity=fields.get("capacity"),
                nodes=fields.get("nodes"),
                preset=fields.get("preset", DEFAULT),
                settings=fields.get("settings"),
                description=fields.get("description", ""),
            )
        quarantine = timed(fields, path, "quarantine", None)
        if quarantine is not None:
            self.state.put(replace(pool, quarantine=quarantine))
        self.pools[pool.name] = pool.id
        self.clocks.append((pool.id, path, fields))
        if flag(fields, path, "shrunk"):
            self.shrunk.add(pool.id)

    def policy(self, path: str, value: object) -> None:
        fields = entry(value, path, _POLICY)
        pool_id = self._pool_id(path, fields)
        said: dict[str, Any] = {name: fields.get(name) for name in deciding(Policy)}
        with at(path):
            # Snapshots for plans may name a policy and leave out its subject.
            named = {"component": fields.get("component", fields.get("name"))}
            whose = subject({**fields, **named})
            edits.attach_policy(
                self.state,
                id=f"{pool_id}/{whose}",
                pool_id=pool_id,
                subject=whose,
                name=fields.get("name", ""),
                parent=self._parent(pool_id, fields.get("parent")),
                **said,
            )

    def _parent(self, pool_id: str, given: object) -> object:
        """A parent policy, by its subject or its name."""
        return f"{pool_id}/{given}" if f"{pool_id}/{given}" in self.state.policies else given

    def running(self, path: str, value: object, position: int, known: set[str]) -> None:
        fields = entry(value, path, _RUNNING)
        state = _STATES.get(str(fields.get("state", "running")))
        if state is None:
            raise SnapshotError(f"{path}.state", f"must be one of {', '.join(_STATES)}")
        allocated_at, started_at = self._began(path, fields, state)
        request = self._request(path, fields, position, allocated_at)
        policy = self._policy_in(path, request, self._pool_id(path, fields))
        taken_for, hinted = fields.get("for"), state is AllocationState.CHECKPOINTING
        if taken_for is not None and str(taken_for) not in known:
            raise SnapshotError(f"{path}.for", f"no request {taken_for!r}")
        allocation = Allocation(
            id=allocation_id(request.id, request.attempt),
            request_id=request.id,
            pool_id=policy.pool_id,
            policy_id=policy.id,
            amounts=request.amounts,
            preemptible=request.preemptible,
            attempt=request.attempt,
            index=0,
            allocated_at=allocated_at,
            state=state,
            started_at=started_at,
            walltime=request.walltime,
            lease_until=timed(fields, path, "lease_until", None),
            deadline=timed(fields, path, "deadline", None),
            told=flag(fields, path, "told"),
            taken_for=None if taken_for is None else str(taken_for),
            members=members(self.state, path, fields, policy.pool_id, request.tasks, state),
            stop_progress=stop_progress(fields, path, request.stop_policy, self.now, hinted),
            asked=asked(fields, path, self.now),
            announced=flag(fields, path, "announced"),
            resume=None if flag(fields, path, "looks") else text(fields, path, "resume_point"),
        )
        cancelled = flag(fields, path, "cancelled")
        why = self._stopped_for(path, fields, allocation, policy)
        status = RequestStatus.ALLOCATED if why is None else RequestStatus.PREEMPTING
        ends = _CANCELLED if why and cancelled else why
        named = policy.pool_id if flag(fields, path, "nowhere_else") else None
        self._add(path, replace(request, status=status, reason=ends, pool_id=named))
        given = count(fields, path, "index", None)
        order = (allocated_at, position if given is None else given, position)
        self.holders.append(_Holder(order, given, replace(allocation, reason=why), path))

    def _began(self, path: str, fields: Entry, state: AllocationState) -> tuple[int, int | None]:
        """The instants of its grant and of its start.

        In a snapshot written by hand, running work started when it was granted unless it says
        otherwise, and at the latest when it saved itself. A snapshot made by a server has indexes,
        and has the start of all work that has started.
        """
        runs = state is AllocationState.RUNNING and "index" not in fields
        started_at = timed(fields, path, "started_at", None)
        saved_at = timed(fields, path, "last_checkpoint_at", None) if runs else None
        allocated_at = timed(fields, path, "allocated_at", _first(started_at, saved_at, self.now))
        if started_at is None:
            return allocated_at, min(allocated_at, self.now) if runs else None
        if started_at > self.now:
            raise SnapshotError(f"{path}.started_at", "is after the instant of the snapshot")
        if started_at < allocated_at:
            raise SnapshotError(f"{path}.started_at", "is before allocated_at")
        return allocated_at, started_at

    def _stopped_for(
        self, path: str, fields: Entry, allocation: Allocation, policy: Policy
    ) -> Reason | None:
        """Why a holder is stopping, or was when it was lost; None for one that stays. A cancelled
        victim keeps the rule that stopped it first.
        """
        given = reason(fields, path)
        if not allocation.leaving and allocation.deadline is None:
            return None
        if given is not None:
            return given
        if flag(fields, path, "cancelled"):
            return _CANCELLED
        names = {"pool": policy.pool_id, "policy": policy.name}
        return Reason(Code.RECLAIM, {**names, "beneficiary": allocation.taken_for})

    def waiting(self, path: str, value: object, position: int) -> None:
        if isinstance(value, dict) and "nodes" in value:
            raise SnapshotError(f"{path}.nodes", "must be a number: which ones, the plan says")
        fields = entry(value, path, _WAITING)
        submitted = timed(fields, path, "submitted_at", self.now)
        request = self._request(path, fields, position, submitted)
        if not self.state.policies_of(request.subject):
            raise SnapshotError(
                f"{path}.component", f"{request.subject} has no policy in any pool of this snapshot"
            )
        pool_id = self._pool_id(path, fields) if fields.get("pool") is not None else None
        if pool_id is not None:
            self._policy_in(path, request, pool_id)
        suspended = flag(fields, path, "suspended")
        self._add(
            path,
            replace(
                request,
                status=RequestStatus.SUSPENDED if suspended else RequestStatus.QUEUED,
                pool_id=pool_id,
                bypassed=count(fields, path, "bypassed", 0),
                withhold=self._withhold(f"{path}.withhold", fields.get("withhold"), request),
                not_before=timed(fields, path, "not_before", 0),
                lease_until=timed(fields, path, "lease_until", None),
                saved=request.saved and replace(request.saved, index=0),
            ),
        )
        if fields.get("earmark") is not None:
            self._earmark(f"{path}.earmark", fields["earmark"], request)

    def finish(self) -> State:
        """Load everything into the state; indexes are ranks, because only their order matters."""
        dependencies.check(self.requests, self.paths)
        self.holders.sort(key=lambda each: each.order)
        if all(each.given is not None for each in self.holders):
            # A promise is older than the grant that it became, so instants alone do not give the
            # order.
            self.holders.sort(key=lambda each: each.given or 0)
        self._give_devices()
        order: list[Placed] = [
            (each.given, each.allocation.allocated_at, each.allocation) for each in self.holders
        ]
        for given, request_id, mark in sorted(
            self.earmarks, key=lambda each: (each[0] is None, each[0] or 0)
        ):
            insert(order, (given, self.now, (request_id, mark)))
        for each in self._saved():
            insert(order, (each[1].index or None, each[1].at, each))
        allocations = []
        for rank, (_, _, what) in enumerate(order, start=1):
            if isinstance(what, Allocation):
                allocations.append(replace(what, index=rank))
                continue
            request_id, of_request = what
            owner, placed = self.requests[request_id], replace(of_request, index=rank)
            self.requests[request_id] = (
                replace(owner, earmark=placed)
                if isinstance(placed, Earmark)
                else replace(owner, saved=placed)
            )
        entities: list[Entity] = [*self.requests.values(), *allocations]
        last = max((each.index for each in self.requests.values()), default=0)
        # Holders before waiters: an earmark is checked against held amounts.
        self.state.load(entities, index=max(len(order), last) + 1, now=self.now)
        for clocks in self.clocks:  # now all their elements exist
            read_clocks(self.state, *clocks)
        self._check_start()
        check_claims(self.state)
        accept_use(self.state)
        self.state.drain()
        return self.state

    def _saved(self) -> list[tuple[str, Saved]]:
        """The holders' checkpoints, oldest first: a checkpoint counts as a new start."""
        holders = (self.requests[each.allocation.request_id] for each in self.holders)
        found = [(each.id, each.saved) for each in holders if each.saved is not None]
        return sorted(found, key=lambda each: (each[1].index, each[1].at))

    def _give_devices(self) -> None:
        devices = Devices(self.state)
        for each in self.holders:
            devices.named(each.path, each.allocation)
        self.holders = [
            replace(
                each,
                allocation=replace(
                    each.allocation, members=devices.found(each.path, each.allocation)
                ),
            )
            if each.allocation.members
            else each
            for each in self.holders
        ]

    def _may_be_over(self, pool_id: str) -> bool:
        """Whether the pool, or one of its nodes, may hold more than its capacity."""
        inventory = self.state.inventories.get(pool_id)
        nodes = [] if inventory is None else inventory.spots.values()
        return pool_id in self.shrunk or any(each.node.edited for each in nodes)

    def _check_start(self) -> None:
        for pool_id, ledger in self.state.ledgers.items():
            for key, held in ledger.live.items():
                capacity = ledger.pool.capacity.get(key, 0)
                if held > capacity and not self._may_be_over(pool_id):
                    path = next(
                        each.path
                        for each in reversed(self.holders)
                        if each.allocation.pool_id == pool_id and each.allocation.amounts.get(key)
                    )
                    problem = f"pool {ledger.pool.name} would hold {held} {key} of {capacity}"
                    raise SnapshotError(f"{path}.resources", problem)
        for inventory in self.state.inventories.values():
            for spot in inventory.spots.values():
                if any(left < 0 for left in spot.free) and not spot.node.edited:
                    path = next(
                        each.path
                        for each in reversed(self.holders)
                        if each.allocation.id in spot.holdings
                    )
                    problem = f"node {spot.node.name} would hold more than it has"
                    raise SnapshotError(f"{path}.nodes", problem)

    def _request(self, path: str, fields: Entry, position: int, submitted: int) -> Request:
        with at(path):
            each, preemptible = amounts(fields, lambda: self._whole(path, fields))
            sits = shape(fields, each)
            tasks = 1 if sits is None else sits.tasks
            part_of = fields.get("part_of")
            return Request(
                id=parse_name(str(fields.get("request", fields.get("id", ""))), "id"),
                subject=self._subject(path, fields),
                amounts={key: amount * tasks for key, amount in each.items()},
                submitted_at=timed(fields, path, "submitted_at", submitted),
                index=count(fields, path, "submitted_index", position),
                preemptible=preemptible,
                attempt=max(1, count(fields, path, "attempt", 1)),
                preempted_count=count(fields, path, "preempted_count", 0),
                lost_count=count(fields, path, "lost_count", 0),
                left_count=count(fields, path, "left_count", 0),
                retry=retry(fields, path),
                lease=duration(fields, "lease"),
                shape=sits,
                work=_UNTOLD if flag(fields, path, "work") else None,
                stop_policy=changed(PLAIN, fields),
                saved=saved(fields, path, self.now),
                pin=pin(fields, path),
                terms=terms(fields),
                part_of=None if part_of is None else text(fields, path, "part_of"),
                array_task=count(fields, path, "array_task", None),
                owner=text(fields, path, "owner"),
                **read(Request, fields),
            )

    def _whole(self, path: str, fields: Entry) -> dict[str, int]:
        """The amounts of one whole node that the request may use."""
        places = self.state.policies_of(self._subject(path, fields))
        given = fields.get("pool")
        pools = {each.pool_id for each in places if given in (None, each.pool_id)}
        return whole_node(self.state, path, fields, pools)

    def _subject(self, path: str, fields: Entry) -> Subject:
        """The subject of an entry: its component, or the subject of the policy that it names."""
        name = fields.get("policy")
        if name is None:
            return subject(fields)
        pool = fields.get("pool")
        found = {
            each.subject: None
            for each in self.state.policies.values()
            if each.name == name and (pool is None or each.pool_id == self.pools.get(str(pool)))
        }
        if len(found) != 1:
            which = "more than one policy is" if found else "no policy is"
            where = "this snapshot" if pool is None else f"pool {pool!s:.80}"
            raise SnapshotError(f"{path}.policy", f"{which} named {name!r:.80} in {where}")
        whose = next(iter(found))
        given = {"component": whose.name, "component_type": whose.type} | {
            each: fields[each] for each in ("component", "component_type") if each in fields
        }
        if subject(given) != whose:
            raise SnapshotError(f"{path}.component", f"policy {name} is of {whose}")
        return whose

    def _add(self, path: str, request: Request) -> None:
        if request.id in self.requests:
            raise SnapshotError(f"{path}.id", f"{request.id!r} is there twice")
        self.requests[request.id] = request
        self.paths[request.id] = path

    def _earmark(self, path: str, value: object, request: Request) -> None:
        fields = entry(value, path, _EARMARK)
        policy = self._policy_in(path, request, self._pool_id(path, fields))
        with at(path):
            whole = parse_amounts(fields.get("amounts", request.amounts), "amounts")
        if whole != dict(request.amounts):
            raise SnapshotError(f"{path}.amounts", "an earmark covers its owner's whole demand")
        given = count(fields, path, "index", None)
        where = footprint(self.state, path, fields, policy.pool_id, request.tasks)
        self.earmarks.append((given, request.id, Earmark(policy.pool_id, policy.id, 0, where)))

    def _withhold(self, path: str, value: object, request: Request) -> Withhold | None:
        if value is None:
            return None
        fields = entry(value, path, _WITHHOLD)
        pool_id = self._pool_id(path, fields)
        where = footprint(self.state, path, fields, pool_id, request.tasks)
        until = timed(fields, path, "until", self.now)
        start = timed(fields, path, "start", None)
        return Withhold(pool_id, until, where, start)

    def _pool_id(self, path: str, fields: Entry) -> str:
        """The pool that the entry names; it may be left out if there is only one."""
        name = fields.get("pool")
        if name is None and len(self.pools) == 1:
            return next(iter(self.pools.values()))
        if not isinstance(name, str) or name not in self.pools:
            known = ", ".join(self.pools) or "none"
            wrong = "is missing" if name is None else f"no pool {name!r:.80}"
            raise SnapshotError(f"{path}.pool", f"{wrong}; known are {known}")
        return self.pools[name]

    def _policy_in(self, path: str, request: Request, pool_id: str) -> Policy:
        for policy in self.state.policies_of(request.subject):
            if policy.pool_id == pool_id:
                return policy
        raise SnapshotError(
            f"{path}.component", f"{request.subject} has no policy in pool {pool_id}"
        )
