"""`cede status`: every pool and its policies' use; `cede top`: what runs, the largest first."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cede.cli.context import PoolName, client_of
from cede.cli.listing import list_options
from cede.cli.lists import Columns, Listing
from cede.cli.printing import cell, print_json, print_yaml
from cede.cli.request_rows import REQUESTS, request_row
from cede.cli.tables import bold
from cede.cli.times import Age, age, with_times

if TYPE_CHECKING:
    from cede.client.client import Client

F = TypeVar("F", bound=Callable[..., Any])

STATUS = Columns(
    ("team", "reserved", "used", "borrowed", "lent", "waiting", "oldest_wait"),
    ("limit", "component_type"),
    ("pool", "id", "parent_id", "component"),
)
TOP = Columns(
    ("id", "name", "who", "holds", "share", "pool", "running", "node"),
    ("owner", "attempt", "tenant", "class", "created"),
    tuple(sorted(REQUESTS.known)),
)
# How often a watched screen is drawn.
WATCH_SECONDS = 2.0
_CLEAR = "\x1b[H\x1b[2J"
_HOLDING = ("allocated", "preempting")


def watch_option(function: F) -> F:
    return click.option("--watch", is_flag=True, help="Draw it again every 2 s, until Ctrl-C.")(
        function
    )


@click.command("status")
@click.argument("pool_name", metavar="[POOL]", type=PoolName(), required=False)
@watch_option
@list_options(STATUS)
@click.pass_context
def status(ctx: click.Context, pool_name: str | None, watch: bool, listing: Listing) -> None:
    """Show every pool, or POOL, and every team in it: what it has reserved, uses, borrows, lends
    and waits for, and since when. Without a command `cede` shows the same.
    """
    client = client_of(ctx)
    _shown(lambda: _status(client, pool_name, listing), watch)


@click.command("top")
@click.option("--pool", "pool_name", type=PoolName(), help="Only this pool's.")
@watch_option
@list_options(TOP)
@click.pass_context
def top(ctx: click.Context, pool_name: str | None, watch: bool, listing: Listing) -> None:
    """Show what runs, the largest use first: how much of its pool each request holds."""
    client = client_of(ctx)
    _shown(lambda: _top(client, pool_name, listing), watch)


def _shown(show: Callable[[], None], watch: bool) -> None:
    """Show once, or again and again until Ctrl-C."""
    if not watch:
        show()
        return
    from cede.cli.printing import print_error
    from cede.client.errors import ServerUnreachable

    while True:
        click.echo(_CLEAR if sys.stdout.isatty() else "", nl=not sys.stdout.isatty())
        try:
            show()
        except ServerUnreachable as error:
            print_error(error)  # it may come back
        sys.stdout.flush()
        time.sleep(WATCH_SECONDS)


def _status(client: Client, pool_name: str | None, listing: Listing) -> None:
    pools = client.status()["pools"]
    if pool_name is not None:
        wanted = client.pools.get(pool_name)["id"]
        pools = [each for each in pools if each["id"] == wanted]
    if listing.output == "json":
        print_json({"pools": pools})
    elif listing.output == "yaml":
        print_yaml({"pools": pools})
    elif not listing.for_people:
        listing.with_first("pool").print(row for pool in pools for row in _rows(pool))
    elif not pools:
        click.echo("no pools; make one with `cede pool create`", err=True)
    else:
        for number, pool in enumerate(pools):
            click.echo("\n" * bool(number) + bold(_title(pool)))
            rows = list(_rows(pool))
            if rows:
                listing.print(rows, empty="no such policies")
            else:
                click.echo("no policies that this token may see", err=True)


def _title(pool: dict[str, Any]) -> str:
    """Return one line for a pool: how much of it is used, and how many wait."""
    used = ", ".join(
        f"{key} {pool['used'].get(key, 0)} of {most}" for key, most in pool["capacity"].items()
    )
    waiting = f"{pool['waiting']} waiting" if pool["waiting"] else "nobody waits"
    oldest = pool["oldest_wait"]
    since = "" if oldest is None else f", the oldest for {Age(oldest)}"
    return f"pool {cell(pool['name'])}: {used or 'no capacity'}; {waiting}{since}"


def _rows(pool: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for each in pool["policies"]:
        oldest = each["oldest_wait"]
        yield {
            **each,
            "pool": pool["name"],
            "team": each["component"],
            "oldest_wait": None if oldest is None else Age(oldest),
        }


def _top(client: Client, pool_name: str | None, listing: Listing) -> None:
    capacity = {each["name"]: each["capacity"] for each in client.pools.list()}
    filters = {"status": list(_HOLDING), "pool": pool_name}
    found = [with_times(each) for each in client.requests.list(**filters)]
    rows = sorted(_used(found, capacity), key=lambda row: -row["part"])
    listing.print(rows, view=_top_row, empty="nothing runs")


def _used(
    found: Iterable[dict[str, Any]], capacity: dict[str, dict[str, int]]
) -> Iterator[dict[str, Any]]:
    """Add to each request the part of its pool that it holds, in the key where that is largest."""
    for each in found:
        whole = capacity.get(each["pool"] or "", {})
        many = each["tasks"] or 1
        parts = [
            many * amount / whole[key]
            for key, amount in each["resources"].items()
            if whole.get(key)
        ]
        yield {**each, "part": round(max(parts, default=0.0), 4)}


def _top_row(request: Any) -> dict[str, Any]:
    row = request_row(request)
    begun = (request.get("allocation") or {}).get("allocated_at")
    return {**row, "holds": row["asks"], "share": f"{request['part']:.0%}", "running": age(begun)}
