"""`cede pool …`, and `cede resource-pool …`, which has the same commands and those of policies."""

from __future__ import annotations

from typing import Any

import click

from cede.cli.context import PoolName, client_of, output_option, remove, yes_option
from cede.cli.dry_run import dry_run_option, print_dry_run
from cede.cli.listing import list_options
from cede.cli.lists import Listing
from cede.cli.pool_rows import POOLS, print_pools
from cede.cli.printing import print_one, say
from cede.cli.request_rows import REQUESTS, request_row
from cede.cli.times import with_times
from cede.cli.usage import pairs
from cede.cli.usage_command import pool_history
from cede.cli.values import OneOf, amounts_option, map_option

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
    "quarantined",
    "preset",
    "settings",
    "created",
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
    say(f"created pool {made['name']} ({made['id']})")


@pool.command("list")
@list_options(POOLS)
@click.pass_context
def list_pools(ctx: click.Context, listing: Listing) -> None:
    """List pools with what is occupied of their capacity."""
    print_pools(client_of(ctx), listing)


@pool.command("describe")
@click.argument("pool_name", metavar="POOL", type=PoolName())
@output_option
@click.pass_context
def describe(ctx: click.Context, pool_name: str, output: str) -> None:
    """Show one pool, by name, id or start of its id. For people, of its settings those that differ
    from its preset; -o yaml has all that are in force.
    """
    found = client_of(ctx).pools.get(pool_name)
    if output == "table":
        # Older servers have no `own_settings`: all are shown.
        found["settings"] = found.get("own_settings", found["settings"])
    print_one(found, POOL_FIELDS, output)


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


@pool.command("enable")
@click.argument("pool_name", metavar="POOL", type=PoolName())
@click.pass_context
def enable(ctx: click.Context, pool_name: str) -> None:
    """Let a pool grant again after a restore: nothing is held in it that cede does not know of."""
    click.echo(f"pool {client_of(ctx).pools.enable(pool_name)['name']} grants again")


@pool.command("delete")
@click.argument("pool_name", metavar="POOL", type=PoolName())
@yes_option
@click.pass_context
def delete(ctx: click.Context, pool_name: str, yes: bool) -> None:
    """Delete a pool and its policies."""
    remove(client_of(ctx).pools, "pool", pool_name, yes, also=" and its policies")


pool.add_command(pool_history)


@pool.command("requests")
@click.argument("pool_name", metavar="POOL", type=PoolName())
@click.option("--view", type=OneOf(VIEWS), default="all", show_default=True)
@list_options(REQUESTS)
@click.pass_context
def requests(ctx: click.Context, pool_name: str, view: str, listing: Listing) -> None:
    """List the requests of a pool: those that hold, and those that wait in the order of the queue,
    with the place of each.
    """
    client = client_of(ctx)
    every = client.pools.requests(pool_name, view=view, explain=True)
    found = [with_times(each) for each in every]
    if view == "queued":
        found = _in_queue_order(found, client.pools.queue(pool_name)["items"])
        listing = listing.with_first("place")
    listing.print(found, view=request_row, empty="no such requests")


def _in_queue_order(
    found: list[dict[str, Any]], queue: list[dict[str, Any]] | None
) -> list[dict[str, Any]]:
    """Sort waiters by their places; those that came or left meanwhile have none and come last."""
    places = {each["id"]: each["place"] for each in queue or ()}
    rows = [{**each, "place": places.get(each["id"])} for each in found]
    return sorted(rows, key=lambda row: (row["place"] is None, row["place"], row["submitted_at"]))


class _PoolsAndPolicies(click.Group):
    """The commands of pools and of policies under the name of document 002: the very same
    objects."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*pool.commands, *_OF_POLICIES])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _OF_POLICIES:
            return pool.commands.get(cmd_name)
        from cede.cli import policies

        found = getattr(policies, _OF_POLICIES[cmd_name])
        assert isinstance(found, click.Command)
        return found


_OF_POLICIES = {
    "attach-policy": "attach",
    "update-policy": "update",
    "detach-policy": "detach",
    "list-policies": "list_policies",
}


@click.group("resource-pool", cls=_PoolsAndPolicies)
def resource_pool() -> None:
    """Pools and their policies."""
