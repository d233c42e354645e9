"""`cede submit … -- COMMAND`: a node runs the command when its units are granted."""

from __future__ import annotations

import sys
from typing import Any

import click

from cede.cli.context import client_of
from cede.cli.demand import demand_options, stop_policy_options
from cede.cli.submission import CAPTURED, body_of
from cede.cli.submission import submit as submit_body
from cede.cli.values import OneOf, Written
from cede.model.array import parse_array
from cede.model.ids import short_id


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
@click.option("--directory", type=click.Path(), help="Where it runs; here unless given.")
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

    The work does not need this terminal: see `cede wait`, `cede logs` and `cede cancel`.
    """
    body = body_of(**given)
    client = client_of(ctx)
    made = submit_body(client, body, as_json=as_json)
    if wait_for_it or follow:
        from cede.cli.work_commands import wait_for

        try:
            sys.exit(wait_for(client, [made], follow=follow))
        except KeyboardInterrupt:
            click.echo(f"the work goes on; to end it: cede cancel {short_id(made)}", err=True)
            raise
