"""What goes into the store and what comes out of it, beside the model's own values."""

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
    """What makes two calls one (S19).

    Who called, which route, under which key; and the hash of the body.
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
    """An instant, and what the machine's own clock said then.

    Enough to go on counting after a restart.
    """

    instant: int = 0
    boot_id: str = ""
    boottime: int = 0


@dataclass(frozen=True, slots=True)
class Keep:
    """How long things are kept, in milliseconds; None: for ever."""

    requests: int | None = bounds.KEEP_REQUESTS_DEFAULT
    events: int | None = bounds.KEEP_EVENTS_DEFAULT
    audit: int | None = None
    idempotency: int = bounds.IDEMPOTENCY_LIFE


@dataclass(frozen=True, slots=True)
class Run:
    """One run of retention: what is removed from now on, and the audit entry that says so.

    None: nothing more than before. `audit` is the number and the hash of the last entry to go.
    """

    note: AuditNote
    requests_before: int | None = None
    events_through: int | None = None
    audit: tuple[int, str] | None = None


@dataclass(slots=True)
class Removal:
    """Rows that one commit removes, by their keys, and the days that keep the sum of what they
    held, as rows.
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
    """What one commit adds to the history of pools, as rows, what it takes out of it, by key, and
    what it notes of the time of day.
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
    """What one commit changes of the clocks of pools: rows, and keys of rows that go."""

    inserted: list[tuple[str, str]] = field(default_factory=list)
    updated: list[tuple[str, str]] = field(default_factory=list)
    deleted: list[tuple[str]] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        return not (self.inserted or self.updated or self.deleted)


@dataclass(slots=True)
class Batch:
    """Everything that one transaction makes true.

    `expected` is the index it starts from, `index` where it ends.
    """

    changes: Changes
    expected: int
    index: int
    moment: Moment
    audit: list[AuditNote] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    answers: list[Remembered] = field(default_factory=list)
    deleted_requests: list[str] = field(default_factory=list)
    run: Run | None = None  # what retention removes from now on; its entry comes last
    removal: Removal | None = None  # what of it is removed with this commit
    noted: Noted | None = None  # of the history of pools
    clocks: ClockRows | None = None  # of pools


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a new writer starts from."""

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
    """A tenant, what of it is alive, and the part of its budget that it has used."""

    tenant: Tenant
    nodes: int
    requests: int
    budget_used: float | None


class UsageView(NamedTuple):
    """What a pool, a policy, a team, a user, a tenant or a label held: `id` is a name where that is
    all there is of it, None for requests without.

    `requests` are those that held anything, `preempted` the attempts that were stopped for others,
    `starts` the first attempts that began, which had waited for `wait_time` together. `lost` is
    what was held for nothing; `pools` is what was held of each, by key, for its cost. `day` is set
    in reports by days, which count no requests.
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
