"""Reading a snapshot: plain data to a state, refusing whatever names nothing or could never have
come about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from cede.engine import edits
from cede.engine.presets import DEFAULT
from cede.engine.state import Entity, State
from cede.model import bounds
from cede.model.allocation import Allocation, allocation_id
from cede.model.amounts import parse_amount, parse_amounts
from cede.model.errors import CedeError, Invalid
from cede.model.lifecycle import AllocationState, RequestStatus
from cede.model.policy import Policy
from cede.model.reason import Code, Reason
from cede.model.request import Earmark, OnSilence, Preemptions, Request, Retry, Withhold
from cede.model.resources import ResourceSettings
from cede.model.settings import parse_duration, parse_instant
from cede.model.subject import Subject, parse_name

Entry = Mapping[str, Any]


class SnapshotError(CedeError):
    """Something in a snapshot is wrong; `path` says where, such as `running[2].pool`."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        self.problem = problem


_TOP = {"now", "pools", "policies", "nodes", "running", "requests"}
_POOL = {"name", "preset", "capacity", "settings", "description", "shrunk"}
_POLICY = {"pool", "name", "component", "component_type", "priority", "reserved", "limit"}
_COMMON = {
    *("id", "component", "component_type", "pool", "resources", "settings", "preemptible"),
    *("submitted_at", "submitted_index", "attempt", "preempted_count", "retries", "retry_delay"),
    *("retry_backoff", "walltime", "lease", "lease_until", "on_silence", "tasks"),
}
_RUNNING = _COMMON | {
    *("request", "allocated_at", "started_at", "index", "state", "for", "cancelled", "deadline"),
    *("told", "nodes"),
}
_WAITING = _COMMON | {"earmark", "bypassed", "withhold", "not_before"}
_STATES = {
    "running": AllocationState.RUNNING,
    "preempting": AllocationState.STOPPING,
    "lost": AllocationState.LOST,
}


def load(data: object) -> State:
    """The state that a snapshot describes, its clock at the snapshot's `now`."""
    top = _map(data, "", _TOP)
    now = _timed(top, "", "now", 0)
    reader = _Reader(now)
    if top.get("nodes"):
        raise SnapshotError("nodes", "pools made of nodes are not supported yet; leave it empty")
    for which, read in (("pools", reader.pool), ("policies", reader.policy)):
        for path, entry in _entries(top, which):
            read(path, entry)
    running, requests = _entries(top, "running"), _entries(top, "requests")
    known = {
        str(entry.get("request", entry.get("id")))
        for _, entry in (*running, *requests)
        if isinstance(entry, Mapping)
    }
    for position, (path, entry) in enumerate(running):
        reader.running(path, entry, position, known)
    for position, (path, entry) in enumerate(requests):
        reader.waiting(path, entry, len(running) + position)
    return reader.finish()


class _Reader:
    def __init__(self, now: int) -> None:
        self.now = now
        self.state = State()
        self.pools: dict[str, str] = {}  # name: id, which is the name in a plan
        self.shrunk: set[str] = set()
        self.requests: dict[str, Request] = {}
        self.holders: list[tuple[tuple[int, int, int], int | None, Allocation, str]] = []
        self.earmarks: list[tuple[int | None, str, str, str]] = []

    def pool(self, path: str, entry: object) -> None:
        fields = _map(entry, path, _POOL)
        with _at(path):
            pool = edits.create_pool(
                self.state,
                id=str(fields.get("name")),
                name=fields.get("name"),
                capacity=fields.get("capacity"),
                preset=fields.get("preset", DEFAULT),
                settings=fields.get("settings"),
                description=fields.get("description", ""),
            )
        self.pools[pool.name] = pool.id
        if _flag(fields, path, "shrunk"):
            self.shrunk.add(pool.id)

    def policy(self, path: str, entry: object) -> None:
        fields = _map(entry, path, _POLICY)
        pool_id = self._pool_id(path, fields)
        with _at(path):
            subject = _subject(fields)
            edits.attach_policy(
                self.state,
                id=f"{pool_id}/{subject}",
                pool_id=pool_id,
                subject=subject,
                priority=fields.get("priority", 0),
                reserved=fields.get("reserved"),
                limit=fields.get("limit"),
                name=fields.get("name", ""),
            )

    def running(self, path: str, entry: object, position: int, known: set[str]) -> None:
        fields = _map(entry, path, _RUNNING)
        allocated_at = _timed(fields, path, "allocated_at", self.now)
        request = self._request(path, fields, position, allocated_at)
        policy = self._policy_in(path, request, self._pool_id(path, fields))
        state = _STATES.get(str(fields.get("state", "running")))
        if state is None:
            raise SnapshotError(f"{path}.state", f"must be one of {', '.join(_STATES)}")
        cancelled = _flag(fields, path, "cancelled")
        taken_for = fields.get("for")
        if taken_for is not None and str(taken_for) not in known:
            raise SnapshotError(f"{path}.for", f"no request {taken_for!r}")
        leaving = state is AllocationState.STOPPING or fields.get("deadline") is not None
        reason = None
        if leaving and cancelled:
            reason = Reason(Code.CANCELLED, {"actor": "an operator"})
        elif leaving:
            names = {"pool": policy.pool_id, "policy": policy.name, "beneficiary": taken_for}
            reason = Reason(Code.RECLAIM, names)
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
            started_at=_timed(fields, path, "started_at", None),
            walltime=request.walltime,
            lease_until=_timed(fields, path, "lease_until", None),
            deadline=_timed(fields, path, "deadline", None),
            told=_flag(fields, path, "told"),
            taken_for=None if taken_for is None else str(taken_for),
            reason=reason,
        )
        status = RequestStatus.PREEMPTING if leaving else RequestStatus.ALLOCATED
        self._add(path, replace(request, status=status, reason=reason))
        given = _count(fields, path, "index", None)
        order = (allocated_at, position if given is None else given, position)
        self.holders.append((order, given, allocation, path))

    def waiting(self, path: str, entry: object, position: int) -> None:
        fields = _map(entry, path, _WAITING)
        submitted = _timed(fields, path, "submitted_at", self.now)
        request = self._request(path, fields, position, submitted)
        if not self.state.policies_of(request.subject):
            raise SnapshotError(
                f"{path}.component", f"{request.subject} has no policy in any pool of this snapshot"
            )
        pool_id = self._pool_id(path, fields) if fields.get("pool") is not None else None
        if pool_id is not None:
            self._policy_in(path, request, pool_id)
        self._add(
            path,
            replace(
                request,
                pool_id=pool_id,
                bypassed=_count(fields, path, "bypassed", 0),
                withhold=self._withhold(f"{path}.withhold", fields.get("withhold")),
                not_before=_timed(fields, path, "not_before", 0),
                lease_until=_timed(fields, path, "lease_until", None),
            ),
        )
        if fields.get("earmark") is not None:
            self._earmark(f"{path}.earmark", fields["earmark"], request)

    def finish(self) -> State:
        """Put everything in its place: indexes are ranks, so that only their order matters."""
        self.holders.sort(key=lambda each: each[0])
        if all(given is not None for _, given, _, _ in self.holders):
            # A promise is older than the grant it became, so instants alone do not tell the order.
            self.holders.sort(key=lambda each: each[1] or 0)
        order: list[tuple[int | None, Allocation | None, tuple[str, str, str] | None]] = [
            (given, allocation, None) for _, given, allocation, _ in self.holders
        ]
        for given, request_id, pool_id, policy_id in sorted(
            self.earmarks, key=lambda each: (each[0] is None, each[0] or 0)
        ):
            place = len(order)
            if given is not None:
                later = (
                    at for at, each in enumerate(order) if each[0] is not None and each[0] > given
                )
                place = next(later, place)
            order.insert(place, (given, None, (request_id, pool_id, policy_id)))
        allocations = []
        for rank, (_, allocation, earmark) in enumerate(order, start=1):
            if allocation is not None:
                allocations.append(replace(allocation, index=rank))
            elif earmark is not None:
                request_id, pool_id, policy_id = earmark
                held = Earmark(pool_id, policy_id, rank)
                self.requests[request_id] = replace(self.requests[request_id], earmark=held)
        entities: list[Entity] = [*self.requests.values(), *allocations]
        last = max((each.index for each in self.requests.values()), default=0)
        # Holders before waiters: an earmark is checked against what is held.
        self.state.load(entities, index=max(len(order), last) + 1, now=self.now)
        self._check_start()
        self.state.drain()
        return self.state

    def _check_start(self) -> None:
        for pool_id, books in self.state.books.items():
            for key, held in books.live.items():
                capacity = books.pool.capacity.get(key, 0)
                if held > capacity and pool_id not in self.shrunk:
                    path = next(
                        path
                        for _, _, allocation, path in reversed(self.holders)
                        if allocation.pool_id == pool_id and allocation.amounts.get(key)
                    )
                    problem = f"pool {books.pool.name} would hold {held} {key} of {capacity}"
                    raise SnapshotError(f"{path}.resources", problem)

    def _request(self, path: str, fields: Entry, position: int, submitted: int) -> Request:
        if fields.get("tasks", 1) != 1:
            raise SnapshotError(f"{path}.tasks", "several tasks are not supported yet; must be 1")
        with _at(path):
            amounts, preemptible = _amounts(fields)
            index = _count(fields, path, "submitted_index", position)
            return Request(
                id=parse_name(str(fields.get("request", fields.get("id", ""))), "id"),
                subject=_subject(fields),
                amounts=amounts,
                submitted_at=_timed(fields, path, "submitted_at", submitted),
                index=index,
                preemptible=preemptible,
                attempt=max(1, _count(fields, path, "attempt", 1)),
                preempted_count=_count(fields, path, "preempted_count", 0),
                retry=_retry(fields),
                walltime=_duration(fields, "walltime"),
                lease=_duration(fields, "lease"),
                on_silence=_on_silence(fields),
            )

    def _add(self, path: str, request: Request) -> None:
        if request.id in self.requests:
            raise SnapshotError(f"{path}.id", f"{request.id!r} is there twice")
        self.requests[request.id] = request

    def _earmark(self, path: str, entry: object, request: Request) -> None:
        fields = _map(entry, path, {"pool", "amounts", "nodes", "index"})
        policy = self._policy_in(path, request, self._pool_id(path, fields))
        with _at(path):
            amounts = parse_amounts(fields.get("amounts", request.amounts), "amounts")
        if amounts != dict(request.amounts):
            raise SnapshotError(f"{path}.amounts", "an earmark covers its owner's whole demand")
        given = _count(fields, path, "index", None)
        self.earmarks.append((given, request.id, policy.pool_id, policy.id))

    def _withhold(self, path: str, entry: object) -> Withhold | None:
        if entry is None:
            return None
        fields = _map(entry, path, {"pool", "until"})
        return Withhold(self._pool_id(path, fields), _timed(fields, path, "until", self.now))

    def _pool_id(self, path: str, fields: Entry) -> str:
        name = fields.get("pool")
        if not isinstance(name, str) or name not in self.pools:
            known = ", ".join(self.pools) or "none"
            raise SnapshotError(f"{path}.pool", f"no pool {name!r:.80}; known are {known}")
        return self.pools[name]

    def _policy_in(self, path: str, request: Request, pool_id: str) -> Policy:
        for policy in self.state.policies_of(request.subject):
            if policy.pool_id == pool_id:
                return policy
        raise SnapshotError(
            f"{path}.component", f"{request.subject} has no policy in pool {pool_id}"
        )


@contextmanager
def _at(path: str) -> Any:
    """Say where in the snapshot something was wrong."""
    try:
        yield
    except Invalid as error:
        where = f"{path}.{error.field}" if path else error.field
        raise SnapshotError(where, error.problem) from None
    except SnapshotError:
        raise
    except CedeError as error:
        raise SnapshotError(path, str(error)) from None


def _map(value: object, path: str, known: Iterable[str]) -> Entry:
    if not isinstance(value, Mapping):
        raise SnapshotError(path, f"must be a map, not {type(value).__name__}")
    for name in value:
        if name not in known:
            where = f"{path}.{name}" if path else str(name)
            raise SnapshotError(where, f"unknown field; known are {', '.join(sorted(known))}")
    return value


def _entries(top: Entry, which: str) -> list[tuple[str, Any]]:
    value = [] if top.get(which) is None else top[which]
    if not isinstance(value, list):
        raise SnapshotError(which, "must be a list")
    return [(f"{which}[{position}]", entry) for position, entry in enumerate(value)]


def _timed(fields: Entry, path: str, name: str, default: Any) -> Any:
    if fields.get(name) is None:
        return default
    with _at(path):
        return parse_instant(fields[name], name)


def _count(fields: Entry, path: str, name: str, default: Any) -> Any:
    if fields.get(name) is None:
        return default
    with _at(path):
        return parse_amount(fields[name], name)


def _flag(fields: Entry, path: str, name: str) -> bool:
    value = fields.get(name, False)
    if not isinstance(value, bool):
        raise SnapshotError(f"{path}.{name}", f"must be true or false, not {value!r:.80}")
    return value


def _duration(fields: Entry, name: str) -> int | None:
    return None if fields.get(name) is None else parse_duration(fields[name], name)


def _subject(fields: Entry) -> Subject:
    return Subject.of(fields.get("component"), fields.get("component_type", "orchestrator"))


def _amounts(fields: Entry) -> tuple[dict[str, int], bool]:
    preemptible = fields.get("preemptible", True)
    if not isinstance(preemptible, bool):
        raise Invalid("preemptible", f"must be true or false, not {preemptible!r:.80}")
    if ("settings" in fields) == ("resources" in fields):
        raise Invalid("resources", "give either resources or settings")
    if "settings" not in fields:
        amounts = parse_amounts(fields["resources"], "resources", empty=False)
        return {key: amount for key, amount in amounts.items() if amount}, preemptible
    settings = ResourceSettings.parse(fields["settings"])
    return settings.amounts, settings.preemptible and preemptible


def _retry(fields: Entry) -> Retry:
    """`retries`: how often it may still come back; without it preemption uses none up."""
    if fields.get("retries") is None:
        return Retry(preemptions=Preemptions.FREE)
    backoff = fields.get("retry_backoff", 1)
    return Retry(
        max_retries=parse_amount(fields["retries"], "retries"),
        delay=_duration(fields, "retry_delay") or 0,
        backoff=min(parse_amount(backoff, "retry_backoff", 1), bounds.BACKOFF_MAX),
    )


def _on_silence(fields: Entry) -> OnSilence:
    try:
        return OnSilence(fields.get("on_silence", "stop"))
    except ValueError:
        raise Invalid("on_silence", f"must be {' or '.join(OnSilence)}") from None
