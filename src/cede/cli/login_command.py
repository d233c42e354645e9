"""`cede login`, `cede logout`, `cede use`: servers by name, and the one in use."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from cede.cli.printing import print_json
from cede.client.contexts import Context, Contexts, read_contexts

# Seconds after which a login gives up.
_TIMEOUT = 10.0


class ContextName(click.ParamType[str]):
    """The name of a context; completes from the file of contexts."""

    name = "NAME"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[Any]:
        from click.shell_completion import CompletionItem

        try:
            known = read_contexts().known
        except Exception:
            return []  # completion is a courtesy: no names, no error
        return [CompletionItem(name) for name in known if name.startswith(incomplete)]


@click.command("login")
@click.argument("url", metavar="URL")
@click.option("--name", help="What to call it; the address without its scheme unless given.")
@click.option(
    "--token-file", type=click.Path(dir_okay=False), help="A file with the token and nothing else."
)
@click.option("--trust", metavar="FINGERPRINT", help="Trust the certificate with this fingerprint.")
@click.option("--ca", type=click.Path(dir_okay=False), help="Trust the certificates in this file.")
def login(
    url: str, name: str | None, token_file: str | None, trust: str | None, ca: str | None
) -> None:
    """Log in to the server at URL and use it from now on.

    The token is asked for; piped, it is read from stdin. It is checked, and kept in a file that
    only you can read.
    """
    from cede.client.client import Client
    from cede.client.config import Connection, clean
    from cede.client.http import Http
    from cede.model.subject import parse_name

    server = clean(url)
    if trust and ca:
        raise click.UsageError("give either --trust or --ca")
    named = parse_name(name or server.partition("://")[2].partition("/")[0], "--name")
    contexts = read_contexts()
    believed = _certificates(server, trust, ca)
    token = _token(server, token_file)
    http = Http(Connection(server, token, ca=believed), timeout=_TIMEOUT, attempts=1)
    with Client(http=http) as client:
        found = client.whoami()
    expires = str(found.get("expires_at") or "")
    contexts.with_context(named, Context(server, token, believed, expires)).write()
    until = f", until {expires}" if expires else ""
    click.echo(f"logged in to {named} as {found['name']}, role {found['role']}{until}")
    _warn_of_shadow()


@click.command("logout")
@click.argument("name", type=ContextName())
def logout(name: str) -> None:
    """Forget a server and the token for it; the token itself stays valid."""
    read_contexts().without(name).write()
    click.echo(f"forgot {name}")


@click.command("use")
@click.argument("name", type=ContextName(), required=False)
@click.option("--current", is_flag=True, help="Only print the name of the one in use.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def use(name: str | None, current: bool, as_json: bool) -> None:
    """Use the server of this NAME from now on; without one, list those you are logged in to."""
    contexts = read_contexts()
    if name is not None:
        contexts.using(name).write()
        click.echo(f"using {name} ({contexts.get(name).server})")
        _warn_of_shadow()
    elif current:
        if contexts.current is None:
            raise click.ClickException("none is in use: choose one with cede use NAME")
        click.echo(contexts.current)
    else:
        _print(contexts, as_json)


def _print(contexts: Contexts, as_json: bool) -> None:
    rows = [
        {
            "name": name,
            "server": each.server,
            "expires": each.expires or None,
            "in_use": name == contexts.current,
        }
        for name, each in sorted(contexts.known.items())
    ]
    if as_json:
        print_json(rows)
    elif not rows:
        click.echo("logged in to none: cede login URL", err=True)
    else:
        from cede.cli.tables import print_table

        shown = [{**row, "in_use": "*" if row["in_use"] else ""} for row in rows]
        print_table(shown, ("in_use", "name", "server", "expires"))


def _token(server: str, token_file: str | None) -> str:
    from cede.client.config import read_token

    if token_file:
        return read_token(token_file)
    if sys.stdin.isatty():
        token = click.prompt(f"token for {server}", hide_input=True, err=True)
    else:
        token = sys.stdin.readline()
    if len(token.split()) != 1:
        raise click.UsageError("a token is one word; give it at the prompt, on stdin or in a file")
    return str(token.strip())


def _certificates(server: str, trust: str | None, ca: str | None) -> str:
    """Return the certificates that the server is to be trusted by, as text; empty for the
    system's."""
    if ca is not None:
        from cede.client.transport import PEM, trusted

        trusted(ca)  # raises if it is unusable
        text = Path(ca).read_text(encoding="utf-8", errors="replace")
        return text[text.index(PEM) :]
    if trust is None:
        return ""
    from cede.client.errors import ServerUnreachable
    from cede.client.transport import Transport, TransportError
    from cede.client.trust import certificate, parse_fingerprint

    wanted = parse_fingerprint(trust)
    try:
        return certificate(Transport(server, {}).certificates(_TIMEOUT), wanted)
    except TransportError as error:
        raise ServerUnreachable(f"no answer from {server}: {error}") from None


def _warn_of_shadow() -> None:
    from cede.client.config import shadowing

    if before := shadowing():
        click.echo(f"note: {before} comes first here, and names another server", err=True)
