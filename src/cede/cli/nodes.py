"""`cede node …`: machines with an agent."""

from __future__ import annotations

from typing import Any

import click

from cede.cli.context import NodeName, PoolName, client_of, output_option, remove, yes_option
from cede.cli.dry_run import dry_run_option, print_dry_run
from cede.cli.listing import list_options
from cede.cli.lists import Columns, Listing, Row
from cede.cli.printing import print_json, print_one

NODES = Columns(
    ("name", "state", "pool", "amounts", "free", "claimed_by", "checkpoints", "reason"),
    ("id", "bridge", "others", "silent", "group", "labels", "failures", "created"),
    ("out", "others_why", "held", "devices", "fingerprint", "heartbeat", "lease", "allocations"),
)
FIELDS = (
    "id",
    "name",
    "state",
    "out",
    "reason",
    "quarantined",
    "pool",
    "claimed_by",
    "amounts",
    "held",
    "bridge",
    "others",
    "others_why",
    "free",
    "devices",
    "labels",
    "group",
    "fingerprint",
    "heartbeat",
    "lease",
    "checkpoints",
    "silent",
    "failures",
    "allocations",
    "created",
)


@click.group("node")
def node() -> None:
    """Nodes: machines with an agent."""


@node.command("list")
@click.option("--pool", type=PoolName(), help="Only this pool's.")
@list_options(NODES)
@click.pass_context
def list_nodes(ctx: click.Context, pool: str | None, listing: Listing) -> None:
    """List nodes, with what is free on them and why one is out of service."""
    rows = client_of(ctx).nodes.list(pool=pool)
    listing.print(rows, view=_with_reason, empty="no nodes; start `cede agent` on a machine")


def _with_reason(node: Row) -> Row:
    """Fill an empty reason with a silent bridge, or with the outside use of the node."""
    reason = node["reason"]
    if node["bridge"] and reason == "silent":
        reason = f"bridge {node['bridge']} is silent"
    elif not reason and node["others_why"]:
        reason = f"held outside: {node['others_why']}"
    return {**node, "reason": reason}


@node.command("describe")
@click.argument("name", metavar="NODE", type=NodeName())
@output_option
@click.pass_context
def describe(ctx: click.Context, name: str, output: str) -> None:
    """Show one node and what runs on it, by name, id or start of its id."""
    print_one(client_of(ctx).nodes.get(name), FIELDS, output)


@node.command("drain")
@click.argument("name", metavar="NODE", type=NodeName())
@click.option("--reason", default="", help="For people.")
@click.pass_context
def drain(ctx: click.Context, name: str, reason: str) -> None:
    """Give a node no new work; what runs there ends by itself."""
    _say(client_of(ctx).nodes.drain(name, reason))


@node.command("undrain")
@click.argument("name", metavar="NODE", type=NodeName())
@click.pass_context
def undrain(ctx: click.Context, name: str) -> None:
    """Let a drained or draining node take work again."""
    _say(client_of(ctx).nodes.undrain(name))


@node.command("disable")
@click.argument("name", metavar="NODE", type=NodeName())
@click.option("--reason", default="", help="For people.")
@click.pass_context
def disable(ctx: click.Context, name: str, reason: str) -> None:
    """Take a node out of service at once; what runs there is stopped and waits again."""
    _say(client_of(ctx).nodes.disable(name, reason))


@node.command("enable")
@click.argument("name", metavar="NODE", type=NodeName())
@click.pass_context
def enable(ctx: click.Context, name: str) -> None:
    """Bring back a node that was disabled, could not start work, or is in quarantine after a
    restore.
    """
    _say(client_of(ctx).nodes.enable(name))


_NODES = click.argument("names", metavar="NODE…", nargs=-1, required=True, type=NodeName())
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@node.command("claim")
@_NODES
@click.option(
    "--for",
    "user",
    metavar="USER",
    help="The user, by the name of their token; yours unless given.",
)
@_JSON
@click.pass_context
def claim(ctx: click.Context, names: tuple[str, ...], user: str | None, as_json: bool) -> None:
    """Keep nodes for one user's sensitive work, all of them at once or none.

    What others run there is asked to save itself, is stopped and waits again.
    """
    made = client_of(ctx).nodes.claim(names, user)
    if as_json:
        print_json(made)
        return
    for each in made["nodes"]:
        click.echo(f"node {each['name']} is claimed by {each['claimed_by']}")
    if made["stopping"]:
        click.echo(f"{made['stopping']} running there are saved and stopped")


@node.command("unclaim")
@_NODES
@_JSON
@click.pass_context
def unclaim(ctx: click.Context, names: tuple[str, ...], as_json: bool) -> None:
    """End claims of nodes. No sensitive work of the claimant may run there any more."""
    made = client_of(ctx).nodes.unclaim(names)
    if as_json:
        print_json(made)
        return
    for each in made["nodes"]:
        click.echo(f"node {each['name']} is everybody's again")


@node.command("delete")
@click.argument("name", metavar="NODE", type=NodeName())
@click.option("--force", is_flag=True, help="It is down for good: nothing runs there any more.")
@dry_run_option
@yes_option
@click.pass_context
def delete(ctx: click.Context, name: str, force: bool, dry_run: bool, yes: bool) -> None:
    """Forget a node; its pool has that much less."""
    if dry_run:
        print_dry_run(client_of(ctx).nodes.try_delete(name, force=force))
        return
    remove(client_of(ctx).nodes, "node", name, yes, force=force)


def _say(found: dict[str, Any]) -> None:
    click.echo(f"node {found['name']} is {found['state']}")
