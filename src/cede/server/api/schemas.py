"""What callers get back, as the OpenAPI document shows it.

Answers are built by hand in `views.py`, because validating what we made ourselves costs more than
making it; a test checks that the two agree.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Amounts = dict[str, int]
Seconds = int | float


class Out(BaseModel):
    model_config = ConfigDict(extra="forbid")


class PoolOut(Out):
    id: str
    name: str
    description: str
    preset: str
    capacity: Annotated[Amounts, Field(examples=[{"gpu": 8}])]
    occupied: Annotated[Amounts, Field(examples=[{"gpu": 6}])]
    free: Annotated[Amounts, Field(examples=[{"gpu": 2}])]
    earmarked: Amounts
    queued: int
    active: int
    settings: dict[str, Any]
    created: str


class PolicyOut(Out):
    id: str
    name: str
    pool: str
    pool_id: str
    component: str
    component_type: str
    priority: int
    reserved: Amounts
    limit: Amounts
    occupied: Amounts
    borrowed: Amounts
    created: str


class ReasonOut(BaseModel):
    """A typed explanation; which further names and numbers there are depends on the code."""

    model_config = ConfigDict(extra="allow")

    code: str
    text: str
    fix: str


class EarmarkOut(Out):
    pool: str


class AllocationOut(Out):
    id: str
    state: str
    pool: str
    attempt: int
    allocated_at: Seconds
    deadline: Seconds | None


class RetryOut(Out):
    max_retries: int
    delay: Seconds
    backoff: int
    preemptions: str


class RequestOut(Out):
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
    walltime: Seconds | None
    lease: Seconds | None
    on_silence: str
    labels: dict[str, str]
    owner: str
    created: str
    submitted_at: Seconds
    reason: ReasonOut | None
    earmark: EarmarkOut | None
    allocation: AllocationOut | None
    index: int


class EventOut(Out):
    index: int
    at: Seconds
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
