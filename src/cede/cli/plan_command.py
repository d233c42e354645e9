"""`cede plan FILE`: what the engine would do from a snapshot, without a server.

The simulator runs in this process, on the same engine that the server has.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from cede.cli import exit_codes
from cede.cli.printing import cell, print_json
from cede.cli.tables import print_table
from cede.cli.values import Duration
from cede.cli.written_file import WrittenFile
from cede.model.reason import Reason


@click.command("plan")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--until-rest", is_flag=True, help="Go on until nothing changes any more.")
@click.option(
    "--horizon",
    type=Duration(),
    help="Go on, and let so much time pass at most.",
)
def plan(file: str, as_json: bool, until_rest: bool, horizon: float | None) -> None:
    """Decide from the snapshot in FILE (YAML or JSON, - for stdin) and print what would be done.

    Exit codes: 0, 1 when the file is bad, 5 when it would never come to rest.
    """
    from cede.model.errors import CedeError
    from cede.sim.plan import run

    source = WrittenFile.read(file)
    try:
        answer = run(source.data, until_rest, horizon)
    except CedeError as error:
        source.refuse(error)
    if as_json:
        print_json(answer)
    else:
        _print_passes(answer)
    sys.exit(exit_codes.CONFLICT if answer.get("loop") else exit_codes.OK)


def _print_passes(answer: dict[str, Any]) -> None:
    rows = [
        {"now": each["now"], "do": decision["do"], "what": _what(decision)}
        for each in answer["passes"]
        for decision in each["decisions"]
    ]
    if rows:
        print_table(rows, ("now", "do", "what"))
    else:
        click.echo("nothing would be done", err=True)
    if answer.get("loop"):
        click.echo("it never comes to rest: the same decisions come round again", err=True)
    elif answer.get("at_rest"):
        click.echo("then it is at rest")
    elif answer.get("next_timer") is not None:
        click.echo(f"the next pass is due by itself at {answer['next_timer']}")


def _what(decision: dict[str, Any]) -> str:
    """Show every field of a decision, its reason as a sentence; prices are only in the JSON."""
    hidden = ("do", "reason", "candidates")
    facts = {key: value for key, value in decision.items() if key not in hidden and value}
    if "cost" in facts:
        facts["cost"] = f"{facts['cost']:.4g}"
    text = ", ".join(f"{key} {cell(value)}" for key, value in facts.items())
    reason = decision.get("reason")
    return f"{text}: {Reason.from_dict(reason).text}" if reason else text
