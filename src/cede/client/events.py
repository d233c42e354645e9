"""The journal as an iterator: past pages, then a live stream that reconnects."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from cede.client.errors import ServerUnreachable
from cede.client.http import API, Http, Json

# The server sends a comment at intervals; after this long without a line the connection is dead.
SILENCE = 60.0
RECONNECT_FIRST = 0.5
RECONNECT_MAX = 15.0


def past_events(http: Http, after: int, request: str | None = None) -> Iterator[Json]:
    """Iterate over every event after an index, page by page, until there are no more."""
    while True:
        params = {"after": after, "limit": 500, "request_id": request}
        page = http.call("GET", f"{API}/events", params=params)
        if not page["items"]:
            return
        yield from page["items"]
        after = page["items"][-1]["index"]


def follow_events(http: Http, after: int | None, request: str | None = None) -> Iterator[Json]:
    """Iterate over events for ever; a lost connection continues after the last index that was
    yielded."""
    pause = RECONNECT_FIRST
    while True:
        try:
            params = {"follow": "true"} | ({} if after is None else {"after": str(after)})
            params |= {} if request is None else {"request_id": request}
            with http.stream(f"{API}/events", params, silence=SILENCE) as lines:
                for event in parse_stream(lines):
                    after = event["index"]
                    pause = RECONNECT_FIRST
                    if "kind" in event:
                        yield event
        except ServerUnreachable:
            if after is None:
                raise
        time.sleep(pause)
        pause = min(pause * 2, RECONNECT_MAX)


def parse_stream(lines: Iterator[str]) -> Iterator[Json]:
    """Parse the `data` of each event; the start of a stream becomes an event with only an index."""
    data: list[str] = []
    for line in lines:
        # The first comment says where the stream starts, so that it can be continued from there.
        if line.startswith(": from ") and line[7:].isdecimal():
            yield {"index": int(line[7:])}
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            event: Any = json.loads("\n".join(data))
            data = []
            if isinstance(event, dict) and "index" in event:
                yield event
