"""Work that nodes run: waits for its end, and reads its output."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from cede.client import clock
from cede.client.client import Client
from cede.client.errors import CedeClientError, Conflict, Invalid, ServerUnreachable
from cede.client.http import Json
from cede.client.waiting import WAITING

ENDED = ("released", "failed", "cancelled", "rejected", "preempted")
# Where the server holds no answer back, the gaps between calls grow: a short request's end is seen
# soon, and a night of waiting is cheap.
GAP_FIRST = 0.1
GAP_MAX = 3.0
# How long the server may hold back an answer; `on_look` is told the reason as often.
HELD = 20.0
# Codes of answers while there is no output to read: not granted, or its node is away.
NOT_YET = ("no_logs", "logs_gone", "node_silent")
BOTH = "both"
NO_ORDER = "no_order"
UNORDERED = (
    "an older version runs this attempt, which keeps no order of its output: stdout comes first, "
    "then stderr, from the beginning"
)
# After so long without output, a connection counts as lost and is made again.
SILENCE = 60.0


def _ignore(_: Any) -> None:
    """Ignore a call: the callback where none is given."""


def task_group(client: Client, request_id: str) -> list[Json]:
    """Return a request, or all tasks of its array; `ID_7`, or a task's own id, is one task."""
    first = client.requests.get(request_id)
    if not is_whole(first, request_id):
        return [first]
    return sorted(client.requests.list(part_of=first["part_of"]), key=lambda each: each["index"])


def is_whole(found: Json, ref: str) -> bool:
    """Whether `ref` means all tasks of the array of which `found` is the first."""
    if not found.get("part_of") or found["part_of"] != found["id"]:
        return False
    number = found.get("array_task")
    return number is None or not ref.endswith(f"_{number}")


def wait_for_end(
    client: Client, request_ids: Sequence[str], on_look: Callable[[Json], None]
) -> Iterator[Json]:
    """Yield each request once it has ended, in the order given; `on_look` is called meanwhile."""
    for request_id in request_ids:
        gap, known = GAP_FIRST, ""
        while True:
            asked_at = clock.now()
            try:
                found = _changed(client, request_id, known)
            except ServerUnreachable:
                time.sleep(GAP_MAX)  # a server that restarts still knows it
                continue
            if found["status"] in ENDED:
                yield found
                break
            on_look(found)
            if found["status"] != known:
                gap, known = GAP_FIRST, found["status"]
            elif clock.now() - asked_at < gap:
                time.sleep(gap)  # the server held nothing back
                gap = min(gap * 1.5, GAP_MAX)


def _changed(client: Client, request_id: str, known: str) -> Json:
    """Return a request once its status is no longer `known`, or after a while."""
    if known:
        with suppress(Invalid):  # an older server, which cannot hold the answer back
            return client.requests.get(request_id, wait=HELD, known=known)
    return client.requests.get(request_id)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Selects output: of a task, a stream or both in order, of an attempt, or of the latest (None).

    `tail`: the last lines only; `since` a Unix time, or so many seconds of `age`.
    """

    task: int = 0
    stream: str = BOTH
    attempt: int | None = None
    tail: int | None = None
    since: float | None = None
    age: float | None = None

    @property
    def beginning(self) -> Json:
        return {"tail": self.tail, "since": self.since, "age": self.age}

    @property
    def one_by_one(self) -> tuple[str, ...]:
        return ("stdout", "stderr") if self.stream == BOTH else (self.stream,)


def read_output(
    client: Client, request_id: str, wanted: Wanted, on_note: Callable[[str], None] = _ignore
) -> Iterator[bytes]:
    """Iterate over the output so far; `on_note` is told of what could not be done as wanted."""
    where: Json = {"task": wanted.task, "attempt": wanted.attempt}
    try:
        pieces = client.requests.logs(request_id, stream=wanted.stream, **where, **wanted.beginning)
        for _, data in pieces:
            yield data
    except Conflict as error:
        if error.code != NO_ORDER:
            raise
        on_note(UNORDERED)
        for stream in wanted.one_by_one:
            for _, data in client.requests.logs(request_id, stream=stream, **where):
                yield data


def follow_output(
    client: Client,
    request_id: str,
    wanted: Wanted = Wanted(),  # noqa: B008
    *,
    on_look: Callable[[Json], None] = _ignore,
    on_note: Callable[[str], None] = _ignore,
) -> Iterator[bytes]:
    """Iterate over the output until the request has ended, across attempts, lost connections and
    restarts.

    `on_look` gets the request before each attempt, and meanwhile; `on_note` is told of what could
    not be done as wanted, and that the server is away.
    """
    before = client.requests.get(request_id)  # a server that was never there is an error
    reading = _Reading(client, request_id, wanted, on_note)
    while True:
        if before["status"] not in ENDED:
            on_look(before)
        if before["status"] in WAITING:
            time.sleep(GAP_FIRST * 5)
            before = reading.look()
            continue
        reading.take_up(before["attempt"])
        yield from reading.follow()
        before = reading.look()
        if before["status"] in ENDED or wanted.attempt not in (None, before["attempt"]):
            # Output between the last piece and the end.
            yield from reading.rest()
            return
        time.sleep(GAP_FIRST * 2)


class _Reading:
    """The position in the output of one attempt."""

    def __init__(
        self, client: Client, request_id: str, wanted: Wanted, on_note: Callable[[str], None]
    ) -> None:
        self._client, self._request_id, self._on_note = client, request_id, on_note
        self._wanted = wanted
        self._begin = wanted.beginning
        self._attempt = 0
        self._offset = 0
        self._streams = [wanted.stream]

    def look(self) -> Json:
        """Return the request, however long its server is away."""
        said = False
        while True:
            try:
                return self._client.requests.get(self._request_id)
            except ServerUnreachable as error:
                if not said:
                    self._on_note(f"{error}; still trying")
                said = True
                time.sleep(GAP_FIRST * 5)

    def take_up(self, latest: int) -> None:
        attempt = self._wanted.attempt or latest
        if attempt != self._attempt:
            if self._attempt:
                self._begin = {}  # of a later attempt everything is new
            self._attempt, self._offset, self._streams = attempt, 0, [self._wanted.stream]

    def follow(self) -> Iterator[bytes]:
        """Read until the attempt or the connection has ended."""
        try:
            yield from self._read(follow=True, silence=SILENCE)
        except (Conflict, ServerUnreachable) as error:
            if error.code == NO_ORDER:
                self._take_one_by_one()
            elif not _may_come(error):
                raise

    def rest(self) -> Iterator[bytes]:
        while self._streams:
            try:
                yield from self._read()
            except CedeClientError as error:
                if error.code == NO_ORDER:
                    self._take_one_by_one()
                    continue
                if not _may_come(error):
                    raise
            self._streams.pop(0)
            self._offset = 0

    def _take_one_by_one(self) -> None:
        self._on_note(UNORDERED)
        self._streams, self._begin = list(self._wanted.one_by_one), {}

    def _read(self, **how: Any) -> Iterator[bytes]:
        for start, data in self._client.requests.logs(
            self._request_id,
            task=self._wanted.task,
            stream=self._streams[0],
            attempt=self._attempt,
            offset=self._offset,
            **self._begin,
            **how,
        ):
            self._offset, self._begin = start + len(data), {}
            yield data


def last_lines(client: Client, request: Json, lines: int) -> bytes:
    """Return the last lines of the task that failed; none where they cannot be read."""
    wanted = Wanted(failed_task(request), attempt=request["attempt"], tail=lines)
    try:
        data = b"".join(read_output(client, request["id"], wanted))
    except CedeClientError:
        return b""
    return b"".join(data.splitlines(keepends=True)[-lines:])


def failed_task(request: Json) -> int:
    """Return the number of the first task that did not end well; 0 where none is known."""
    members = (request.get("allocation") or {}).get("members") or ()
    return next((number for number, each in enumerate(members) if each.get("exit_code")), 0)


def _may_come(error: CedeClientError) -> bool:
    return isinstance(error, ServerUnreachable) or error.code in NOT_YET


def exit_code(request: Json) -> int | None:
    """Return the work's own exit code; None when it did not end by itself."""
    if request["status"] == "released":
        return 0
    members = (request.get("allocation") or {}).get("members") or ()
    codes = [each["exit_code"] for each in members if each.get("exit_code")]
    said = (request.get("reason") or {}).get("exit_code")
    if request["status"] != "failed":
        return None
    return int(codes[0]) if codes else said if isinstance(said, int) else None
