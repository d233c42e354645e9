"""`cede pool …`, and `cede resource-pool …`, which has the same commands and those of policies."""

from __future__ import annotations

from typing import Any

import click

from cede.cli.context import PoolName, client_of, output_option, remove, yes_option
from cede.cli.dry_run import dry_run_option, print_dry_run
from cede.cli.printing import print_one, print_rows
from cede.cli.values import OneOf, amounts_option, chosen, map_option, pairs
from cede.model.fields import fields_of
from cede.model.request import Request
from cede.model.stopping import StopPolicy
from cede.model.terms import Terms

POOL_COLUMNS = ("id", "name", "capacity", "occupied_resources")
POOL_FIELDS = (
    "id",
    "name",
    "description",
    "nodes",
    "capacity",
    "occupied",
    "free",
    "earmarked",
    "queued",
    "active",
    "preset",
    "settings",
    "created",
)
REQUEST_COLUMNS = ("id", "state", "status", "component", "step_run", "created", "reason")
# Everything else that a list of requests can show.
REQUEST_FIELDS = (
    *("component_type", "tracked", "pool", "resources", "preemptible", "attempt", "tasks"),
    *("preempted_count", "lost_count", "retry", "lease", "owner", "submitted_at", "earmark"),
    *("allocation", "allocation_state", "index", "part_of", "parts", "shape", "command", "work"),
    *("saved", "settings"),
    *(each.name for part in (Request, StopPolicy, Terms) for each in fields_of(part)),
)
VIEWS = ("queued", "active", "all")


@click.group("pool")
def pool() -> None:
    """Pools: named capacity."""


@pool.command("create")
@click.argument("name")
@amounts_option("-c", "--capacity", least=1, help="Such as gpu=8,memory_mb=64GiB.")
@click.option(
    "--nodes",
    multiple=True,
    metavar="LABEL=VALUE",
    help="Instead of a capacity: the nodes with these labels; what they have is its capacity.",
)
@click.option("-d", "--description", default=None, help="What it is for.")
@click.option("--preset", default=None, help="How it decides; quota unless given.")
@map_option("--settings", help="Settings that differ from the preset, such as 'grace: 2m'.")
@click.pass_context
def create(
    ctx: click.Context,
    name: str,
    capacity: dict[str, int] | None,
    nodes: tuple[str, ...],
    description: str | None,
    preset: str | None,
    settings: dict[str, Any] | None,
) -> None:
    """Create a pool: of a capacity that is only counted, or of nodes."""
    if (capacity is None) != bool(nodes):
        raise click.UsageError("give either --capacity or --nodes")
    made = client_of(ctx).pools.create(
        name,
        capacity,
        nodes=dict(pairs("--nodes", nodes)) or None,
        description=description,
        preset=preset,
        settings=settings,
    )
    click.echo(f"created pool {made['name']} ({made['id']})")


@pool.command("list")
@output_option
@click.pass_context
def list_pools(ctx: click.Context, output: str) -> None:
    """List pools with what is occupied of their capacity."""
    rows = (_with_old_name(each) for each in client_of(ctx).pools.list())
    print_rows(rows, POOL_COLUMNS, output, empty="no pools; make one with `cede pool create`")


@pool.command("describe")
@click.argument("pool_name", metavar="POOL", type=PoolName())
@output_option
@click.pass_context
def describe(ctx: click.Context, pool_name: str, output: str) -> None:
    """Show one pool, by name, id or start of its id."""
    print_one(client_of(ctx).pools.get(pool_name), POOL_FIELDS, output)


@pool.command("update")
@click.argument("pool_name", metavar="POOL", type=PoolName())
@amounts_option("-c", "--capacity", help="Merged key by key; 0 removes a key.")
@click.option(
    "--nodes",
    multiple=True,
    metavar="LABEL=VALUE",
    help="Of a pool of nodes: all its labels from now on. Nodes without them leave it.",
)
@click.option("-d", "--description", default=None)
@map_option("--settings", help="Settings that change, such as 'grace: 2m'.")
@dry_run_option
@click.pass_context
def update(
    ctx: click.Context,
    /,
    pool_name: str,
    nodes: tuple[str, ...],
    dry_run: bool,
    **given: Any,
) -> None:
    """Change a pool's capacity or nodes, description or settings. Running work stays when it
    shrinks; what waits for more than is left is paused.
    """
    given["nodes"] = dict(pairs("--nodes", nodes)) or None
    if all(each is None for each in given.values()):
        known = "--capacity, --nodes, --description or --settings"
        raise click.UsageError(f"nothing to change: give {known}")
    if dry_run:
        print_dry_run(client_of(ctx).pools.update(pool_name, dry_run=True, **given))
        return
    changed = client_of(ctx).pools.update(pool_name, **given)
    click.echo(f"updated pool {changed['name']}")


@pool.command("delete")
@click.argument("pool_name", metavar="POOL", type=PoolName())
@yes_option
@click.pass_context
def delete(ctx: click.Context, pool_name: str, yes: bool) -> None:
    """Delete a pool and its policies."""
    remove(client_of(ctx).pools, "pool", pool_name, yes, also=" and its policies")


@pool.command("requests")
@click.argument("pool_name", metavar="POOL", type=PoolName())
@click.option("--view", type=OneOf(VIEWS), default="all", show_default=True)
@click.option("-c", "--columns", default=None, help="Which columns, separated by commas.")
@output_option
@click.pass_context
def requests(
    ctx: click.Context, pool_name: str, view: str, columns: str | None, output: str
) -> None:
    """List the requests of a pool: queued, active, or both."""
    shown = chosen(columns, REQUEST_COLUMNS, REQUEST_FIELDS)
    found = client_of(ctx).pools.requests(pool_name, view=view, explain=True)
    rows = (request_row(each) for each in found)
    print_rows(rows, shown, output, empty="no such requests")


def request_row(request: dict[str, Any]) -> dict[str, Any]:
    """A request with the columns of its list: its step's name, and its reason as a sentence."""
    allocation = request.get("allocation") or {}
    labels = request.get("labels") or {}
    holding = request["status"] in ("allocated", "preempting")
    return {
        **request,
        "state": "active" if holding else "queued" if request["status"] in _WAITING else "ended",
        "allocation_state": allocation.get("state"),
        "step_run": labels.get("step", ""),
        "reason": (request.get("reason") or {}).get("text", ""),
    }


_WAITING = ("queued", "suspended")


def _with_old_name(found: dict[str, Any]) -> dict[str, Any]:
    """Document 002's lists call what is occupied `occupied_resources`."""
    return {**found, "occupied_resources": found.get("occupied", {})}


@click.group("resource-pool")
def resource_pool() -> None:
    """Pools and their policies."""


def _share_commands() -> None:
    """One implementation under two names: these are the very same command objects."""
    from cede.cli import policies

    for command in pool.commands.values():
        resource_pool.add_command(command)
    resource_pool.add_command(policies.attach, "attach-policy")
    resource_pool.add_command(policies.update, "update-policy")
    resource_pool.add_command(policies.detach, "detach-policy")
    resource_pool.add_command(policies.list_policies, "list-policies")


_share_commands()
