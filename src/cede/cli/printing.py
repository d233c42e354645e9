"""One printer: rows as a table, JSON, YAML, CSV or TSV; one thing as its fields.

Tables are for people and show chosen columns; JSON and YAML are for programs and show everything.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from cede.model.ids import shorten

Row = Mapping[str, Any]

# Wide enough that nothing is cut when a program reads our table.
WIDTH_WITHOUT_TERMINAL = 250


def print_rows(
    rows: Iterable[Row], columns: Sequence[str], output: str, *, empty: str = "nothing"
) -> None:
    found = list(rows)
    if output == "json":
        print_json(found)
    elif output == "yaml":
        print_yaml(found)
    elif output in ("csv", "tsv"):
        _print_separated(found, columns, "," if output == "csv" else "\t")
    elif not found:
        click.echo(empty, err=True)
    else:
        _print_table(found, columns)


def print_one(thing: Row, fields: Sequence[str], output: str) -> None:
    """One thing: those of its chosen fields that say something, or all of it for programs."""
    if output == "json":
        print_json(thing)
    elif output == "yaml":
        print_yaml(thing)
    elif output in ("csv", "tsv"):
        _print_separated([thing], fields, "," if output == "csv" else "\t")
    else:
        width = max(len(field) for field in fields)
        for field in fields:
            text = cell(thing.get(field))
            if field == "id" and text != thing[field]:
                text = f"{text} ({thing[field]})"  # the one place for people with the whole id
            if text:
                click.echo(f"{field.replace('_', ' '):<{width}}  {text}")


def say(text: str, *, err: bool = False) -> None:
    """A line for people: ids are in their short form."""
    click.echo(shorten(text), err=err)


def print_error(error: BaseException) -> None:
    """One line on stderr: what went wrong, and the fix."""
    line = f"error: {getattr(error, 'message', None) or error}"
    if fix := getattr(error, "fix", ""):
        line += f" ({fix})" if fix != "nothing" else ""
    say(line, err=True)


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_yaml(value: Any) -> None:
    import yaml

    text = yaml.safe_dump(_plain(value), sort_keys=False, allow_unicode=True)
    click.echo(text.rstrip("\n"))


def cell(value: Any) -> str:
    """A value as people read it: on one line, without control characters, with short ids."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        text = ", ".join(f"{key}: {cell(each)}" for key, each in value.items())
    elif isinstance(value, list | tuple):
        text = ", ".join(cell(each) for each in value)
    else:
        text = str(value)
    return shorten("".join(char if char.isprintable() else " " for char in text))


def _print_table(rows: list[Row], columns: Sequence[str]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stdout, highlight=False)
    if not console.is_terminal:
        console = Console(file=sys.stdout, highlight=False, width=WIDTH_WITHOUT_TERMINAL)
    unicode = (console.encoding or "").lower().startswith("utf")
    table = Table(box=box.SIMPLE_HEAD if unicode else box.ASCII2, pad_edge=False, show_edge=False)
    for column in columns:
        # Ids are for copying: never folded, never cut.
        table.add_column(column, no_wrap=column == "id", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell(row.get(column))) for column in columns))
    console.print(table)


def _print_separated(rows: list[Row], columns: Sequence[str], delimiter: str) -> None:
    """Maps and lists become JSON inside their cell, so that programs can take them apart again."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_flat(row.get(column)) for column in columns])
    click.echo(text.getvalue(), nl=False)


def _flat(value: Any) -> Any:
    if isinstance(value, Mapping | list | tuple | bool):
        return json.dumps(value, ensure_ascii=False)
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
