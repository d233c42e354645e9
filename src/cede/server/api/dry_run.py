"""`?dry_run=true` of an edit: lists the requests that it would stop, pause or let start. Nothing is
changed.

The edit is tried on the committed state, off the writer where the state is large.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

import orjson
from fastapi import Query
from starlette.responses import Response

from cede.engine.state.state import State
from cede.server.api.context import Call
from cede.sim.preview import preview

DryRun = Annotated[
    bool, Query(description="Only list what it would stop, pause or start; nothing is changed.")
]


async def tried(call: Call, edit: Callable[[State, int], object]) -> Response:
    """Return the answer to a dry run of `edit`."""

    def read(state: State, now: int) -> bytes:
        text: bytes = orjson.dumps(preview(state, now, partial(edit, state, now)))
        return text

    asked = (call.request.url.path, call.request.url.query, await call.request.body())
    found = await call.costly("dry_run", asked, read)
    return Response(found, media_type="application/json")
