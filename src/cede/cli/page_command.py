"""`cede page`: a link that opens the page."""

from __future__ import annotations

import click

from cede.cli.context import client_of


@click.command("page")
@click.pass_context
def page(ctx: click.Context) -> None:
    """Print a link that opens the page with your token: it works once, within minutes."""
    click.echo(client_of(ctx).page_link())
