"""The inputs and results of the store, beside the model's own values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from cede.engine.state.changes import Changes
from cede.engine.state.state import State
from cede.model import bounds
from cede.model.allocation import Allocation
from cede.model.amounts import Amounts
from cede.model.policy import Policy
from cede.model.request import Request
from cede.model.tenant import Tenant
from cede.model.token import Token
from cede.model.usage import Usage
from cede.model.wall import Note

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Idempotency:
    """The identity of a call, by which a repeated call is recognised (S19).

    The caller's token, the route and the key; and the hash of the body.
    """

    key: str
    route: str
    token_id: str
    body_hash: str

    @property
    def place(self) -> tuple[str, str, str]:
        return (self.token_id, self.route, self.key)


@dataclass(frozen=True, slots=True)
class Remembered:
    """The answer that was given under an idempotency key, as JSON text."""

    idempotency: Idempotency
    response: str
    at: int


@dataclass(frozen=True, slots=True)
class AuditNote:
    """One privileged action, before it has its place in the chain."""

    created: str
    actor: str
    action: str
    target: str
    detail: dict[str, Any]


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """The same with its place.

    `hash` covers this entry and, through `previous`, every one before it.
    """

    number: int
    note: AuditNote
    previous: str
    hash: str


@dataclass(frozen=True, slots=True)
class Moment:
    """An instant, and the reading of the machine's own clock at it.

    With these the server's clock continues after a restart.
    """

    instant: int = 0
    boot_id: str = ""
    boottime: int = 0


@dataclass(frozen=True, slots=True)
class Keep:
    """How long rows of history are kept, in milliseconds; None: for ever."""

    requests: int | None = bounds.KEEP_REQUESTS_DEFAULT
    events: int | None = bounds.KEEP_EVENTS_DEFAULT
    audit: int | None = None
    idempotency: int = bounds.IDEMPOTENCY_LIFE


@dataclass(frozen=True, slots=True)
class Run:
    """One run of retention: the new bounds of removal, and the audit entry about them.

    None: the bound stays. `audit` is the number and the hash of the last entry to remove.
    """

    note: AuditNote
    requests_before: int | None = None
    events_through: int | None = None
    audit: tuple[int, str] | None = None


@dataclass(slots=True)
class Removal:
    """The keys of the rows that one commit removes, and the rows of days that keep the sums of
    their holdings.
    """

    requests: list[tuple[Any, ...]] = field(default_factory=list)
    allocations: list[tuple[Any, ...]] = field(default_factory=list)
    events: list[tuple[Any, ...]] = field(default_factory=list)
    audit: list[tuple[Any, ...]] = field(default_factory=list)
    answers: list[tuple[Any, ...]] = field(default_factory=list)
    new_days: list[tuple[Any, ...]] = field(default_factory=list)
    more_days: list[tuple[Any, ...]] = field(default_factory=list)

    @property
    def rows(self) -> int:
        removed = (self.requests, self.allocations, self.events, self.audit, self.answers)
        return sum(map(len, removed))


@dataclass(slots=True)
class Noted:
    """The rows that one commit adds to the history of pools, the keys of rows that it removes, and
    its note of the time of day.
    """

    levels: list[tuple[Any, ...]] = field(default_factory=list)
    old_levels: list[tuple[Any, ...]] = field(default_factory=list)
    clock: Note | None = None
    old_clock: list[tuple[Any, ...]] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        return not (self.levels or self.old_levels or self.clock or self.old_clock)


@dataclass(slots=True)
class ClockRows:
    """The changes of one commit in the clocks of pools: rows, and keys of removed rows."""

    inserted: list[tuple[str, str]] = field(default_factory=list)
    updated: list[tuple[str, str]] = field(default_factory=list)
    deleted: list[tuple[str]] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        return not (self.inserted or self.updated or self.deleted)


@dataclass(slots=True)
class Batch:
    """All changes of one transaction.

    `expected` is the index that it starts from, `index` the one that it ends at.
    """

    changes: Changes
    expected: int
    index: int
    moment: Moment
    audit: list[AuditNote] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    answers: list[Remembered] = field(default_factory=list)
    deleted_requests: list[str] = field(default_factory=list)
    run: Run | None = None  # new bounds of retention; its audit entry comes last
    removal: Removal | None = None  # the rows that this commit removes
    noted: Noted | None = None  # of the history of pools
    clocks: ClockRows | None = None  # of pools


@dataclass(frozen=True, slots=True)
class Loaded:
    """The data that a new writer starts from."""

    state: State
    index: int
    epoch: int
    moment: Moment
    clocks: dict[str, str] = field(default_factory=dict)  # by pool, as JSON


class RequestView(NamedTuple):
    """A request and its latest allocation, live or ended."""

    request: Request
    allocation: Allocation | None


class PolicyView(NamedTuple):
    policy: Policy
    pool_name: str
    occupied: Amounts


class TenantView(NamedTuple):
    """A tenant, its nodes and requests that are alive, and the used part of its budget."""

    tenant: Tenant
    nodes: int
    requests: int
    budget_used: float | None


class UsageView(NamedTuple):
    """The usage of a pool, a policy, a team, a user, a tenant or a label: `id` is a name where
    there is no id, None for requests without one.

    `requests` counts those that held anything, `preempted` the attempts that were stopped for
    others, `starts` the first attempts, which had waited for `wait_time` in sum. `lost` is the lost
    usage; `pools` is the usage of each pool, by key, for its cost. `day` is set in reports by days,
    which count no requests.
    """

    id: str | None
    usage: Usage
    requests: int
    preempted: int
    lost: Usage
    starts: int
    wait_time: int
    pools: Mapping[str, Mapping[str, int]]
    day: int | None = None


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list, and the cursor of the next part; None when this was the last."""

    items: list[T]
    next: str | None
