"""`cede submit … -- COMMAND`: a node runs the command when its units are granted."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from cede.cli.context import client_of
from cede.cli.demand import demand_options, stop_policy_options, submission_of
from cede.cli.printing import print_json
from cede.cli.values import OneOf, Written, pairs
from cede.model.array import parse_array
from cede.model.ids import short_id

# What makes a program's name mean the same there. A fixed list: an environment holds secrets.
CAPTURED = ("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "LANG")


@click.command("submit")
@demand_options
@click.option(
    "--tasks", type=click.IntRange(min=1), help="So many alike, on nodes of their own choice."
)
@click.option(
    "--nodes", type=click.IntRange(min=1), help="So many tasks, each on a node of its own."
)
@click.option("--per-node", type=click.IntRange(min=1), help="At most so many tasks on one node.")
@click.option("--independent", is_flag=True, help="Each task waits, runs and retries by itself.")
@click.option(
    "--array",
    type=Written("RANGES", lambda text, name: parse_array(str(text), name)),
    help="Tasks alike but for CEDE_TASK, such as 0-99 or 1,3,5-9; 0-99%10: at most 10 at once.",
)
@click.option(
    "--node-label", multiple=True, metavar="NAME=VALUE", help="Only on nodes with this label."
)
@click.option(
    "--node-fingerprint", "fingerprint", default=None, help="Only on nodes with this fingerprint."
)
@click.option(
    "--topology",
    type=OneOf(["any", "tight", "spread"]),
    default=None,
    help="Tasks in few and near groups of nodes, in many, or in any; tight unless given.",
)
@stop_policy_options
@click.option(
    "--on-silence",
    type=OneOf(["stop", "keep"]),
    default=None,
    help="What becomes of it when its node is not heard of; beside the only server it is kept, "
    "else stopped, unless given.",
)
@click.option(
    "--env",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="A variable for it; without a value, the one from here. May be given often.",
)
@click.option("--no-env", is_flag=True, help=f"Take none of {', '.join(CAPTURED)} along from here.")
@click.option(
    "--directory", type=click.Path(path_type=Path), help="Where it runs; here unless given."
)
@click.option("--user", default=None, help="The account on the node, of those that are yours.")
@click.option("--name", default=None, help="A label `name`, for people.")
@click.option("--wait", "wait_for_it", is_flag=True, help="Wait for its end, and end as it did.")
@click.option("--follow", is_flag=True, help="Also print what it prints.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole request.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
@click.pass_context
def submit(
    ctx: click.Context,
    /,
    wait_for_it: bool,
    follow: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Let a node run COMMAND; write -- before it. Prints the request's id and returns.

    It runs whether or not anybody is watching: see `cede wait`, `cede logs` and `cede cancel`.
    """
    body = _body(**given)
    client = client_of(ctx)
    made = client.requests.create(body)
    if made["status"] == "rejected":
        from cede.client.errors import ending

        raise ending(made) or AssertionError(made)
    if as_json:
        print_json(made)
    else:
        # People get what they can type; a program gets what stays unique.
        click.echo(short_id(made["id"]) if sys.stdout.isatty() else made["id"])
    if wait_for_it or follow:
        from cede.cli.work_commands import wait_for

        try:
            sys.exit(wait_for(client, [made["id"]], follow=follow))
        except KeyboardInterrupt:
            short = short_id(made["id"])
            click.echo(f"the work goes on; to end it: cede cancel {short}", err=True)
            raise


def _body(
    *,
    command: tuple[str, ...],
    env: tuple[str, ...],
    no_env: bool,
    directory: Path | None,
    user: str | None,
    name: str | None,
    label: tuple[str, ...],
    **given: Any,
) -> dict[str, Any]:
    work = {
        "argv": list(command),
        "env": environment_of(env, os.environ, captured=() if no_env else CAPTURED),
        # As a shell would: beginners and shared file systems expect it.
        "directory": str((directory or Path()).absolute()),
        "user": user,
    }
    counted, given = _placement(**given)
    labels = (*label, *([f"name={name}"] if name else []))
    body = submission_of(label=labels, **given)
    return body | counted | {"work": {key: value for key, value in work.items() if value}}


def environment_of(
    given: Iterable[str], here: Mapping[str, str], captured: Iterable[str] = CAPTURED
) -> dict[str, str]:
    """What goes along from here, and over it what was given: NAME=VALUE, or NAME as it is here."""
    found = {name: here[name] for name in captured if here.get(name)}
    for each in given:
        name, equals, value = each.partition("=")
        if not name:
            raise click.UsageError(f"--env wants NAME=VALUE or NAME, not {each!r:.80}")
        if not equals and name not in here:
            raise click.UsageError(f"--env {name:.80}: it is not set here; write {name:.80}=VALUE")
        found[name] = value if equals else here[name]
    for name, value in found.items():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise click.UsageError(f"--env {name:.80}: its value here is not UTF-8") from None
    return found


def _placement(
    *,
    tasks: int | None,
    nodes: int | None,
    independent: bool,
    node_label: tuple[str, ...],
    **given: Any,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """How many tasks there are, and the other options: `--nodes` is one task on each."""
    if nodes is not None:
        if given["per_node"] not in (None, 1) or tasks not in (None, nodes):
            raise click.UsageError("--nodes means one task on each; leave out --tasks, --per-node")
        tasks, given["per_node"] = nodes, 1
    if given["array"] and (tasks not in (None, 1) or independent):
        raise click.UsageError("--array says which tasks there are; leave out --tasks, --nodes")
    given["node_labels"] = dict(pairs("--node-label", node_label)) or None
    counted = {"tasks": tasks, "gang": False if independent else None}
    return {name: value for name, value in counted.items() if value is not None}, given
