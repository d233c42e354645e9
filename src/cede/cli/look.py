"""Commands that only read: `why`, `snapshot`, `events`, `whoami`."""

from __future__ import annotations

import json
from typing import Any

import click

from cede.cli.context import RequestId, RequestRef, client_of, output_option
from cede.cli.printing import cell, print_json, print_one, print_yaml, say
from cede.cli.values import OneOf


@click.command("why")
@click.argument("request_id", metavar="ID", type=RequestRef())
@click.option("-o", "--output", type=OneOf(["table", "json", "yaml"]), default="table")
@click.pass_context
def why(ctx: click.Context, request_id: str, output: str) -> None:
    """Why a request waits, what would change it, or how it ended; of an array, which tasks do."""
    from cede.client.work import is_whole

    client = client_of(ctx)
    first = client.requests.get(request_id)
    if output == "table" and is_whole(first, request_id):
        from cede.cli.arrays import print_why

        tasks = client.requests.list(part_of=first["part_of"], explain="true")
        print_why(sorted(tasks, key=lambda each: int(each["index"])))
        return
    answer = client.requests.why(request_id)
    if output == "json":
        print_json(answer)
    elif output == "yaml":
        print_yaml(answer)
    else:
        _print_why(answer)


def _print_why(answer: dict[str, Any]) -> None:
    """Print the reason and the fix first; then for each pool its holders and what would help."""
    if step := _step_of(answer.get("labels") or {}):
        say(step)
    _print_reason(f"{answer.get('status', '')}: ", answer.get("reason"))
    _print_reason("last stopped: ", answer.get("last_stopped"), fix=False)
    if answer.get("taken_for"):
        say(f"taken for: {answer['taken_for']}")
    for one in answer.get("weighed", []):
        say(f"  weighed: {_weighed(one)}")
    if answer.get("nodes"):
        say(f"on: {', '.join(map(cell, answer['nodes']))}")
    if saving := answer.get("saving"):
        silent = "" if saving["answered"] else ", and has not answered yet"
        say(f"asked to save itself: {saving['seconds_left']} s left{silent}")
    if saved := answer.get("checkpoint"):
        _print_checkpoint(saved)
    for each in answer.get("pools", []):
        place = f"number {each['place']} in the queue, " if each.get("place") else ""
        say(f"\npool {each['pool']}: {place}{'in share' if each['in_share'] else 'borrowing'}")
        _print_reason("  ", each.get("reason"), fix=False)
        if each.get("fairness"):
            _print_fair(each["fairness"])
        if each.get("earliest_start") is not None:
            say(f"  starts in {each['earliest_start']} s at the latest, if all keep their word")
        for holder in each.get("holders", []):
            say(f"  held: {_holder(holder)}")
        for one in each.get("candidates", []):
            say(f"  weighed: {_candidate(one)}")
        for change in each.get("changes", []):
            say(f"  {change.get('text') or cell(change)}")  # an older server sends no text


def _candidate(one: dict[str, Any]) -> str:
    """Describe a holder that could have been stopped: its price, the parts of that, and why it
    was not stopped.
    """
    parts = ", ".join(f"{name} {part:.4g}" for name, part in one["parts"].items() if part)
    made = f" ({parts})" if parts else ""
    why = "chosen" if one["chosen"] else one["why_not"].replace("_", " ")
    return f"{one['id']} at {one['price']:.4g}{made}: {why}"


def _weighed(one: dict[str, Any]) -> str:
    """Describe a holder that could have been stopped instead, or was stopped as well."""
    why = "stopped" if one["why_not"] is None else one["why_not"].replace("_", " ")
    return f"{one['request']} at {one['price']:.4g}: {why}"


def _print_checkpoint(saved: dict[str, Any]) -> None:
    """Print the checkpoint of work that goes on, and whether it is asked to save itself."""
    last = f"checkpoint {cell(saved['last'])}" if saved["last"] else "no checkpoint yet"
    say(f"{last}; work of {saved['unsaved_for']} s is not saved")
    if saved["asked"]:
        say(f"asked to save itself and go on: {saved['asked']['seconds_left']} s left")
    else:
        worth = f"to save it costs {saved['cost']} and is worth {saved['value']}"
        say(f"{worth}; looked at again in {saved['next_look_in']} s")


def _print_fair(fair: dict[str, Any]) -> None:
    """Print the stage in which a waiter is served, and the patience that it waits for."""
    stage = fair["stage"].replace("_", " ")
    say(f"  {stage} stage; used {cell(fair['used'])} of a fair share of {cell(fair['due'])}")
    if fair["weight"] != 1:
        due = cell(fair["own_due"]) or "nothing yet"
        say(f"  its weight among its policy's requests is {fair['weight']:g}: due {due}")
    for each in fair["below"]:
        later = each["aggressively_after"]
        then = f"starves after {each['starves_after']} s"
        then += "" if later is None else f", aggressively after {later} s"
        say(f"  {each['kind']} {cell(each['name'])}: below its share for {each['for']} s; {then}")


def _step_of(labels: dict[str, str]) -> str:
    """Name the step behind a request, from its labels."""
    named = [name for name in ("pipeline", "run", "step") if labels.get(name)]
    return ", ".join(f"{name} {cell(labels[name])}" for name in named)


def _print_reason(before: str, reason: dict[str, Any] | None, *, fix: bool = True) -> None:
    if not reason:
        if before.strip() not in ("", "last stopped:"):
            say(before.rstrip(": "))
        return
    say(f"{before}{cell(reason.get('text'))}")
    if fix and reason.get("fix") not in (None, "", "nothing"):
        say(f"fix: {cell(reason['fix'])}")


def _holder(holder: dict[str, Any]) -> str:
    marks = [
        _place(holder),
        "" if holder.get("preemptible", True) else "non-preemptible",
        "promised" if holder.get("promised") else "",
        "leaving" if holder.get("leaving") else "",
        "" if holder.get("ends_in") is None else f"ends in {holder['ends_in']} s",
        f"on {', '.join(map(cell, holder['nodes']))}" if holder.get("nodes") else "",
    ]
    owner = f"{holder.get('policy') or ''} {holder.get('request') or ''}".strip()
    return f"{cell(holder.get('amounts'))} by {owner} ({', '.join(filter(None, marks))})"


def _place(holder: dict[str, Any]) -> str:
    """Say whether a holder is in its share, or its group and by what usage."""
    if holder.get("group") is None:
        return "in share" if holder.get("in_share") else "borrowed"
    usage = [
        f"{before} before it and {holder['through'][key]} with it of {holder['share'][key]} {key}"
        for key, before in holder["before"].items()
    ]
    return "; ".join([holder["group"].replace("_", " "), *usage])


@click.command("snapshot")
@click.option("-o", "--output", type=OneOf(["json", "yaml"]), default="json")
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
@click.option(
    "--request", "request_id", metavar="ID", type=RequestId(), help="Only of this request."
)
@click.option("-f", "--follow", is_flag=True, help="Go on for ever.")
@click.option("--after", type=click.IntRange(min=0), default=None, help="Only after this index.")
@click.option("-o", "--output", type=OneOf(["table", "json"]), default="table")
@click.pass_context
def events(
    ctx: click.Context, follow: bool, after: int | None, request_id: str | None, output: str
) -> None:
    """Print what happened, in order: one line per event."""
    for event in client_of(ctx).events(after=after, follow=follow, request=request_id):
        if output == "json":
            click.echo(json.dumps(event, ensure_ascii=False))
        else:
            about = event.get("request_id") or event.get("pool_id") or ""
            time = cell(event.get("time"))  # an older server sends none
            line = f"{event['index']:>8}  {time:<19}  {event['kind']:<12}  {about}"
            say(f"{line}  {cell(event.get('data'))}".rstrip())
