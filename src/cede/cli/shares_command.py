"""`cede shares`: what each element of a pool has and is due, on a server or in a file."""

from __future__ import annotations

from typing import Any

import click

from cede.cli.context import PoolName, client_of
from cede.cli.printing import print_json
from cede.cli.written_file import WrittenFile

_SHOWN = 20  # a longer list of names of pools is no help


@click.command("shares")
@click.argument("pool_name", metavar="[POOL]", type=PoolName(), required=False)
@click.option(
    "--file",
    "file",
    type=click.Path(dir_okay=False, allow_dash=True),
    help="The pools of a snapshot (YAML or JSON, - for stdin) instead of a server's.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def shares(ctx: click.Context, pool_name: str | None, file: str | None, as_json: bool) -> None:
    """Show the tree of POOL, by name, id or start of its id: every policy and every request with
    what it uses, wants and is due, and whether it starves.
    """
    if (pool_name is None) == (file is None):
        raise click.UsageError("give either POOL or --file")
    answer = _of_server(ctx, pool_name) if pool_name is not None else _of_file(str(file))
    if as_json:
        print_json(answer)
    else:
        from cede.cli.shares_table import print_shares

        print_shares(answer)


def _of_server(ctx: click.Context, pool_name: str) -> dict[str, Any]:
    from cede.client.errors import NotFound

    client = client_of(ctx)
    try:
        return client.pools.shares(pool_name)
    except NotFound as error:
        known = sorted(each["name"] for each in client.pools.list())
        more = ", …" if len(known) > _SHOWN else ""
        names = ", ".join(known[:_SHOWN]) + more if known else "none"
        raise NotFound(f"no pool {pool_name!r}", fix=f"known are {names}") from error


def _of_file(file: str) -> dict[str, Any]:
    from cede.model.errors import CedeError
    from cede.sim.shares import run

    source = WrittenFile.read(file)
    try:
        return run(source.data)
    except CedeError as error:
        source.refuse(error)
