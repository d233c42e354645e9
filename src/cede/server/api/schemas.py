"""Models of answers, for the OpenAPI document.

Answers are built by hand in `views.py`, because validating our own values costs more than making
them; a test checks that the two agree.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from cede.model.policy import Policy
from cede.model.request import Request, Retry
from cede.model.shape import Shape
from cede.model.stopping import StopPolicy
from cede.model.terms import Terms
from cede.server.api.declared import shows

Amounts = dict[str, int]
Seconds = int | float


class Out(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)  # until the document is made


class PoolOut(Out):
    id: str
    name: str
    description: str
    preset: str
    capacity: Annotated[Amounts, Field(examples=[{"gpu": 8}])]
    nodes: dict[str, str] | None = Field(description="Labels of its nodes, if it is made of nodes.")
    occupied: Annotated[Amounts, Field(examples=[{"gpu": 6}])]
    free: Annotated[Amounts, Field(examples=[{"gpu": 2}])]
    earmarked: Amounts
    queued: int
    active: int
    quarantined: bool = Field(description="The database was restored; nothing is granted yet.")
    settings: dict[str, Any] = Field(description="All that are in force.")
    own_settings: dict[str, Any] = Field(description="Those that differ from its preset.")
    created: str


@shows(Policy)
class PolicyOut(Out):
    """A policy; the fields that the model declares are added to these."""

    id: str
    name: str
    pool: str
    pool_id: str
    component: str
    component_type: str
    parent_id: str | None
    settings: dict[str, Any] = Field(description="Its own, for itself and those below it.")
    integral: dict[str, Any]
    home: dict[str, str] | list[str] | None
    occupied: Amounts
    borrowed: Amounts
    created: str


class ReasonOut(BaseModel):
    """A typed explanation; its further names and numbers depend on the code."""

    model_config = ConfigDict(extra="allow")

    code: str
    text: str
    fix: str


class ConcernedOut(Out):
    """A request that an edit would stop, pause or start."""

    request: str
    component: str
    pool: str | None = None
    reason: ReasonOut | None = None
    for_: str | None = Field(
        default=None, alias="for", description="The request for which it would be stopped."
    )


class DryRunOut(Out):
    """The effects of an edit on work; at most 1,000 requests of each kind are listed."""

    counts: dict[str, int]
    stops: list[ConcernedOut]
    pauses: list[ConcernedOut]
    starts: list[ConcernedOut]


class FieldChangeOut(Out):
    from_: Any = Field(alias="from")
    to: Any


class ChangeOut(Out):
    """A pool, policy or tenant that was made, changed or deleted."""

    do: Literal["create", "update", "delete"]
    kind: Literal["pool", "policy", "tenant"]
    name: str = Field(description="Of a policy its subject, such as team:red.")
    pool: str | None = Field(description="Of a policy.")
    fields: dict[str, FieldChangeOut]


class AppliedOut(Out):
    """The changes; of a dry run also what they would do to work."""

    changes: list[ChangeOut]
    counts: dict[str, int] | None = None
    stops: list[ConcernedOut] | None = None
    pauses: list[ConcernedOut] | None = None
    starts: list[ConcernedOut] | None = None


class ConfigurationOut(Out):
    """Every pool, policy and tenant, each with the fields that differ from their defaults."""

    pools: list[dict[str, Any]]
    policies: list[dict[str, Any]]
    tenants: list[dict[str, Any]]


class EarmarkOut(Out):
    pool: str


class MemberOut(Out):
    """One task of an allocation, on its node."""

    task: int
    node: str
    devices: dict[str, list[str]]
    phase: str
    saved: str | None = Field(description="The checkpoint that it wrote last.")
    exit_code: int | None
    cause: str


class StopProgressOut(Out):
    """How far the stop of a victim that was asked to save itself has come."""

    hint: int
    hinted_at: Seconds
    seconds_left: Seconds
    answered: bool
    extended: bool
    deferred: Seconds
    saved: bool
    failed: bool


class AskOut(Out):
    """Running work is asked to save itself and go on."""

    hint: int
    asked_at: Seconds
    seconds_left: Seconds


class AllocationOut(Out):
    id: str
    state: str
    pool: str
    attempt: int
    allocated_at: Seconds
    started_at: Seconds | None
    ended_at: Seconds | None
    deadline: Seconds | None
    members: list[MemberOut]
    parting: StopProgressOut | None
    asked: AskOut | None


@shows(Shape)
class ShapeOut(Out):
    """How the tasks must sit; `resources` is what one of them needs."""

    resources: Amounts


class WorkOut(Out):
    argv: list[str]
    env: dict[str, str]
    directory: str
    user: str


class SavedOut(Out):
    """A verified checkpoint: the next attempt goes on from it."""

    id: str
    at: Seconds
    size: int


@shows(Retry)
class RetryOut(Out):
    """How often, and after what delay, a request comes back."""


@shows(Request, StopPolicy, Terms)
class RequestOut(Out):
    """A request; the fields that the model declares are added to these."""

    id: str | None = Field(description="Null when the request runs untracked.")
    component: str
    component_type: str
    status: str
    tracked: bool
    pool: str | None
    resources: Amounts
    preemptible: bool
    attempt: int
    preempted_count: int
    retry: RetryOut
    lease: Seconds | None
    owner: str
    created: str
    submitted_at: Seconds
    reason: ReasonOut | None
    earmark: EarmarkOut | None
    allocation: AllocationOut | None
    index: int
    tasks: int
    part_of: str | None = Field(description="The first of the independent tasks it came with.")
    array_task: int | None = Field(description="Which of its array's tasks it is.")
    parts: list[str] | None = Field(
        None, description="In the answer to a submission of independent tasks: all of them."
    )
    shape: ShapeOut | None
    command: str | None = Field(description="What agents run, shortened.")
    work: WorkOut | None = Field(description="The same whole; not in lists.")
    saved: SavedOut | None
    lost_count: int = Field(description="Attempts that a machine ended.")
    settings: dict[str, Any] = Field(description="Its own, in a pool that shares fairly.")


class HeldOut(RequestOut):
    presence: str = Field(
        description="An abstract socket that exists while some server has this database. Empty"
        " where several servers share one."
    )


class OnNodeOut(Out):
    request: str
    subject: str
    attempt: int
    state: str
    tasks: list[int]
    devices: list[str]


class NodeOut(Out):
    id: str
    name: str
    state: str
    out: str = Field(description="What an operator asked for: no, drain or disable.")
    reason: str
    quarantined: bool = Field(
        description="The database was restored, and the node has not said what it runs."
    )
    pool: str | None
    amounts: Amounts
    held: Amounts
    bridge: str | None = Field(description="The bridge that speaks for it.")
    others: Amounts = Field(description="Held outside of cede, in the cluster of its bridge.")
    others_why: str = Field(description="The holders there, or why it takes no work there.")
    free: Amounts
    devices: dict[str, list[str]]
    labels: dict[str, str]
    group: str
    fingerprint: str
    heartbeat: Seconds
    silent: Seconds = Field(description="Seconds since it was heard of.")
    failures: int
    created: str
    claimed_by: str | None = Field(
        description="The claimant, for whose sensitive work alone it is."
    )
    lease: Seconds = Field(description="How long its work survives without the server.")
    checkpoints: str | None = Field(
        description="Its checkpoint folder: `shared` by all nodes of its pool, or its `own`."
    )
    allocations: list[OnNodeOut]


class ClaimOut(Out):
    nodes: list[NodeOut]
    for_: str | None = Field(alias="for", description="The claimant from now on; null: none.")
    stopping: int = Field(description="How many are stopped for it.")


class RegisteredOut(Out):
    node: str
    epoch: int
    heartbeat: Seconds
    lease: Seconds
    token: str | None = Field(None, description="The node's own, when it joined; shown once.")
    notes: list[str] = Field(description="What its operator should know.")


class ArrayTaskOut(Out):
    """The number of a task in its array."""

    array_id: str
    task: int
    tasks: int


@shows(StopPolicy)
class OrderOut(Out):
    """The order for one task on a node; the list of orders is whole."""

    allocation: str
    request: str
    attempt: int
    task: int
    tasks: int
    do: str = Field(description="run, hint or stop; run with a hint: save yourself, and go on")
    work: WorkOut
    amounts: Amounts
    devices: dict[str, list[str]]
    nodes: list[str] = Field(description="Names of the nodes of all tasks, in order.")
    hint: int
    step: int = Field(description="Where all tasks of a gang save; 0: not agreed yet.")
    seconds_left: Seconds
    grace: Seconds
    cause: str
    keep: str = Field(description="Checkpoints that are older than this one may go.")
    resume: str | None = Field(description="Null: look what is there, and report `found`.")
    on_silence: str
    walltime: Seconds | None
    pool: str
    subject: str
    owner: str
    array: ArrayTaskOut | None = Field(description="Null: not a task of an array.")


class QuestionOut(Out):
    """A piece of a log that a caller wants to read."""

    id: str
    allocation: str
    attempt: int
    task: int
    stream: str
    offset: int
    most: int
    tail: int | None = Field(description="The last lines only.")
    since: float | None = Field(description="Printed then, in Unix time, or later.")
    age: Seconds | None = Field(description="Printed so long ago or later.")


class BridgeOut(Out):
    bridge: str
    nodes: int = Field(description="How many it speaks for.")
    epoch: int
    heartbeat: Seconds
    token: str | None = Field(None, description="The bridge's own, when it joined; shown once.")


class HeartbeatOut(Out):
    epoch: int
    index: int
    version: int
    heartbeat: Seconds
    lease: Seconds
    acknowledged: list[str]
    heard: bool = Field(description="Whether the reports of the call were stored.")
    orders: list[OrderOut]
    logs: list[QuestionOut]
    over: list[str] = Field(description="Of the requests in `saved` those that have ended.")
    quarantined: bool = Field(description="Whether the node should say its `strays`.")


class EventOut(Out):
    index: int
    at: Seconds
    time: str = Field(description="The time of day of `at`: ISO 8601, of UTC.")
    kind: str
    request_id: str | None
    pool_id: str | None
    data: dict[str, Any]


class TokenOut(Out):
    id: str
    name: str
    role: str
    subjects: list[str]
    created: str
    expires_at: str | None
    revoked: bool
    uses: int | None = Field(description="How many nodes a join token may still make.")


class NewTokenOut(TokenOut):
    token: str = Field(description="The secret. It is shown here once and stored nowhere.")


class AuditOut(Out):
    number: int
    created: str
    actor: str
    action: str
    target: str
    detail: dict[str, Any]
    previous: str = Field(description="The hash of the entry before this one.")
    hash: str


class BrokenOut(Out):
    number: int
    what: Literal["number", "previous", "hash", "head"]
    detail: str


class VerifiedOut(Out):
    end: str = Field(description="The last entry that follows from the first: NUMBER:HASH.")
    removed: str = Field(
        description="The last entry that retention removed; 0 and zeros if none: NUMBER:HASH."
    )
    head: str = Field(description="The newest entry that was stored as such: NUMBER:HASH.")
    done: bool = Field(description="Whether there is no more to verify; else go on `after` `end`.")
    broken: BrokenOut | None = Field(description="The first entry that does not follow, if any.")


class WhoamiOut(Out):
    id: str
    name: str
    role: str
    subjects: list[str]
    expires_at: str | None


class ProblemOut(BaseModel):
    """Any error. `type` is urn:cede:problem:CODE; `field` is what is wrong, if one field is."""

    model_config = ConfigDict(extra="allow")

    type: Annotated[str, Field(examples=["urn:cede:problem:invalid"])]
    title: str
    status: int
    detail: str
    field: str | None = None
    reason: ReasonOut | None = None
    errors: list[dict[str, str]] | None = None


class BulkItemOut(Out):
    status: int
    request: RequestOut | None = None
    error: ProblemOut | None = None


class BulkOut(Out):
    items: list[BulkItemOut]


class Page(Out):
    next: str | None = Field(description="Pass it as `cursor` for the rest; null at the end.")


class PoolPage(Page):
    items: list[PoolOut]


class NodePage(Page):
    items: list[NodeOut]


class PolicyPage(Page):
    items: list[PolicyOut]


class RequestPage(Page):
    items: list[RequestOut]


class EventPage(Out):
    items: list[EventOut]
    next: int = Field(description="Pass it as `after` for what follows.")


class TokenPage(Page):
    items: list[TokenOut]


class AuditPage(Page):
    items: list[AuditOut]


class HealthOut(Out):
    status: str
    writer: bool


class VersionOut(Out):
    name: str
    version: str
    api: str


class Anything(BaseModel):
    """An object whose fields depend on the state; see the reference."""

    model_config = ConfigDict(extra="allow")
