"""The dependencies of a submission: looked up in the database, and checked again in the
transaction.

A dependency that has ended is only in the database, one that is alive in the writer's state. It may
end between the two reads: then the caller looks it up again, and finds how it ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from cede.engine.lifecycle.commands import Submission
from cede.engine.lifecycle.endings import follows_failed
from cede.engine.state.state import State
from cede.model.errors import CedeError
from cede.model.lifecycle import RequestStatus
from cede.model.reason import Reason
from cede.model.request import Request
from cede.server.api.context import Call
from cede.server.api.finding import find

WELL, ANY = "after", "after_any"


class Ended(CedeError):
    """A dependency was alive when it was looked up, and has left the state since."""


class Followed(NamedTuple):
    """One dependency: its reference, its field, and the tasks that were found."""

    ref: str
    field: str
    tasks: tuple[Request, ...]


async def look_up(call: Call, submission: Submission) -> list[Followed]:
    """Return every dependency as it is in the database; one that the caller may not see is not
    found."""
    found = []
    for field in (WELL, ANY):
        for ref in getattr(submission, field):
            found.append(await _look_up(call, ref, field))
    return found


async def _look_up(call: Call, ref: str, field: str) -> Followed:
    one = await find(call, ref)
    request = one.view.request
    if not one.whole:
        return Followed(one.ref, field, (request,))
    context = call.context
    tasks = await context.read(context.store.tasks_of, request.id)
    return Followed(one.ref, field, tuple(tasks))


def following(state: State, follows: Iterable[Followed]) -> dict[str, Any]:
    """Return the fields of a submission with these dependencies; raise `Ended` if one must be
    looked up again."""
    refs: dict[str, dict[str, None]] = {WELL: {}, ANY: {}}
    hopeless: Reason | None = None
    for each in follows:
        refs[each.field][each.ref] = None
        for task in each.tasks:
            now = task if task.ended else state.requests.get(task.id)
            if now is None:
                raise Ended(task.id)
            failed = now.ended and now.status is not RequestStatus.RELEASED
            if failed and each.field == WELL and hopeless is None:
                hopeless = follows_failed(now)
    return {WELL: tuple(refs[WELL]), ANY: tuple(refs[ANY]), "hopeless": hopeless}
