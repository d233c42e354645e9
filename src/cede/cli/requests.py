"""`cede request …`, and `cede resource-request …`, which is the same."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from cede.cli import exit_codes
from cede.cli.arrays import counts
from cede.cli.context import (
    PoolName,
    RequestId,
    RequestRef,
    TeamName,
    TenantName,
    client_of,
    component_type_option,
    output_option,
)
from cede.cli.demand import demand_options
from cede.cli.listing import list_options
from cede.cli.lists import Listing
from cede.cli.printing import print_json, print_one, say
from cede.cli.request_rows import REQUESTS, ref_of, request_row
from cede.cli.submission import submission_of
from cede.cli.times import with_times
from cede.cli.values import Amounts, OneOf, merged
from cede.cli.work_commands import cancel
from cede.model import bounds
from cede.model.lifecycle import RequestStatus

if TYPE_CHECKING:
    from cede.client.client import Client

FIELDS = (
    "id",
    "status",
    "component",
    "component_type",
    "pipeline",
    "run",
    "step",
    "pool",
    "resources",
    "preemptible",
    "attempt",
    "preempted_count",
    "retry",
    "walltime",
    "lease",
    "class",
    "sensitive",
    "tenant",
    "limit",
    "weight",
    "settings",
    "allocation",
    "earmark",
    "reason",
    "fix",
    "array",
    "tasks",
    "after",
    "after_any",
    "labels",
    "comment",
    "owner",
    "created",
)
# More than a screen, and one page of the API.
SHOWN = 100
# How often a stopping request is polled; its grace is seconds, so a shorter pause adds nothing.
DELETE_PAUSE = 0.5


@click.group("request")
def request() -> None:
    """Requests: units that were asked for, over all attempts."""


@request.command("list")
@click.option("--status", type=OneOf([str(each) for each in RequestStatus]))
@click.option("--pool", "pool_name", type=PoolName(), help="Only this pool's.")
@click.option("--component", type=TeamName(), help="Only this component's.")
@component_type_option()
@click.option("--preemptible/--non-preemptible", default=None)
@click.option("--tenant", type=TenantName(), help="Only this tenant's.")
@click.option("--label", multiple=True, metavar="NAME=VALUE", help="May be given several times.")
@click.option("--array", type=RequestRef(), metavar="ID", help="Only the tasks of this array.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=SHOWN, help=f"At most this many ({SHOWN})."
)
@click.option("--all", "everything", is_flag=True, help="All of them, however many.")
@list_options(REQUESTS)
@click.pass_context
def list_requests(
    ctx: click.Context, /, listing: Listing, limit: int, everything: bool, **given: Any
) -> None:
    """List the newest requests that this token may see, newest first."""
    from itertools import islice

    if array := given.pop("array"):
        given["part_of"] = client_of(ctx).requests.get(array)["part_of"] or array
    labels = given.pop("label")
    preemptible = given.pop("preemptible")
    pool = given.pop("pool_name")
    filters = {"pool": pool, "explain": "true", **given, **_label_filters(labels)}
    if preemptible is not None:
        filters["preemptible"] = "true" if preemptible else "false"
    if not everything:
        filters["limit"] = min(limit + 1, bounds.PAGE_MAX)
    # Filtered before it is cut: the newest ones that pass.
    every = map(with_times, client_of(ctx).requests.list(**filters))
    found = (each for each in every if listing.passes(request_row(each)))
    rows = found if everything else islice(found, limit)
    listing.print(rows, view=request_row, empty="no such requests")
    if not everything and next(found, None) is not None:
        more = f"these are the newest {limit}; there are more: --limit N, --all, or a filter"
        click.echo(more, err=True)


@request.command("describe")
@click.argument("request_id", metavar="ID", type=RequestRef())
@output_option
@click.pass_context
def describe(ctx: click.Context, request_id: str, output: str) -> None:
    """Show one request: what it asks for, where it stands and why; of an array its first task, and
    how many are in which status."""
    from cede.client.work import is_whole

    client = client_of(ctx)
    found = with_times(client.requests.get(request_id))
    if output == "table" and is_whole(found, request_id):
        found["tasks"] = counts(client.requests.list(part_of=found["part_of"]))
    elif output == "table":
        found["tasks"] = None
    print_one(_described(found) if output == "table" else found, FIELDS, output)


@request.command("create")
@demand_options
@output_option
@click.pass_context
def create(ctx: click.Context, /, output: str, retries: int, **given: Any) -> None:
    """Ask for units without running anything: another program renews and releases."""
    body = submission_of(retries=retries, **given)
    made = with_times(client_of(ctx).requests.create(body)) | {"tasks": None}
    print_one(_described(made) if output == "table" else made, FIELDS, output)
    if made["status"] == RequestStatus.REJECTED:
        sys.exit(exit_codes.REFUSED)


@request.command("limit")
@click.argument("request_id", metavar="ID", type=RequestId())
@click.argument("limits", metavar="KEY=N…", nargs=-1, type=Amounts())
@click.option("--none", "no_limit", is_flag=True, help="Take its limit away.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole request.")
@click.pass_context
def limit(
    ctx: click.Context,
    request_id: str,
    limits: tuple[dict[str, int], ...],
    no_limit: bool,
    as_json: bool,
) -> None:
    """Change how much a request may hold, while it waits or runs.

    What is given replaces its whole limit. Independent tasks have one together.
    """
    wanted = merged("limit", limits)
    if bool(wanted) == no_limit:
        raise click.UsageError("give either KEY=N, such as gpu=4, or --none")
    found = client_of(ctx).requests.set_limit(request_id, wanted)
    if as_json:
        print_json(found)
        return
    shown = ", ".join(f"{key}={most}" for key, most in found["limit"].items()) or "none"
    say(f"the limit of request {found['id']} is {shown}")


request.add_command(cancel)


@request.command("delete")
@click.argument("request_id", metavar="ID", type=RequestId())
@click.option("-y", "--yes", is_flag=True, help="Accepted for symmetry; nothing is asked.")
@click.pass_context
def delete(ctx: click.Context, request_id: str, yes: bool) -> None:
    """Delete a request. A running one is stopped first, which may take its pool's grace."""
    client = client_of(ctx)
    full_id = client.requests.get(request_id)["id"]
    if not client.requests.delete(full_id):
        say(f"request {full_id} is running; waiting until it has stopped …", err=True)
        _wait_until_ended(client, full_id)
        client.requests.delete(full_id)
    say(f"deleted request {full_id}")


def _wait_until_ended(client: Client, full_id: str) -> None:
    """Wait for a request that was told to stop: it does, or its pool's deadline ends it."""
    while client.requests.get(full_id)["status"] in ("allocated", "preempting"):
        if sys.stderr.isatty():
            click.echo(".", nl=False, err=True)
        time.sleep(DELETE_PAUSE)


def _described(found: dict[str, Any]) -> dict[str, Any]:
    labels = found.get("labels") or {}
    reason = found.get("reason") or {}
    named = {name: labels.get(name) for name in ("pipeline", "run", "step")}
    pool = found.get("pool") or (found.get("allocation") or {}).get("pool")
    shown = {"pool": pool, "reason": reason.get("text"), "fix": reason.get("fix")}
    return {**found, "id": ref_of(found), **named, **shown}


def _label_filters(labels: tuple[str, ...]) -> dict[str, str]:
    filters = {}
    for each in labels:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--label wants NAME=VALUE, not {each!r}")
        filters[f"label.{name}"] = value
    return filters


@click.group("resource-request")
def resource_request() -> None:
    """The same as `cede request`."""


for _command in request.commands.values():
    resource_request.add_command(_command)
