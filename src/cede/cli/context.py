"""What every command needs: a client for the options given, and values people type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from cede.client.client import Client

F = TypeVar("F", bound=Callable[..., Any])

OUTPUTS = ("table", "json", "yaml", "csv", "tsv")
# A shell that completes a name must never hang on a server.
COMPLETION_TIMEOUT = 0.5
COMPLETED_MAX = 50


def client_of(ctx: click.Context, *, timeout: float = 10.0, attempts: int | None = None) -> Client:
    """The client that this command's options, the environment or a file configure."""
    from cede.client.client import Client
    from cede.client.config import read_token, resolve
    from cede.client.http import ATTEMPTS, Http

    options = ctx.find_root().obj or ctx.find_root().params
    token_file = options.get("token_file")
    token = read_token(token_file) if token_file else None
    connection = resolve(options.get("server"), token)
    client = Client(http=Http(connection, timeout=timeout, attempts=attempts or ATTEMPTS))
    ctx.call_on_close(client.close)
    return client


def output_option(function: F) -> F:
    return click.option(
        "-o",
        "--output",
        type=click.Choice(OUTPUTS),
        default="table",
        show_default=True,
        help="How to print.",
    )(function)


def yes_option(function: F) -> F:
    return click.option("-y", "--yes", is_flag=True, help="Do not ask.")(function)


def remove(calls: Any, what: str, name: str, yes: bool, *, also: str = "", **more: Any) -> None:
    """Delete what has this name, once somebody is sure."""
    found = calls.get(name)
    if not yes:
        click.confirm(f"delete {what} {found['name']}{also}?", abort=True, err=True)
    calls.delete(found["id"], **more)
    click.echo(f"deleted {what} {found['name']}")


class Map(click.ParamType[dict[str, Any]]):
    """A map as JSON or YAML: '{"gpu": 8}' or 'gpu: 8'."""

    name = "JSON|YAML"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        import yaml

        try:
            data = yaml.safe_load(value)
        except yaml.YAMLError as error:
            self.fail(f"{value!r} is neither JSON nor YAML: {str(error).splitlines()[0]}")
        if not isinstance(data, dict):
            self.fail(f"{value!r} is not a map, such as '{{\"gpu\": 8}}' or 'gpu: 8'")
        return data


class Amounts(Map):
    """A map from resource key to integer, checked before anything is sent."""

    def __init__(self, least: int = 0) -> None:
        self._least = least

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, Any]:
        from cede.model.amounts import parse_amounts
        from cede.model.errors import Invalid

        given = super().convert(value, param, ctx)
        field = (param.name if param is not None else None) or "amounts"
        try:
            return dict(parse_amounts(given, field, least=self._least))
        except Invalid as error:
            self.fail(str(error))


class Pairs(Amounts):
    """Amounts as KEY=N, several with commas between them; a map does as well."""

    name = "KEY=N"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, Any]:
        if not isinstance(value, str) or "=" not in value or "{" in value:
            return super().convert(value, param, ctx)
        found: dict[str, Any] = {}
        for each in value.split(","):
            key, equals, amount = (part.strip() for part in each.partition("="))
            if not equals or not key:
                self.fail(f"wants KEY=N, not {each!r}")
            if key in found:
                self.fail(f"{key} is there twice")
            try:
                found[key] = int(amount)
            except ValueError:
                self.fail(f"{key} must be an integer, not {amount!r}")
        return super().convert(found, param, ctx)


def merged(option: str, given: Iterable[dict[str, int]]) -> dict[str, int] | None:
    """Amounts that were given in several parts; None if there are none."""
    whole: dict[str, int] = {}
    for each in given:
        for key in each:
            if key in whole:
                raise click.UsageError(f"{option}: {key} is there twice")
        whole |= each
    return whole or None


class _Named(click.ParamType[str]):
    """A thing by name, id or id prefix; it completes from the server when that answers in time."""

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
            return []  # completion is a courtesy: no answer, no names, no noise
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
        """The newest: who types an id wants one of today's."""
        return (each["id"] for each in islice(client.requests.list(), COMPLETED_MAX))


def component_type_option(default: str | None = None) -> Callable[[F], F]:
    from cede.model.subject import SUBJECT_TYPES

    def add(function: F) -> F:
        return click.option(
            "-t",
            "--component-type",
            type=click.Choice(SUBJECT_TYPES),
            default=default,
            show_default=default is not None,
            help="What the component is.",
        )(function)

    return add
