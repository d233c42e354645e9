"""`cede policy …`: a component's place in a pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from cede.cli.context import (
    NodeName,
    PoolName,
    TeamName,
    client_of,
    component_type_option,
)
from cede.cli.dry_run import dry_run_option, print_dry_run
from cede.cli.listing import list_options
from cede.cli.lists import Columns, Listing
from cede.cli.printing import print_json, say
from cede.cli.usage import pairs
from cede.cli.values import Duration, OneOf, amounts_option, map_option, settings_of
from cede.model.policy import OF_POLICY, Kind, Mode
from cede.model.policy_fields import parse_integral
from cede.model.terms import CLASS_MAX, CLASS_MIN

POLICIES = Columns(
    ("id", "component", "pool", "priority", "reserved", "limit"),
    ("component_type", "occupied", "borrowed", "weight", "mode", "type", "created"),
    (
        *("name", "pool_id", "parent_id", "settings", "integral", "max_class", "allow_sensitive"),
        *("home", "allow_lending", "allow_borrowing", "max_borrow_pct", "return_grace"),
    ),
)
F = TypeVar("F", bound=Callable[..., Any])

# Options of both `attach` and `update`.
_FIELDS: list[Callable[[Any], Any]] = [
    amounts_option("-r", "--reserved", help="Its share, such as gpu=2."),
    amounts_option("-l", "--limit", help="The most it may hold."),
    click.option("--weight", type=float, help="Its part of what is shared by weight; usually 1."),
    click.option(
        "--mode",
        type=OneOf([str(each) for each in Mode]),
        help="How those below it share: by weight, or one after the other.",
    ),
    click.option(
        "--set",
        "own_settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="Its own setting, and of those below it; NAME= takes it back.",
    ),
    map_option("--integral", check=parse_integral, help="A guarantee over time."),
    click.option("--type", type=OneOf([str(each) for each in Kind]), help="What its work is like."),
    click.option(
        "--max-class",
        type=click.IntRange(CLASS_MIN, CLASS_MAX),
        help="The highest class its requests may have; usually 9.",
    ),
    click.option(
        "--allow-sensitive/--no-allow-sensitive",
        default=None,
        help="Whether its requests may be sensitive, or of class 10.",
    ),
    click.option(
        "--home",
        multiple=True,
        metavar="LABEL=VALUE|NODE",
        type=NodeName(),
        help="Its own nodes, by label or by name.",
    ),
    click.option(
        "--lend/--no-lend",
        "allow_lending",
        default=None,
        help="Whether its own nodes are lent while they are idle.",
    ),
    click.option(
        "--borrow/--no-borrow",
        "allow_borrowing",
        default=None,
        help="Whether it may use the nodes of others.",
    ),
    click.option(
        "--max-borrow",
        "max_borrow_pct",
        type=float,
        help="How much of its home it lends: this part of its nodes; usually 0.2.",
    ),
    click.option(
        "--return-grace",
        type=Duration(),
        help="How long a borrower has before a node is taken back, such as 5m.",
    ),
]


def _field_options(function: F) -> F:
    for option in reversed(_FIELDS):
        function = option(function)
    return function


@click.group("policy")
def policy() -> None:
    """Policies: a component's place in a pool."""


@policy.command("attach")
@click.argument("pool_name", metavar="POOL", type=PoolName())
@click.argument("component", metavar="COMPONENT", type=TeamName())
@component_type_option("orchestrator")
@click.option(
    "-p", "--priority", type=int, default=None, help="Higher comes first; 0 unless given."
)
@click.option("--parent", metavar="POLICY", help="The policy above it, by name or id.")
@_field_options
@dry_run_option
@click.option("--json", "as_json", is_flag=True, help="Print the whole policy.")
@click.pass_context
def attach(
    ctx: click.Context,
    /,
    pool_name: str,
    component: str,
    component_type: str,
    dry_run: bool,
    as_json: bool,
    own_settings: tuple[str, ...],
    home: tuple[str, ...],
    **given: Any,
) -> None:
    """Give a component a place in a pool."""
    made = client_of(ctx).policies.attach(
        pool_name,
        component,
        component_type=component_type,
        settings=_settings(own_settings, {}),
        home=_home(home),
        dry_run=dry_run,
        **{name: value for name, value in given.items() if value is not None},
    )
    if dry_run:
        print_dry_run(made, as_json=as_json)
        return
    if as_json:
        print_json(made)
        return
    say(f"attached {component_type} {component} to pool {made['pool']} ({made['id']})")


@policy.command("list")
@click.argument("pool_name", metavar="[POOL]", type=PoolName(), required=False)
@click.option("-c", "--component", type=TeamName(), default=None, help="Only this component's.")
@component_type_option()
@list_options(POLICIES, short=False)
@click.pass_context
def list_policies(
    ctx: click.Context,
    pool_name: str | None,
    component: str | None,
    component_type: str | None,
    listing: Listing,
) -> None:
    """List policies: of a pool, of a component, or all."""
    found = client_of(ctx).policies.list(
        pool=pool_name, component=component, component_type=component_type
    )
    listing.print(found, empty="no policies")


@policy.command("update")
@click.argument("pool_name", metavar="POOL", type=PoolName())
@click.argument("component", metavar="COMPONENT", type=TeamName())
@component_type_option()
@click.option("-p", "--priority", type=int, default=None)
@_field_options
@click.option("--no-home", is_flag=True, help="It has no nodes of its own any more.")
@dry_run_option
@click.option("--json", "as_json", is_flag=True, help="Print the whole policy.")
@click.pass_context
def update(
    ctx: click.Context,
    /,
    pool_name: str,
    component: str,
    component_type: str | None,
    dry_run: bool,
    as_json: bool,
    own_settings: tuple[str, ...],
    home: tuple[str, ...],
    no_home: bool,
    **given: Any,
) -> None:
    """Change a component's policy in a pool. A map that is given replaces the whole map."""
    said = {**given, "home": [] if no_home else _home(home)}
    if home and no_home:
        raise click.UsageError("give either --home or --no-home")
    if not own_settings and all(value is None for value in said.values()):
        raise click.UsageError("nothing to change: give --priority, --reserved, --limit or another")
    client = client_of(ctx)
    found = client.policies.of(pool_name, component, component_type)
    said["settings"] = _settings(own_settings, found["settings"])
    changed = client.policies.update(found["id"], dry_run=dry_run, **said)
    if dry_run:
        print_dry_run(changed, as_json=as_json)
        return
    if as_json:
        print_json(changed)
        return
    click.echo(f"updated the policy of {component} in pool {found['pool']}")


def _settings(given: tuple[str, ...], already: dict[str, Any]) -> dict[str, Any] | None:
    """Return the policy's own settings with these changes; one given without a value is removed."""
    if not given:
        return None
    whole = {**already, **settings_of("--set", given, OF_POLICY, "a policy")}
    return {name: value for name, value in whole.items() if value is not None}


def _home(given: tuple[str, ...]) -> dict[str, str] | list[str] | None:
    if not given:
        return None
    labels = [each for each in given if "=" in each]
    if not labels:
        return list(given)
    if len(labels) < len(given):
        raise click.UsageError("--home wants labels (LABEL=VALUE) or names of nodes, not both")
    return dict(pairs("--home", labels))


@policy.command("detach")
@click.argument("pool_name", metavar="POOL", type=PoolName())
@click.argument("component", metavar="COMPONENT", type=TeamName())
@component_type_option()
@click.pass_context
def detach(ctx: click.Context, pool_name: str, component: str, component_type: str | None) -> None:
    """Remove a component's policy from a pool."""
    client = client_of(ctx)
    found = client.policies.of(pool_name, component, component_type)
    client.policies.detach(found["id"])
    click.echo(f"detached {found['component_type']} {component} from pool {found['pool']}")
