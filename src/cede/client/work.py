"""Work that nodes run: waiting for its end, and reading what it printed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from cede.client.client import Client
from cede.client.errors import CedeClientError, Conflict, ServerUnreachable
from cede.client.http import Json
from cede.client.waiting import WAITING

ENDED = ("released", "failed", "cancelled", "rejected", "preempted")
# The gaps between looks grow: what ends soon is seen soon, and a night of waiting is cheap.
GAP_FIRST = 0.1
GAP_MAX = 3.0
# What the server answers while there is no output to read: not granted, or its node is away.
NOT_YET = ("no_logs", "logs_gone", "node_silent")


def family(client: Client, request_id: str) -> list[Json]:
    """A request, or all independent tasks that were submitted with it."""
    first = client.requests.get(request_id)
    if not first.get("part_of"):
        return [first]
    return sorted(client.requests.list(part_of=first["part_of"]), key=lambda each: each["index"])


def wait_for_end(
    client: Client, request_ids: Sequence[str], on_look: Callable[[Json], None]
) -> Iterator[Json]:
    """Each request as it ended, in the order given; `on_look` sees them meanwhile."""
    for request_id in request_ids:
        gap, last = GAP_FIRST, ""
        while True:
            try:
                found = client.requests.get(request_id)
            except ServerUnreachable:
                time.sleep(GAP_MAX)  # a server that restarts still knows it
                continue
            if found["status"] in ENDED:
                yield found
                break
            on_look(found)
            gap = min(gap * 1.5, GAP_MAX) if found["status"] == last else GAP_FIRST
            last = found["status"]
            time.sleep(gap)


def follow_output(
    client: Client,
    request_id: str,
    *,
    task: int = 0,
    stream: str = "stdout",
    on_look: Callable[[Json], None] = lambda request: None,
) -> Iterator[bytes]:
    """What it prints until it has ended, across attempts, lost connections and restarts.

    `on_look` sees the request before each attempt, and meanwhile.
    """
    attempt, offset = 0, 0
    while True:
        before = client.requests.get(request_id)
        if before["status"] not in ENDED:
            on_look(before)
        if before["status"] in WAITING:
            time.sleep(GAP_FIRST * 5)
            continue
        if before["attempt"] != attempt:
            attempt, offset = before["attempt"], 0
        where: Json = {"task": task, "stream": stream, "attempt": attempt}
        try:
            for start, data in client.requests.logs(
                request_id, offset=offset, follow=True, **where
            ):
                offset = start + len(data)
                yield data
        except (Conflict, ServerUnreachable) as error:
            if not _may_come(error):
                raise
        if client.requests.get(request_id)["status"] in ENDED:
            # What was printed between the last piece and the end.
            yield from _rest(client, request_id, offset, where)
            return
        time.sleep(GAP_FIRST * 2)


def _rest(client: Client, request_id: str, offset: int, where: Json) -> Iterator[bytes]:
    try:
        for _, data in client.requests.logs(request_id, offset=offset, **where):
            yield data
    except CedeClientError as error:
        if not _may_come(error):
            raise


def _may_come(error: CedeClientError) -> bool:
    return isinstance(error, ServerUnreachable) or error.code in NOT_YET


def exit_code(request: Json) -> int | None:
    """The work's own exit code; None when it did not end by itself."""
    if request["status"] == "released":
        return 0
    members = (request.get("allocation") or {}).get("members") or ()
    codes = [each["exit_code"] for each in members if each.get("exit_code")]
    said = (request.get("reason") or {}).get("exit_code")
    if request["status"] != "failed":
        return None
    return int(codes[0]) if codes else said if isinstance(said, int) else None
