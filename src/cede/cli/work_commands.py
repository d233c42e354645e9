"""Commands about submitted work: `logs`, `wait`, `cancel`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from cede.cli import exit_codes
from cede.cli.context import RequestId, RequestRef, client_of
from cede.cli.printing import print_error, say
from cede.cli.request_rows import ref_of
from cede.cli.since import Since, SinceType
from cede.cli.waiting_line import WaitingLine

if TYPE_CHECKING:
    from cede.client.client import Client

# Lines to show of failed work: a traceback fits, and so does a screen.
LAST_LINES = 20

# Exit codes by a request's end, where the work has no exit code of its own.
_BY_STATUS = {
    "cancelled": exit_codes.CANCELLED,
    "preempted": exit_codes.PREEMPTED,
    "rejected": exit_codes.REFUSED,
}


@click.command("logs")
@click.argument("request_id", metavar="ID", type=RequestRef())
@click.option("-f", "--follow", is_flag=True, help="Go on until it has ended.")
@click.option("--task", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--stdout", is_flag=True, help="Standard output only.")
@click.option("--stderr", is_flag=True, help="Standard error only.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="The last N lines only.")
@click.option(
    "--since",
    type=SinceType(),
    metavar="WHEN",
    help="Only what was printed since: 10m, 1h30m, 14:30, 2026-11-16T14:30.",
)
@click.option("--attempt", type=click.IntRange(min=1), help="The latest unless given.")
@click.pass_context
def logs(
    ctx: click.Context,
    request_id: str,
    follow: bool,
    task: int,
    stdout: bool,
    stderr: bool,
    tail: int | None,
    since: Since | None,
    attempt: int | None,
) -> None:
    """Print what submitted work printed: both streams, in the order in which they were written.

    Of an array it is what each task printed, one after the other, every line behind its number;
    ID_7 is one task. With -f it goes on until the work has ended or can never start, and says why.
    """
    from cede.cli.arrays import print_logs
    from cede.client.work import BOTH, Wanted, follow_output, read_output, task_group, wait_for_end

    client = client_of(ctx)
    # Resolved once: `last` and a name may mean another request a moment later.
    tasks = task_group(client, request_id)
    request_id = tasks[0]["id"]
    age, at = since or Since()
    stream = BOTH if stdout == stderr else "stdout" if stdout else "stderr"
    wanted = Wanted(task, stream, attempt, tail, at, age)
    with WaitingLine() as line:
        if len(tasks) > 1 and not follow:
            print_logs(client, tasks, wanted, line)
            return
        if not follow:
            for data in read_output(client, request_id, wanted, line.note):
                _write(data)
            return

        def look(request: dict[str, Any]) -> None:
            if request["status"] in ("queued", "suspended"):
                line.waits(request)
            else:
                line.clear()

        if len(tasks) > 1:
            print_logs(client, tasks, wanted, line, look=look)
        else:
            for data in follow_output(client, request_id, wanted, on_look=look, on_note=line.note):
                line.clear()
                _write(data)
        if attempt is None:
            for ended in wait_for_end(client, [each["id"] for each in tasks], look):
                if ended["status"] != "released":
                    line.happened(ended["status"], f"{ref_of(ended)}: {_reason(ended)}")


def _reason(ended: dict[str, Any]) -> str:
    return str((ended.get("reason") or {}).get("text") or ended["status"])


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


@click.command("wait")
@click.argument("request_ids", metavar="ID…", nargs=-1, required=True, type=RequestRef())
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
@click.pass_context
def wait(ctx: click.Context, request_ids: tuple[str, ...], quiet: bool) -> None:
    """Wait until work has ended: of an array all its tasks, or with ID_7 one of them.

    The exit code is the work's own; of several the first that is not 0.
    """
    sys.exit(wait_for(client_of(ctx), request_ids, quiet=quiet))


def wait_for(client: Client, request_ids: Any, *, follow: bool = False, quiet: bool = False) -> int:
    """Wait for the ends of all; return their joint exit code."""
    from cede.cli.arrays import print_logs
    from cede.client.work import (
        Wanted,
        exit_code,
        failed_task,
        follow_output,
        task_group,
        wait_for_end,
    )

    tasks = [each for given in request_ids for each in task_group(client, given)]
    whole = [each["id"] for each in tasks]
    result = exit_codes.OK
    with WaitingLine(quiet=quiet) as line:
        watcher = _Watcher(line, client)
        if follow and len(tasks) > 1:
            print_logs(client, tasks, Wanted(), line, look=watcher.look)
        elif follow:
            pieces = follow_output(client, whole[0], on_look=watcher.look, on_note=line.note)
            for data in pieces:
                line.clear()
                _write(data)
        for ended in wait_for_end(client, whole, watcher.look):
            code = exit_code(ended)
            if code is None:
                code = _BY_STATUS.get(ended["status"], exit_codes.ERROR)
            if code != exit_codes.OK:
                line.happened(ended["status"], f"{ref_of(ended)}: {_reason(ended)}")
                seen = follow and not failed_task(ended)
                if not (seen or quiet):
                    _print_last_lines(client, ended)
            result = result or code
    return result


def _print_last_lines(client: Client, ended: dict[str, Any]) -> None:
    """Print the last lines of failed work on stderr: stdout is for work that is followed."""
    from cede.client.work import failed_task, last_lines

    data = last_lines(client, ended, LAST_LINES) if ended["status"] == "failed" else b""
    if not data:
        return
    task = failed_task(ended)
    whole = f"cede logs {ref_of(ended)}" + (f" --task {task}" if task else "")
    say(f"cede: its last lines (all of them: {whole})", err=True)
    sys.stderr.buffer.write(data if data.endswith(b"\n") else data + b"\n")
    sys.stderr.buffer.flush()


class _Watcher:
    """Prints changes of requests, and why they wait while nothing changes."""

    def __init__(self, line: WaitingLine, client: Client) -> None:
        self._line, self._client = line, client
        self._said: dict[str, tuple[str, int]] = {}

    def look(self, request: dict[str, Any]) -> None:
        if request["status"] in ("queued", "suspended"):
            self._line.waits(self._story(request))
            return
        now = (request["status"], request["attempt"])
        if self._said.get(request["id"]) != now:
            self._said[request["id"]] = now
            members = (request.get("allocation") or {}).get("members") or ()
            nodes = ", ".join(dict.fromkeys(each["node"] for each in members))
            self._line.happened(request["status"], f"attempt {now[1]} on {nodes or 'its node'}")

    def _story(self, request: dict[str, Any]) -> dict[str, Any]:
        """Add the place in the queue and the latest start, where a person watches."""
        from cede.client.errors import CedeClientError

        if not sys.stderr.isatty():
            return request
        try:
            return self._client.requests.why(request["id"], changes=False)
        except CedeClientError:
            return request


@click.command("cancel")
@click.argument("request_ids", metavar="ID…", nargs=-1, required=True, type=RequestId())
@click.pass_context
def cancel(ctx: click.Context, request_ids: tuple[str, ...]) -> None:
    """Cancel requests: of an array all its tasks, with ID_7 one. Running work is stopped first.

    Every ID is tried and has a line of its own. One that has ended otherwise, or is
    not known, is an error; the exit code is that of the first error.
    """
    from cede.cli.arrays import cancelled_line
    from cede.client.errors import CedeClientError
    from cede.client.work import is_whole

    client = client_of(ctx)
    result = exit_codes.OK
    for request_id in request_ids:
        try:
            found = client.requests.cancel(request_id)
        except CedeClientError as error:
            print_error(error)
            result = result or exit_codes.of_error(error)
            continue
        say(cancelled_line(client, found, is_whole(found, request_id)))
    sys.exit(result)
