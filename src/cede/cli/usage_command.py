"""`cede usage`: what was held; `cede history`: what has ended, and what it held."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from cede.cli.context import PoolName, TeamName, client_of
from cede.cli.listing import list_options
from cede.cli.lists import Columns, Listing
from cede.cli.periods import From, To
from cede.cli.printing import print_one
from cede.cli.request_rows import request_row
from cede.cli.times import Age, with_times
from cede.cli.values import Duration, OneOf

USAGE = Columns(
    (
        *("name", "pool", "requests", "preempted", "node_hours", "gpu_hours", "lost_gpu_hours"),
        *("cost", "hours"),
    ),
    ("starts", "mean_wait"),
    ("id", "day", "lost_hours"),
)
HISTORY = Columns(
    ("id", "name", "who", "status", "asks", "pool", "ended", "gpu_hours", "lost_gpu_hours", "cost"),
    ("owner", "waited", "preempted_count", "attempt", "node_hours", "hours", "reason"),
    ("component", "lost_hours", "labels", "tenant", "created", "resources", "tasks"),
)
LEVELS = Columns(
    ("at", "key", "capacity", "used", "borrowed", "free", "waiting", "waiting_requests")
)
# Columns that are empty in most reports.
_IF_ANY = ("pool", "cost", "requests")
_SHOWN = 100
# Below this value two digits are not enough.
_SMALL = 0.1
F = TypeVar("F", bound=Callable[..., Any])


def period_options(function: F) -> F:
    options: list[Callable[[Any], Any]] = [
        click.option(
            "--from",
            "begin",
            type=From(),
            help="From this day, month or time on: 2026-11-01, 2026-11, 2026-11-01T08:00; of UTC.",
        ),
        click.option(
            "--to", "end", type=To(), help="Through this day or month, or before this time."
        ),
        click.option("--since", type=Duration(), help="Only the last 24h, 7d, 4w."),
    ]
    made: Any = function
    for option in reversed(options):
        made = option(made)
    return made  # type: ignore[no-any-return]


def _period(begin: str | None, end: str | None, since: float | None) -> dict[str, Any]:
    if begin is not None and since is not None:
        raise click.UsageError("--since and --from say the same: give one of them")
    return {"begin": begin, "end": end, "since": since}


@click.command("usage")
@click.option(
    "--by",
    type=OneOf(["pool", "team", "user", "label", "policy", "tenant"]),
    default="pool",
    show_default=True,
    help="What the usage is summed by.",
)
@click.option("--label", metavar="NAME", help="With --by label: which one (project).")
@click.option("--days", is_flag=True, help="Day by day, of UTC.")
@period_options
@list_options(USAGE)
@click.pass_context
def usage(
    ctx: click.Context, /, by: str, label: str | None, days: bool, listing: Listing, **given: Any
) -> None:
    """Show what was held, in hours: of nodes, of GPUs, and of every key; what of it was lost by
    stops and broken machines, and what it cost where pools have a cost_per_hour."""
    period = _period(**given)
    if label is not None and by != "label":
        raise click.UsageError("--label is for --by label")
    if days and period["begin"] is None and period["since"] is None:
        raise click.UsageError("--days needs a beginning: give --from or --since")
    found = client_of(ctx).usage(by=by, label=label, days=days, **period)
    if listing.output in ("json", "yaml"):
        print_one(found, ("by", "since", "from", "to", "items"), listing.output)
        return
    shown = listing.with_first("day") if days else listing
    rows = [_rounded(each) if listing.for_people else each for each in found["items"]]
    _without_empty_columns(shown, rows).print(rows, empty="nothing was held in that time")


@click.command("history")
@click.option("--pool", "pool_name", type=PoolName(), help="Only this pool's.")
@click.option("--component", type=TeamName(), help="Only this component's.")
@click.option("--user", help="Only of this owner, as `cede history -o wide` shows it.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=_SHOWN, help=f"At most this many ({_SHOWN})."
)
@click.option("--all", "everything", is_flag=True, help="All of them, however many.")
@period_options
@list_options(HISTORY)
@click.pass_context
def history(
    ctx: click.Context,
    /,
    pool_name: str | None,
    component: str | None,
    user: str | None,
    limit: int,
    everything: bool,
    listing: Listing,
    **given: Any,
) -> None:
    """Show requests that have ended, the last first: what each held, what of it was lost by stops
    and broken machines, and what it cost."""
    from itertools import islice

    found = client_of(ctx).history(
        pool=pool_name, component=component, user=user, **_period(**given)
    )
    pasts = list(found if everything else islice(found, limit))
    for each in pasts:
        each["request"] = with_times(each["request"])
    if listing.output in ("json", "yaml"):
        listing.print(pasts, view=_past_row)
        return
    rows = [_past_row(each) for each in pasts]
    shown = [_rounded(row) for row in rows] if listing.for_people else rows
    _without_empty_columns(listing, shown).print(shown, empty="nothing has ended in that time")


@click.command("history")
@click.argument("pool_name", metavar="POOL", type=PoolName())
@click.option("--step", type=Duration(), help="What one line is the mean of: 5m, 1h, 1d.")
@period_options
@list_options(LEVELS)
@click.pass_context
def pool_history(
    ctx: click.Context, /, pool_name: str, step: float | None, listing: Listing, **given: Any
) -> None:
    """Show how much of a pool there was, was used, borrowed, free and waited for over time: of the
    last day unless a period is given."""
    found = client_of(ctx).pool_history(pool_name, step=step, **_period(**given))
    if listing.output in ("json", "yaml"):
        print_one(found, ("pool", "step", "items"), listing.output)
        return
    rows = [
        {"at": point["at"], "key": key, **level, "waiting_requests": point["waiting_requests"]}
        for point in found["items"]
        for key, level in point["keys"].items()
    ]
    listing.print(rows, empty="nothing was noted in that time")


def _past_row(past: Any) -> dict[str, Any]:
    rest = {key: value for key, value in past.items() if key != "request"}
    waited = past["waited"]
    return {
        **request_row(past["request"]),
        **rest,
        "waited": None if waited is None else Age(waited),
    }


def _without_empty_columns(listing: Listing, rows: list[dict[str, Any]]) -> Listing:
    """Leave out columns that are empty in every row, unless the columns were chosen."""
    if listing.chosen or not listing.for_people:
        return listing
    empty = {
        name
        for name in _IF_ANY
        if all(row.get(name) is None or row.get(name) == "" for row in rows)
    }
    return listing._replace(columns=tuple(each for each in listing.columns if each not in empty))


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    """Round to two digits for people, and name rows without a name."""
    found = {**row, "name": row["name"] or "(none)"} if "requests" in row else dict(row)
    for name in ("node_hours", "gpu_hours", "lost_gpu_hours", "cost"):
        if found.get(name) is not None:
            found[name] = round(found[name], 2 if found[name] >= _SMALL else 4)
    found["hours"] = {key: round(each, 2) for key, each in row["hours"].items() if key != "gpu"}
    if found.get("mean_wait") is not None:
        found["mean_wait"] = Age(found["mean_wait"])
    return found
