"""`cede up`: a server in this process; `cede backup` and `cede restore`: its database. The only
commands that import the server.

The options of `up` are read by the server, in one place with the environment and a file.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from cede.server.config import Config


@click.command(
    "up",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def up(arguments: tuple[str, ...]) -> None:
    """Start a server on this machine."""
    gc.disable()  # what is imported stays: looking through it took a tenth of the import
    from cede.server.run import main

    sys.exit(main(arguments))


_FLAGS = (
    click.option(
        "--data",
        type=click.Path(path_type=Path, file_okay=False),
        help="The data folder of the server; the one that `cede up` uses.",
    ),
    click.option("--database", metavar="URL", help="Its database, if it is elsewhere."),
)


def _of_a_server(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_FLAGS):
        command = option(command)
    return command


@click.command("backup")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@_of_a_server
def backup(file: Path, data: Path | None, database: str | None) -> None:
    """Copy the SQLite database of a server to FILE, while the server runs."""
    from cede.server.restore import back_up, with_config

    file = file.absolute()
    sys.exit(with_config(_flags(data, database), lambda config: back_up(config, file, click.echo)))


@click.command("restore")
@click.argument(
    "file", type=click.Path(path_type=Path, dir_okay=False, exists=True), required=False
)
@click.option("--accept", is_flag=True, help="Take the database as it is: you put it there.")
@_of_a_server
def restore(file: Path | None, accept: bool, data: Path | None, database: str | None) -> None:
    """Put a copy in the place of a server's SQLite database, while no server runs.

    What was granted after the copy was made is unknown, so pools grant nothing until their nodes
    have said what runs on them and all leases are over, or an operator says so.
    """
    from cede.server import restore as restoring

    if (file is None) != accept:
        raise click.UsageError("give either FILE or --accept")
    copy = None if file is None else file.absolute()

    def do(config: Config) -> None:
        if copy is None:
            restoring.accept(config, click.echo)
        else:
            restoring.restore(config, copy, click.echo)

    sys.exit(restoring.with_config(_flags(data, database), do))


def _flags(data: Path | None, database: str | None) -> list[str]:
    given = [("--data", data), ("--database", database)]
    return [text for flag, value in given if value is not None for text in (flag, str(value))]
