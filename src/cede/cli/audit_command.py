"""`cede audit …`: the record of changes, and whether it was tampered with.

Verifying asks a server, or reads its database without one: the answer of a server that was tampered
with proves nothing. The only command that imports the store.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import click

from cede.cli import exit_codes
from cede.cli.context import client_of
from cede.cli.listing import list_options
from cede.cli.lists import Columns, Listing
from cede.cli.printing import print_json

ENTRIES = Columns(
    ("number", "created", "actor", "action", "target", "detail"), (), ("previous", "hash")
)


@click.group("audit")
def audit() -> None:
    """The audit: who changed what."""


@audit.command("list")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True)
@list_options(ENTRIES)
@click.pass_context
def list_audit(ctx: click.Context, limit: int, listing: Listing) -> None:
    """List the newest entries, newest first."""
    from itertools import islice

    found = islice(filter(listing.passes, client_of(ctx).audit.list()), limit)
    listing.print(found, empty="no entries")


class Entry(click.ParamType[str]):
    """An entry of the chain in the form in which `verify` prints the head."""

    name = "NUMBER:HASH"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not re.fullmatch(r"[0-9]{1,18}:[0-9a-f]{64}", value):
            self.fail(f"{value!r} is not NUMBER:HASH, with 64 hexadecimal digits")
        return str(value)


@audit.command("verify")
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="The data folder of a server: read its database and its anchor, and ask no server.",
)
@click.option("--database", metavar="URL", help="Read this database, and ask no server.")
@click.option("--noted", type=Entry(), help="A head from an earlier time, which must be there.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def verify(
    ctx: click.Context, data: Path | None, database: str | None, noted: str | None, as_json: bool
) -> None:
    """Verify the chain of hashes from the first entry to the head.

    Exit codes: 0 when it holds, 10 when an entry was changed, removed, inserted or moved.
    """
    if data is None and database is None:
        found = client_of(ctx).audit.verify(noted)
    else:
        found = _offline(data, database, noted)
    if as_json:
        print_json(found)
    elif found["ok"]:
        head = found["head"] or "not stored"
        gone = f" after {found['removed']} that were removed" if found["removed"] else ""
        click.echo(f"the audit chain holds: {found['entries']} entries{gone}, head {head}")
    else:
        broken = found["broken"]
        click.echo(f"the audit chain is broken at entry {broken['number']}: {broken['what']}")
        click.echo(f"  {broken['detail']}")
        click.echo(f"  the {found['entries']} entries before it hold")
    sys.exit(exit_codes.OK if found["ok"] else exit_codes.BROKEN)


def _offline(data: Path | None, database: str | None, noted: str | None) -> dict[str, Any]:
    from cede.client.chain import follow
    from cede.store import StoreError, chain
    from cede.store.offline import Offline

    anchor = None if data is None else data / "anchor"
    try:
        with Offline(database or f"sqlite:///{data}/cede.db", anchor) as chained:

            def piece(after: str, limit: int) -> dict[str, Any]:
                return chain.to_json(chained.verify(chain.Link.parse(after), limit))

            found = follow(piece, noted)
            if found["ok"] and (behind := chained.rolled_back()) is not None:
                number = found["removed"] + found["entries"] + 1
                broken = {"number": number, "what": "rolled_back", "detail": behind}
                found |= {"ok": False, "broken": broken}
            return found
    except StoreError as error:
        raise click.ClickException(str(error)) from None
