"""`cede up`: a server in this process. The only command that imports the server."""

from __future__ import annotations

import click


@click.command(
    "up",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    add_help_option=False,
)
@click.pass_context
def up(ctx: click.Context) -> None:
    """Start a server on this machine."""
    raise NotImplementedError
