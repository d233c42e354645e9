"""`cede policy …`: a component's place in a pool."""

from __future__ import annotations

import click

from cede.cli.context import Amounts, PoolName, client_of, component_type_option, output_option
from cede.cli.printing import print_rows

COLUMNS = ("id", "component", "pool", "priority", "reserved", "limit", "created")


@click.group("policy")
def policy() -> None:
    """Policies: a component's place in a pool."""


@policy.command("attach")
@click.argument("pool_name", metavar="POOL", type=PoolName())
@click.argument("component")
@component_type_option("orchestrator")
@click.option("-p", "--priority", type=int, required=True, help="Higher comes first.")
@click.option("-r", "--reserved", type=Amounts(), help="Its share, such as '{\"gpu\": 2}'.")
@click.option("-l", "--limit", type=Amounts(), help="The most it may hold.")
@click.option("--parent", metavar="POLICY", help="The policy above it, by name or id.")
@click.option("--weight", type=float, help="Its part of what is shared by weight; 1 unless given.")
@click.option(
    "--mode",
    type=click.Choice(["fair_share", "fifo"]),
    help="How those below it share: by weight, or one after the other.",
)
@click.pass_context
def attach(
    ctx: click.Context,
    pool_name: str,
    component: str,
    component_type: str,
    priority: int,
    reserved: dict[str, int] | None,
    limit: dict[str, int] | None,
    parent: str | None,
    weight: float | None,
    mode: str | None,
) -> None:
    """Give a component a place in a pool."""
    made = client_of(ctx).policies.attach(
        pool_name,
        component,
        component_type=component_type,
        priority=priority,
        reserved=reserved,
        limit=limit,
        parent=parent,
        weight=weight,
        mode=mode,
    )
    click.echo(f"attached {component_type} {component} to pool {made['pool']} ({made['id']})")


@policy.command("list")
@click.argument("pool_name", metavar="[POOL]", type=PoolName(), required=False)
@click.option("-c", "--component", default=None, help="Only this component's.")
@component_type_option()
@click.option("--columns", default=None, help="Which columns, separated by commas.")
@output_option
@click.pass_context
def list_policies(
    ctx: click.Context,
    pool_name: str | None,
    component: str | None,
    component_type: str | None,
    columns: str | None,
    output: str,
) -> None:
    """List policies: of a pool, of a component, or all."""
    found = client_of(ctx).policies.list(
        pool=pool_name, component=component, component_type=component_type
    )
    shown = tuple(each.strip() for each in columns.split(",")) if columns else COLUMNS
    print_rows(found, shown, output, empty="no policies")


@policy.command("update")
@click.argument("pool_name", metavar="POOL", type=PoolName())
@click.argument("component")
@component_type_option()
@click.option("-p", "--priority", type=int, default=None)
@click.option("-r", "--reserved", type=Amounts(), help="Replaces the whole map.")
@click.option("-l", "--limit", type=Amounts(), help="Replaces the whole map.")
@click.pass_context
def update(
    ctx: click.Context,
    pool_name: str,
    component: str,
    component_type: str | None,
    priority: int | None,
    reserved: dict[str, int] | None,
    limit: dict[str, int] | None,
) -> None:
    """Change a component's policy in a pool."""
    if priority is None and reserved is None and limit is None:
        raise click.UsageError("nothing to change: give --priority, --reserved or --limit")
    client = client_of(ctx)
    found = client.policies.of(pool_name, component, component_type)
    client.policies.update(found["id"], priority=priority, reserved=reserved, limit=limit)
    click.echo(f"updated the policy of {component} in pool {found['pool']}")


@policy.command("detach")
@click.argument("pool_name", metavar="POOL", type=PoolName())
@click.argument("component")
@component_type_option()
@click.pass_context
def detach(ctx: click.Context, pool_name: str, component: str, component_type: str | None) -> None:
    """Remove a component's policy from a pool."""
    client = client_of(ctx)
    found = client.policies.of(pool_name, component, component_type)
    client.policies.detach(found["id"])
    click.echo(f"detached {found['component_type']} {component} from pool {found['pool']}")
