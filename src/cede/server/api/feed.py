"""The journal for streams: the next piece is read and encoded once for all streams with the same
filter.

Streams with the same filter and index are at the same place after every piece, because each piece
reaches up to what was committed when it was read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import orjson

from cede.model.bounds import PAGE_MAX
from cede.server.api.json_type import Json

# Streams read the same piece within moments of each other; a piece is at most some 100 KiB.
PIECES_MAX = 32

Read = Callable[[], Awaitable[list[Json]]]


class Piece(NamedTuple):
    text: bytes  # the events, as a stream sends them
    events: int  # their number
    last: int  # no event up to this index is left out


class Feed:
    """`after` returns the piece after an index."""

    def __init__(self) -> None:
        self._pieces: dict[tuple[Any, ...], asyncio.Task[Piece]] = {}

    async def after(self, scope: tuple[Any, ...], index: int, head: int, read: Read) -> Piece:
        """Return the events that `read` finds after `index`, a page of them at most; `head` was
        known before. Callers that may see the same with the same filter are one scope.
        """
        key = (*scope, index)
        task = self._pieces.get(key)
        if task is None:
            task = self._pieces[key] = asyncio.create_task(_piece(head, read))
            # A stream that ended meanwhile takes no error.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            if len(self._pieces) > PIECES_MAX:
                del self._pieces[next(iter(self._pieces))]
        try:
            return await asyncio.shield(task)
        except Exception:
            self._pieces.pop(key, None)  # the next caller tries again
            raise


async def _piece(head: int, read: Read) -> Piece:
    found = await read()
    text = b"".join(
        b"id: %d\nevent: %s\ndata: %s\n\n"
        % (each["index"], each["kind"].encode(), orjson.dumps(each))
        for each in found
    )
    last = found[-1]["index"] if found else 0
    return Piece(text, len(found), last if len(found) >= PAGE_MAX else max(last, head))
