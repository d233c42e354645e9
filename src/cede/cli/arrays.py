"""Arrays at the command line: one id for all tasks, `ID_7` for one."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from cede.cli.printing import cell, say
from cede.cli.request_rows import ref_of

if TYPE_CHECKING:
    from cede.cli.waiting_line import WaitingLine
    from cede.client.client import Client
    from cede.client.work import Wanted


def counts(tasks: Iterable[Mapping[str, Any]]) -> str:
    """Count tasks by status, most first: `10 allocated, 3 released`."""
    found = Counter(str(each["status"]) for each in tasks)
    most_first = sorted(found.items(), key=lambda each: (-each[1], each[0]))
    return ", ".join(f"{many} {status}" for status, many in most_first)


def print_why(tasks: list[dict[str, Any]]) -> None:
    """Print tasks with the same reason together: their numbers, why they wait, and the fix."""
    from cede.model.array import shown_numbers

    say(f"array {tasks[0]['part_of']}: {counts(tasks)}")
    stories: dict[tuple[str, str, str], list[int]] = {}
    for each in tasks:
        reason = each.get("reason") or {}
        story = (each["status"], reason.get("text") or "", reason.get("fix") or "")
        stories.setdefault(story, []).append(each["array_task"])
    for (status, text, fix), numbers in stories.items():
        which = "task" if len(numbers) == 1 else "tasks"
        told = f": {cell(text)}" if text else ""
        say(f"{which} {shown_numbers(tuple(sorted(numbers)))}: {status}{told}")
        if fix and fix != "nothing":
            say(f"  fix: {cell(fix)}")


def print_logs(
    client: Client,
    tasks: Iterable[Mapping[str, Any]],
    wanted: Wanted,
    line: WaitingLine,
    *,
    look: Callable[[dict[str, Any]], None] | None = None,
) -> None:
    """Print each task's output, one task after the other, every line behind its number; with
    `look` each task is followed until it has ended.
    """
    from cede.client.errors import CedeClientError
    from cede.client.work import NOT_YET, follow_output, read_output

    for task in tasks:
        number = str(task["array_task"]).encode()
        rest = b""
        try:
            pieces = (
                read_output(client, task["id"], wanted, line.note)
                if look is None
                else follow_output(client, task["id"], wanted, on_look=look, on_note=line.note)
            )
            for data in pieces:
                line.clear()
                *whole, rest = (rest + data).split(b"\n")
                _write(number, whole)
        except CedeClientError as error:
            if error.code not in NOT_YET:
                raise
        _write(number, [rest] if rest else [])
    sys.stdout.buffer.flush()


def _write(number: bytes, lines: Iterable[bytes]) -> None:
    for each in lines:
        sys.stdout.buffer.write(b"%s: %s\n" % (number, each))
    sys.stdout.buffer.flush()


def cancelled_line(client: Client, found: Mapping[str, Any], whole: bool) -> str:
    """Say what became of a request that was cancelled; of an array, of all its tasks."""
    if whole:
        tasks = client.requests.list(part_of=found["part_of"])
        return f"array {found['part_of']}: {counts(tasks)}"
    stopping = found["status"] == "preempting"
    return f"request {ref_of(found)} is {'being stopped' if stopping else found['status']}"
