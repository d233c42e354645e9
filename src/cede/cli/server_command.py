"""`cede up`: a server in this process. The only command that imports the server.

Its options are the server's own: they, the environment and a file are read in one place, by the
server.
"""

from __future__ import annotations

import sys

import click


@click.command(
    "up",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def up(arguments: tuple[str, ...]) -> None:
    """Start a server on this machine."""
    from cede.server.run import main

    sys.exit(main(arguments))
