"""Values for people and programs: lines, cells, JSON, YAML, CSV, TSV; one thing as its fields."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from cede.cli.times import local
from cede.model.ids import shorten

Row = Mapping[str, Any]


def print_one(thing: Row, fields: Sequence[str], output: str) -> None:
    """Print one thing: those of the given fields that have a value, or all of it for programs."""
    if output == "json":
        print_json(thing)
    elif output == "yaml":
        print_yaml(thing)
    elif output in ("csv", "tsv"):
        print_separated([thing], fields, "," if output == "csv" else "\t")
    else:
        width = max(len(field) for field in fields)
        for field in fields:
            text = cell(thing.get(field))
            if field == "id" and text != thing[field]:
                text = f"{text} ({thing[field]})"  # the only place that shows people the whole id
            if text:
                print(f"{field.replace('_', ' '):<{width}}  {text}")


def say(text: str, *, err: bool = False) -> None:
    """Print a line for people: ids are in their short form."""
    print(shorten(text), file=sys.stderr if err else sys.stdout, flush=True)


def print_error(error: BaseException) -> None:
    """Print on one line of stderr what went wrong, and the fix."""
    line = f"error: {getattr(error, 'message', None) or error}"
    if fix := getattr(error, "fix", ""):
        line += f" ({fix})" if fix != "nothing" else ""
    say(line, err=True)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_yaml(value: Any) -> None:
    import yaml

    text = yaml.safe_dump(_plain(value), sort_keys=False, allow_unicode=True)
    print(text.rstrip("\n"))


def cell(value: Any) -> str:
    """Format a value for people: on one line, without control characters, with short ids."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        text = ", ".join(f"{key}: {cell(each)}" for key, each in value.items())
    elif isinstance(value, list | tuple):
        text = ", ".join(cell(each) for each in value)
    else:
        text = local(str(value))
    return shorten("".join(char if char.isprintable() else " " for char in text))


def print_separated(rows: Sequence[Row], columns: Sequence[str], delimiter: str) -> None:
    """Print CSV; maps and lists become JSON inside their cell, so that programs can parse them."""
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_flat(row.get(column)) for column in columns])
    print(text.getvalue(), end="")


def _flat(value: Any) -> Any:
    if isinstance(value, Mapping | list | tuple | bool):
        return json.dumps(value, ensure_ascii=False)
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
