"""`cede token …`: who may do what."""

from __future__ import annotations

import click

from cede.cli.context import TokenId, client_of, output_option
from cede.cli.listing import list_options
from cede.cli.lists import Columns, Listing
from cede.cli.printing import print_json, print_yaml, say
from cede.cli.values import Duration, OneOf

TOKENS = Columns(("id", "name", "role", "subjects", "expires_at", "revoked"), ("created", "uses"))
ROLES = ("viewer", "submitter", "operator", "admin", "join")


@click.group("token")
def token() -> None:
    """Tokens: who may do what."""


@token.command("create")
@click.argument("name")
@click.option("--role", type=OneOf(ROLES), required=True)
@click.option("--subject", multiple=True, help="Such as team:red; may be given several times.")
@click.option("--expires-in", type=Duration(), help="How long it is valid, such as 30d.")
@click.option("--uses", type=click.IntRange(min=1), help="How many nodes a join token may make.")
@output_option
@click.pass_context
def create(
    ctx: click.Context,
    name: str,
    role: str,
    subject: tuple[str, ...],
    expires_in: float | None,
    uses: int | None,
    output: str,
) -> None:
    """Create a token. Its secret is printed this one time, alone on stdout."""
    if expires_in is not None and (expires_in < 1 or isinstance(expires_in, float)):
        raise click.UsageError("--expires-in wants whole seconds, at least 1, such as 30d")
    made = client_of(ctx).tokens.create(
        name, role, subjects=list(subject), expires_in=expires_in, uses=uses
    )
    if output == "json":
        print_json(made)
    elif output == "yaml":
        print_yaml(made)
    else:
        say(f"token {made['name']} ({made['id']}), role {made['role']}:", err=True)
        click.echo(made["token"])


@token.command("list")
@list_options(TOKENS)
@click.pass_context
def list_tokens(ctx: click.Context, listing: Listing) -> None:
    """List tokens. Their secrets are stored nowhere."""
    listing.print(client_of(ctx).tokens.list(), empty="no tokens")


@token.command("revoke")
@click.argument("token_id", metavar="ID", type=TokenId())
@click.pass_context
def revoke(ctx: click.Context, token_id: str) -> None:
    """End a token's life, at once and for good."""
    client_of(ctx).tokens.revoke(token_id)
    click.echo(f"revoked token {token_id}")
