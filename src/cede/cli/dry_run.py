"""`--dry-run` of an edit: which requests it would stop, pause or let start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from cede.cli.lists import Listing
from cede.cli.printing import print_json

F = TypeVar("F", bound=Callable[..., Any])

_COLUMNS = ("then", "request", "component", "pool", "for", "why")


def dry_run_option(function: F) -> F:
    text = "Only list what it would stop, pause or let start."
    return click.option("--dry-run", is_flag=True, help=text)(function)


def print_dry_run(answer: dict[str, Any], *, as_json: bool = False) -> None:
    """Print the answer to a dry run as a table."""
    if as_json:
        print_json(answer)
        return
    rows = [
        {**each, "then": then, "why": (each.get("reason") or {}).get("text", "")}
        for then in ("stops", "pauses", "starts")
        for each in answer[then]
    ]
    Listing(_COLUMNS, "table").print(rows, empty="it would stop, pause and start nothing")
    more = sum(answer["counts"].values()) - len(rows)
    if more:
        click.echo(f"and {more} more")
    click.echo("nothing was changed")
