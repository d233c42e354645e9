"""One printer: rows as a table, JSON, YAML, CSV or TSV; one thing as its fields.

Tables are for people and show chosen columns; JSON and YAML are for programs and show everything.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

Row = Mapping[str, Any]

# Wide enough that nothing is cut when a program reads our table.
WIDTH_WITHOUT_TERMINAL = 250
WIDTH_UNKNOWN = 80


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
            if text := cell(thing.get(field)):
                click.echo(f"{field.replace('_', ' '):<{width}}  {text}")


def print_error(error: BaseException) -> None:
    """One line on stderr: what went wrong, and the fix."""
    line = f"error: {getattr(error, 'message', None) or error}"
    if fix := getattr(error, "fix", ""):
        line += f" ({fix})" if fix != "nothing" else ""
    click.echo(line, err=True)


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_yaml(value: Any) -> None:
    import yaml

    text = yaml.safe_dump(_plain(value), sort_keys=False, allow_unicode=True)
    click.echo(text.rstrip("\n"))


def cell(value: Any) -> str:
    """A value as people read it, on one line and without control characters."""
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
    return "".join(char if char.isprintable() else " " for char in text)


def _print_table(rows: list[Row], columns: Sequence[str]) -> None:
    from cede.cli.table import render

    on_terminal = sys.stdout.isatty()
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    cells = [[cell(row.get(column)) for column in columns] for row in rows]
    lines = render(
        columns,
        cells,
        width=_terminal_width() if on_terminal else WIDTH_WITHOUT_TERMINAL,
        whole=("id",),  # ids are for copying: never folded, never cut
        rule="─" if unicode else "-",
        bold=on_terminal and os.environ.get("TERM") != "dumb",
    )
    click.echo("\n".join(lines))


def _terminal_width() -> int:
    # As shutil does it, without its import of every kind of archive.
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or WIDTH_UNKNOWN
    except OSError:
        return WIDTH_UNKNOWN


def _print_separated(rows: list[Row], columns: Sequence[str], delimiter: str) -> None:
    """Maps and lists become JSON inside their cell, so that programs can take them apart again."""
    import csv
    import io

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
