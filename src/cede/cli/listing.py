"""The options that every list has: -o, --json, --columns, --sort and --filter."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from cede.cli.lists import OUTPUTS, Columns, listing_of
from cede.cli.values import OneOf

F = TypeVar("F", bound=Callable[..., Any])


def list_options(columns: Columns, *, short: bool = True) -> Callable[[F], F]:
    """Add the options of a list; its function gets a `listing`. `short`: with -c."""

    def add(function: F) -> F:
        @wraps(function)
        def listed(*args: Any, **given: Any) -> Any:
            return function(*args, listing=listing_of(columns, given), **given)

        names = ("-c", "--columns") if short else ("--columns",)
        options: list[Callable[[Any], Any]] = [
            click.option(*names, metavar="A,B", help="Which columns."),
            click.option(
                "--sort", metavar="A,-B", help="By which columns; - for the largest first."
            ),
            click.option(
                "--filter",
                "filters",
                multiple=True,
                metavar="A=X",
                help="Only rows where A is X (=), is not (!=), or has it (~).",
            ),
            click.option(
                "-o", "--output", type=OneOf(OUTPUTS), default="table", help="How to print."
            ),
            click.option("--json", "as_json", is_flag=True, help="The same as -o json."),
        ]
        made: Any = listed
        for option in reversed(options):
            made = option(made)
        return made  # type: ignore[no-any-return]

    return add
