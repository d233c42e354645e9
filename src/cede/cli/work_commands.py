"""Commands about submitted work: `logs`, `wait`, `cancel`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from cede.cli import exit_codes
from cede.cli.context import RequestId, client_of
from cede.cli.printing import print_error
from cede.cli.waiting_line import WaitingLine

if TYPE_CHECKING:
    from cede.client.client import Client

# What a request's end means for whoever waited for it, where the work has no exit code to pass on.
_BY_STATUS = {
    "cancelled": exit_codes.CANCELLED,
    "preempted": exit_codes.PREEMPTED,
    "rejected": exit_codes.REFUSED,
}


@click.command("logs")
@click.argument("request_id", metavar="ID", type=RequestId())
@click.option("-f", "--follow", is_flag=True, help="Go on until it has ended.")
@click.option("--task", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--stderr", is_flag=True, help="What it wrote to standard error instead.")
@click.option("--attempt", type=click.IntRange(min=1), help="The latest unless given.")
@click.pass_context
def logs(
    ctx: click.Context, request_id: str, follow: bool, task: int, stderr: bool, attempt: int | None
) -> None:
    """Print what submitted work printed."""
    from cede.client.work import follow_output

    client = client_of(ctx)
    stream = "stderr" if stderr else "stdout"
    if follow and attempt is None:
        for data in follow_output(client, request_id, task=task, stream=stream):
            _write(data)
        return
    pieces = client.requests.logs(
        request_id, task=task, stream=stream, attempt=attempt, follow=follow
    )
    for _, data in pieces:
        _write(data)


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


@click.command("wait")
@click.argument("request_ids", metavar="ID…", nargs=-1, required=True, type=RequestId())
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
@click.pass_context
def wait(ctx: click.Context, request_ids: tuple[str, ...], quiet: bool) -> None:
    """Wait until work has ended, with all its independent tasks.

    The exit code is the work's own; of several the first that is not 0.
    """
    sys.exit(wait_for(client_of(ctx), request_ids, quiet=quiet))


def wait_for(client: Client, request_ids: Any, *, follow: bool = False, quiet: bool = False) -> int:
    """The exit code of all of it together."""
    from cede.client.work import exit_code, family, follow_output, wait_for_end

    whole = [each["id"] for given in request_ids for each in family(client, given)]
    result = exit_codes.OK
    with WaitingLine(quiet=quiet) as line:
        watcher = _Watcher(line)
        if follow:
            for data in follow_output(client, whole[0], on_look=watcher.look):
                line.clear()
                _write(data)
        for ended in wait_for_end(client, whole, watcher.look):
            code = exit_code(ended)
            if code is None:
                code = _BY_STATUS.get(ended["status"], exit_codes.ERROR)
            if code != exit_codes.OK:
                text = (ended.get("reason") or {}).get("text") or ended["status"]
                line.happened(ended["status"], f"{ended['id']}: {text}")
            result = result or code
    return result


class _Watcher:
    """Says what changes, and while nothing does, why it waits."""

    def __init__(self, line: WaitingLine) -> None:
        self._line = line
        self._said: dict[str, tuple[str, int]] = {}

    def look(self, request: dict[str, Any]) -> None:
        if request["status"] in ("queued", "suspended"):
            self._line.waits(request)
            return
        now = (request["status"], request["attempt"])
        if self._said.get(request["id"]) != now:
            self._said[request["id"]] = now
            members = (request.get("allocation") or {}).get("members") or ()
            nodes = ", ".join(dict.fromkeys(each["node"] for each in members))
            self._line.happened(request["status"], f"attempt {now[1]} on {nodes or 'its node'}")


@click.command("cancel")
@click.argument("request_ids", metavar="ID…", nargs=-1, required=True, type=RequestId())
@click.pass_context
def cancel(ctx: click.Context, request_ids: tuple[str, ...]) -> None:
    """Cancel requests, each with all its independent tasks. What runs is asked to stop first.

    Every ID is tried and has a line of its own. One that has ended otherwise, or that nobody
    knows, is an error; the exit code is that of the first error.
    """
    from cede.client.errors import CedeClientError

    client = client_of(ctx)
    result = exit_codes.OK
    for request_id in request_ids:
        try:
            found = client.requests.cancel(request_id)
        except CedeClientError as error:
            print_error(error)
            result = result or exit_codes.of_error(error)
            continue
        stopping = found["status"] == "preempting"
        click.echo(f"request {found['id']} is {'being stopped' if stopping else found['status']}")
    sys.exit(result)
