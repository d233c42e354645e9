"""Bodies and answers of tenants and usage."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from cede.model.bounds import SECOND
from cede.model.fields import shown
from cede.model.tenant import FIELDS, Tenant
from cede.model.usage import Usage
from cede.server.api.bodies import Body, Name, example
from cede.server.api.declared import sends, shows
from cede.server.api.json_type import Json
from cede.server.api.schemas import Out, Page
from cede.store import TenantView, UsageView

# Hours are shown to the microsecond: further digits are only noise of floats.
_DIGITS = 9


@sends(Tenant, edits=True)
class TenantFields(Body):
    """How much a tenant may have; null: no bound."""

    def said(self) -> dict[str, Any]:
        """Return the given fields, null included, as the engine takes them."""
        given = self.model_dump(exclude_unset=True)
        return {name: given[name] for name in FIELDS if name in given}


class TenantIn(TenantFields):
    """A new tenant, by the name that requests give."""

    model_config = example(name="bio", max_nodes=16, max_concurrent=100, gpu_hours_budget=5000)

    name: Name


class TenantPatch(TenantFields):
    """The fields to change; null takes a bound away."""

    model_config = example(max_nodes=8, max_concurrent=None)


@shows(Tenant)
class TenantOut(Out):
    """A tenant; the fields that the model declares are added to these."""

    id: str
    name: str
    nodes: int = Field(description="In use now.")
    requests: int = Field(description="That have not ended.")
    budget_used: float | None = Field(description="The part of its budget; 1 is all of it.")
    created: str


class TenantPage(Page):
    items: list[TenantOut]


class UsedOut(Out):
    id: str | None = Field(description="Of the pool or the policy.")
    name: str | None = Field(
        description="Null for requests without a tenant, a user or such a label."
    )
    pool: str | None = Field(description="Of a policy: its pool.")
    requests: int | None = Field(
        description="That held anything in that time; null with `days`: one may be of several."
    )
    preempted: int = Field(description="Attempts that were stopped for others.")
    starts: int = Field(description="Requests that were granted for the first time.")
    mean_wait: float | None = Field(description="Seconds that these had waited; null: none.")
    node_hours: float
    gpu_hours: float
    hours: dict[str, float] = Field(description="Of every key.")
    lost_gpu_hours: float
    lost_hours: dict[str, float] = Field(
        description="Of them: since its last checkpoint, of attempts that were stopped for "
        "others or ended by their machine."
    )
    cost: float | None = Field(description="By what the pools cost now; null: they say nothing.")
    day: str | None = Field(description="With `days`: of UTC.")


class UsageOut(Out):
    by: str
    since: float | None = Field(description="How many seconds back, if that was asked for.")
    from_: str | None = Field(alias="from", description="Null: from the beginning.")
    to: str | None = Field(description="Null: until now.")
    items: list[UsedOut] = Field(description="The largest first.")


def tenant_out(view: TenantView) -> Json:
    tenant = view.tenant
    return {
        "id": tenant.id,
        "name": tenant.name,
        **shown(tenant),
        "nodes": view.nodes,
        "requests": view.requests,
        "budget_used": None if view.budget_used is None else round(view.budget_used, _DIGITS),
        "created": tenant.created,
    }


def used_out(view: UsageView, name: str | None, pool: str | None = None) -> Json:
    """Return a row of usage. `name` is for people; what is gone has its id for a name."""
    return {
        "id": None if view.id == name else view.id,
        "name": name,
        "pool": pool,
        "requests": view.requests if view.day is None else None,
        "preempted": view.preempted,
        "starts": view.starts,
        "mean_wait": round(view.wait_time / view.starts / SECOND, 3) if view.starts else None,
        **hours_out(view.usage, view.lost),
    }


def hours_out(usage: Usage, lost: Usage) -> Json:
    return {
        "node_hours": round(usage.node_hours, _DIGITS),
        "gpu_hours": round(usage.gpu_hours, _DIGITS),
        "hours": {key: round(usage.hours(key), _DIGITS) for key in sorted(usage.amount_time)},
        "lost_gpu_hours": round(lost.gpu_hours, _DIGITS),
        "lost_hours": {
            key: round(lost.hours(key), _DIGITS)
            for key, time in sorted(lost.amount_time.items())
            if time
        },
    }


TENANT: Json = {
    "id": "0198c1d2-7d52-7a10-9c11-5e2f8b7a6d90",
    "name": "bio",
    "max_nodes": 16,
    "max_concurrent": 100,
    "gpu_hours_budget": 5000.0,
    "node_hours_budget": None,
    "fair_share_target": 0.25,
    "burst_allowance": None,
    "nodes": 3,
    "requests": 7,
    "budget_used": 0.62,
    "created": "2026-03-02T09:00:10Z",
}

USAGE: Json = {
    "by": "tenant",
    "since": 604800.0,
    "from": "2026-02-23T09:00:00.000Z",
    "to": None,
    "items": [
        {
            "id": None,
            "name": "bio",
            "pool": None,
            "requests": 41,
            "preempted": 2,
            "starts": 40,
            "mean_wait": 95.2,
            "node_hours": 96.5,
            "gpu_hours": 386.0,
            "hours": {"gpu": 386.0, "step_run": 96.5},
            "lost_gpu_hours": 4.0,
            "lost_hours": {"gpu": 4.0, "step_run": 1.0},
            "cost": 965.0,
            "day": None,
        }
    ],
}
