"""Commands that only look: `why`, `snapshot`, `events`, `whoami`."""

from __future__ import annotations

import json
from typing import Any

import click

from cede.cli.context import client_of, output_option
from cede.cli.printing import cell, print_json, print_one, print_yaml


@click.command("why")
@click.argument("request_id", metavar="ID")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table")
@click.pass_context
def why(ctx: click.Context, request_id: str, output: str) -> None:
    """Why a request waits, what would change it, or how it ended."""
    answer = client_of(ctx).requests.why(request_id)
    if output == "json":
        print_json(answer)
    elif output == "yaml":
        print_yaml(answer)
    else:
        _print_why(answer)


def _print_why(answer: dict[str, Any]) -> None:
    """The sentence, then the fix, then whatever else the answer holds, one fact a line."""
    reason = answer.get("reason") or {}
    click.echo(f"{answer.get('status', '')}: {reason.get('text', '')}".strip(": "))
    if reason.get("fix") and reason["fix"] != "nothing":
        click.echo(f"fix: {reason['fix']}")
    for name, value in answer.items():
        if name in ("id", "request_id", "status", "reason") or value in (None, [], {}):
            continue
        if isinstance(value, list):
            click.echo(f"{name.replace('_', ' ')}:")
            for each in value:
                click.echo(f"  {_fact(each)}")
        else:
            click.echo(f"{name.replace('_', ' ')}: {_fact(value)}")


def _fact(value: Any) -> str:
    if isinstance(value, dict):
        reason = value.get("reason") if isinstance(value.get("reason"), dict) else value
        if isinstance(reason, dict) and reason.get("text"):
            where = value.get("pool") or value.get("name")
            return f"{where}: {reason['text']}" if where and reason is not value else reason["text"]
    return cell(value)


@click.command("snapshot")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), default="json")
@click.pass_context
def snapshot(ctx: click.Context, output: str) -> None:
    """Print the whole living state, as `cede plan` reads it."""
    state = client_of(ctx).snapshot()
    if output == "yaml":
        print_yaml(state)
    else:
        print_json(state)


@click.command("whoami")
@output_option
@click.pass_context
def whoami(ctx: click.Context, output: str) -> None:
    """Show the name, role and subjects of this token."""
    found = client_of(ctx).whoami()
    print_one(found, [key for key in found if not isinstance(found[key], dict)], output)


@click.command("events")
@click.option("-f", "--follow", is_flag=True, help="Go on for ever.")
@click.option("--after", type=click.IntRange(min=0), default=None, help="Only after this index.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
@click.pass_context
def events(ctx: click.Context, follow: bool, after: int | None, output: str) -> None:
    """Print what happened, in order: one line per event."""
    for event in client_of(ctx).events(after=after, follow=follow):
        if output == "json":
            click.echo(json.dumps(event, ensure_ascii=False))
        else:
            about = event.get("request_id") or event.get("pool_id") or ""
            line = f"{event['index']:>8}  {event['at']:>12}  {event['kind']:<12}  {about}"
            click.echo(f"{line}  {cell(event.get('data'))}".rstrip())
