"""`cede apply`: pools, policies and tenants as files declare them; `cede export`: such a file."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import click

from cede.cli import exit_codes
from cede.cli.context import client_of
from cede.cli.dry_run import print_dry_run
from cede.cli.printing import cell, print_json, print_yaml, say
from cede.cli.values import OneOf
from cede.cli.written_file import WrittenFile
from cede.model.configuration import KINDS
from cede.model.errors import choices

_ENTRY = re.compile(r"(\w+)\[(\d+)\](.*)")
_FILE = click.Path(dir_okay=False, allow_dash=True)


@click.command("apply")
@click.option(
    "-f",
    "--file",
    "first",
    multiple=True,
    type=_FILE,
    help="A file to apply, - for stdin; several are one.",
)
@click.argument("more", metavar="[FILE]…", nargs=-1, type=_FILE)
@click.option(
    "--prune",
    is_flag=True,
    help="Delete what is there and not declared, of the kinds that are declared.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Only list what would change, and what it would stop, pause or let start.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the server's answer.")
@click.pass_context
def apply(
    ctx: click.Context,
    first: tuple[str, ...],
    more: tuple[str, ...],
    prune: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make pools, policies and tenants as files (YAML or JSON) declare them: all of it, or nothing.

    What is declared becomes what it says, and a field that is not given has its usual value. What
    is not declared stays, unless it is pruned. Applying twice changes nothing.
    """
    from cede.client.errors import Invalid

    if not (files := (*first, *more)):
        raise click.UsageError("give the files to apply: -f FILE")
    declared = _Declared.read(files)
    try:
        answer = client_of(ctx).apply(declared.body, prune=prune, dry_run=dry_run)
    except Invalid as error:
        declared.refuse(error)
    if as_json:
        print_json(answer)
    else:
        _print(answer, dry_run)


@click.command("export")
@click.option("-o", "--output", type=OneOf(["yaml", "json"]), default="yaml", help="How to print.")
@click.pass_context
def export(ctx: click.Context, output: str) -> None:
    """Print every pool, policy and tenant as a file that `cede apply` takes."""
    found = client_of(ctx).configuration()
    if output == "json":
        print_json(found)
    else:
        print_yaml(found)


@dataclass(slots=True)
class _Declared:
    """The entries that several files declare together, and the file and place of each."""

    body: dict[str, list[Any]] = field(default_factory=dict)
    places: dict[str, list[tuple[WrittenFile, int]]] = field(default_factory=dict)

    @classmethod
    def read(cls, files: Sequence[str]) -> _Declared:
        made = cls()
        for file in files:
            made._add(WrittenFile.read(file, "a configuration"))
        return made

    def _add(self, file: WrittenFile) -> None:
        for kind, entries in file.data.items():
            if kind not in KINDS:
                _refuse(file, str(kind), f"unknown field; {choices(kind, KINDS)}")
            if not isinstance(entries, list):
                _refuse(file, kind, "must be a list")
            for path in _not_json(entries, kind):
                _refuse(file, path, "is neither a text nor a number: write it in quotes")
            self.body.setdefault(kind, []).extend(entries)
            here = [(file, number) for number in range(len(entries))]
            self.places.setdefault(kind, []).extend(here)

    def refuse(self, error: Any) -> NoReturn:
        """Print why the server refuses an entry, with its file and line, and end."""
        found = _ENTRY.fullmatch(error.field or "")
        if found is None:
            raise error
        kind, number, rest = found[1], int(found[2]), found[3]
        file, at = self.places[kind][number]
        _refuse(file, f"{kind}[{at}]{rest}", error.message.removeprefix(f"{error.field}: "))


def _refuse(file: WrittenFile, path: str, problem: str) -> NoReturn:
    click.echo(f"{file.name}:{file.line_of(path)}: {path}: {problem}", err=True)
    sys.exit(exit_codes.ERROR)


def _not_json(value: Any, path: str) -> Iterator[str]:
    """Find values that JSON does not have: dates, above all."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _not_json(each, f"{path}.{name}")
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _not_json(each, f"{path}[{number}]")
    elif value is not None and not isinstance(value, str | int | float):
        yield path


_WORDS = {"create": "create", "update": "change", "delete": "delete"}


def _print(answer: dict[str, Any], dry_run: bool) -> None:
    changes = answer["changes"]
    for each in changes:
        where = f" in pool {each['pool']}" if each["pool"] else ""
        say(f"{_WORDS[each['do']]} {each['kind']} {each['name']}{where}")
        for name, became in each["fields"].items():
            was = "" if each["do"] == "create" else f"{_value(became['from'])} -> "
            say(f"  {name}: {was}{_value(became['to'])}")
    if not changes:
        click.echo("nothing to change")
    elif dry_run:
        print_dry_run(answer)
    else:
        click.echo(f"{len(changes)} changed")


def _value(value: Any) -> str:
    return cell(value) or "none"
