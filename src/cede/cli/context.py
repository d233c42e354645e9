"""The needs of every command: a client for its options, and argument types that complete names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cede.cli.connecting import connect
from cede.cli.request_rows import ref_of
from cede.cli.values import OneOf
from cede.model.ids import short_id, shorten

if TYPE_CHECKING:
    from cede.client.client import Client

F = TypeVar("F", bound=Callable[..., Any])

OUTPUTS = ("table", "json", "yaml", "csv", "tsv")
# A shell that completes a name must never hang on a server.
COMPLETION_TIMEOUT = 0.5
COMPLETED_MAX = 50


def client_of(ctx: click.Context, *, timeout: float = 10.0, attempts: int | None = None) -> Client:
    """Make the client that this command's options, the environment or a file configure."""
    options = ctx.find_root().obj or ctx.find_root().params
    server, token_file = options.get("server"), options.get("token_file")
    client = connect(server, token_file, timeout=timeout, attempts=attempts)
    ctx.call_on_close(client.close)
    return client


def output_option(function: F) -> F:
    return click.option(
        "-o",
        "--output",
        type=OneOf(OUTPUTS),
        default="table",
        show_default=True,
        help="How to print.",
    )(function)


def yes_option(function: F) -> F:
    return click.option("-y", "--yes", is_flag=True, help="Do not ask.")(function)


def remove(calls: Any, what: str, name: str, yes: bool, *, also: str = "", **more: Any) -> None:
    """Delete the thing with this name, after a confirmation."""
    found = calls.get(name)
    if not yes:
        click.confirm(f"delete {what} {found['name']}{also}?", abort=True, err=True)
    calls.delete(found["id"], **more)
    click.echo(f"deleted {what} {found['name']}")


class _Named(click.ParamType[str]):
    """The name or id of a thing; completes from the server when that answers in time."""

    def known(self, client: Client) -> Iterator[str]:
        raise NotImplementedError

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[Any]:
        from click.shell_completion import CompletionItem

        try:
            client = client_of(ctx, timeout=COMPLETION_TIMEOUT, attempts=1)
            names = list(self.known(client))
        except Exception:
            return []  # completion is a courtesy: no answer, no names, no error
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


class PoolName(_Named):
    name = "POOL"

    def known(self, client: Client) -> Iterator[str]:
        return (each["name"] for each in client.pools.list())


class NodeName(_Named):
    name = "NODE"

    def known(self, client: Client) -> Iterator[str]:
        return (each["name"] for each in client.nodes.list())


class TenantName(_Named):
    name = "TENANT"

    def known(self, client: Client) -> Iterator[str]:
        return (each["name"] for each in client.tenants.list())


class RequestId(_Named):
    name = "ID"

    def known(self, client: Client) -> Iterator[str]:
        """Offer the newest: a typed id is mostly one of today's."""
        for each in islice(client.requests.list(limit=COMPLETED_MAX), COMPLETED_MAX):
            yield shorten(ref_of(each))


class RequestRef(RequestId):
    """A reference to a request that is only read: its name is enough."""

    def known(self, client: Client) -> Iterator[str]:
        found = list(islice(client.requests.list(limit=COMPLETED_MAX), COMPLETED_MAX))
        named = ((each.get("labels") or {}).get("name") for each in found)
        return iter(
            [*(shorten(ref_of(each)) for each in found), *dict.fromkeys(filter(None, named))]
        )


class TeamName(_Named):
    """A component that has a policy in some pool."""

    name = "TEAM"

    def known(self, client: Client) -> Iterator[str]:
        return iter(dict.fromkeys(each["component"] for each in client.policies.list()))


class TokenId(_Named):
    name = "ID"

    def known(self, client: Client) -> Iterator[str]:
        return (short_id(each["id"]) for each in client.tokens.list())


def component_type_option(default: str | None = None) -> Callable[[F], F]:
    from cede.model.subject import SUBJECT_TYPES

    def add(function: F) -> F:
        return click.option(
            "-t",
            "--component-type",
            type=OneOf(SUBJECT_TYPES),
            default=default,
            show_default=default is not None,
            help="What the component is.",
        )(function)

    return add
