"""`cede tenant …`: quotas and budgets across all pools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from cede.cli.context import TenantName, client_of, output_option, remove, yes_option
from cede.cli.listing import list_options
from cede.cli.lists import Columns, Listing
from cede.cli.printing import print_json, print_one, say

TENANTS = Columns(
    ("name", "nodes", "max_nodes", "requests", "max_concurrent", "budget_used"),
    ("id", "gpu_hours_budget", "node_hours_budget", "fair_share_target", "created"),
    ("burst_allowance",),
)
FIELDS = (
    "id",
    "name",
    "nodes",
    "max_nodes",
    "requests",
    "max_concurrent",
    "gpu_hours_budget",
    "node_hours_budget",
    "budget_used",
    "fair_share_target",
    "burst_allowance",
    "created",
)
F = TypeVar("F", bound=Callable[..., Any])
_NONE = "none"


class Bound(click.ParamType[Any]):
    """A number, or `none` for no bound."""

    def __init__(self, number: type[int] | type[float]) -> None:
        self._number = number
        self.name = "N|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str) or value == _NONE:
            return value
        try:
            return self._number(value)
        except ValueError:
            kind = "an integer" if self._number is int else "a number"
            self.fail(f"{value!r} is neither {kind} nor none")


_BOUNDS: list[Callable[[Any], Any]] = [
    click.option("--max-nodes", type=Bound(int), help="Nodes in use at once, in all pools."),
    click.option("--max-concurrent", type=Bound(int), help="Requests that have not ended."),
    click.option(
        "--gpu-hours", "gpu_hours_budget", type=Bound(float), help="GPU-hours in 90 days."
    ),
    click.option(
        "--node-hours", "node_hours_budget", type=Bound(float), help="Node-hours in 90 days."
    ),
    click.option(
        "--target", "fair_share_target", type=float, help="Its part of all nodes, from 0 to 1."
    ),
    click.option(
        "--burst",
        "burst_allowance",
        type=Bound(float),
        help="How far it may go beyond its target while much is idle.",
    ),
]


def _bound_options(function: F) -> F:
    for option in reversed(_BOUNDS):
        function = option(function)
    return function


def json_option(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="The same as -o json.")(function)


@click.group("tenant")
def tenant() -> None:
    """Tenants: on whose account requests run, and how much they may have."""


@tenant.command("create")
@click.argument("name")
@_bound_options
@click.option("--json", "as_json", is_flag=True, help="Print the whole tenant.")
@click.pass_context
def create(ctx: click.Context, /, name: str, as_json: bool, **bounds: Any) -> None:
    """Give a tenant quotas and budgets. Requests name it with --tenant."""
    made = client_of(ctx).tenants.create(name, **_said(bounds))
    if as_json:
        print_json(made)
        return
    say(f"created tenant {made['name']} ({made['id']})")


@tenant.command("list")
@list_options(TENANTS)
@click.pass_context
def list_tenants(ctx: click.Context, listing: Listing) -> None:
    """List tenants with what they have in use."""
    rows = (_for_people(each, listing.for_people) for each in client_of(ctx).tenants.list())
    listing.print(rows, empty="no tenants; make one with `cede tenant create`")


@tenant.command("describe")
@click.argument("tenant_name", metavar="TENANT", type=TenantName())
@output_option
@json_option
@click.pass_context
def describe(ctx: click.Context, tenant_name: str, output: str, as_json: bool) -> None:
    """Show one tenant, by name, id or start of its id."""
    shown = "json" if as_json else output
    found = client_of(ctx).tenants.get(tenant_name)
    print_one(_for_people(found, shown == "table"), FIELDS, shown)


@tenant.command("update")
@click.argument("tenant_name", metavar="TENANT", type=TenantName())
@_bound_options
@click.option("--json", "as_json", is_flag=True, help="Print the whole tenant.")
@click.pass_context
def update(ctx: click.Context, /, tenant_name: str, as_json: bool, **bounds: Any) -> None:
    """Change quotas and budgets; `none` takes one away. Running work stays."""
    said = _said(bounds)
    if not said:
        raise click.UsageError("nothing to change: give --max-nodes, --max-concurrent or another")
    changed = client_of(ctx).tenants.update(tenant_name, **said)
    if as_json:
        print_json(changed)
        return
    click.echo(f"updated tenant {changed['name']}")


@tenant.command("delete")
@click.argument("tenant_name", metavar="TENANT", type=TenantName())
@yes_option
@click.pass_context
def delete(ctx: click.Context, tenant_name: str, yes: bool) -> None:
    """Delete a tenant's quotas and budgets; its requests and its usage stay."""
    remove(client_of(ctx).tenants, "tenant", tenant_name, yes)


def _for_people(found: dict[str, Any], for_people: bool) -> dict[str, Any]:
    used = found["budget_used"]
    if not for_people or used is None:
        return found
    return {**found, "budget_used": f"{used:.1%}"}


def _said(bounds: dict[str, Any]) -> dict[str, Any]:
    """Return the given options; `none` becomes null."""
    return {
        name: None if value == _NONE else value
        for name, value in bounds.items()
        if value is not None
    }
