"""Submitting one request or many: one command, one transaction, one answer for each.

An item of a bulk call that is refused is undone by itself; its neighbours stand.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, NamedTuple, TypeGuard

from cede.engine.ledger.admit import candidates
from cede.engine.ledger.tenants import has_nodes
from cede.engine.lifecycle import commands
from cede.engine.lifecycle.commands import Submission, Untracked
from cede.model.array import Array
from cede.model.copying import replace
from cede.model.errors import CedeError, Invalid
from cede.server.api import redact
from cede.server.api.auth import Caller
from cede.server.api.bodies import RequestIn
from cede.server.api.context import Call
from cede.server.api.dependencies import Ended, Followed, following, look_up
from cede.server.api.errors import problem_of, unavailable
from cede.server.api.json_type import Json
from cede.server.api.problem import Problem
from cede.server.api.resolve import pool_in
from cede.server.api.submission import array_in, parse_item, submission_of
from cede.server.api.views import live_request_out, untracked_out
from cede.server.ids import new_id
from cede.server.tx import Tx, Undecided
from cede.store import Idempotency


class Read(NamedTuple):
    """One item as it was read: a submission for each of its parts, the pool it names, and its
    dependencies.
    """

    parts: list[Submission]
    pool: str | None
    follows: list[Followed]


# Or why it is refused.
Item = Read | Problem
# What became of it: the ids to show after the pass, or the answer itself.
Outcome = list[str] | Json

# Items that are read in one go: about a millisecond.
_SLICE = 5
# How often what is followed is looked up again because it ended meanwhile.
LOOKS_MAX = 10


async def submit_all(call: Call, bodies: list[Any], *, alone: bool = False) -> list[Json]:
    """The answer of each: `{status, request}` or `{status, error}`.

    A request that is sent `alone` is refused by raising, so that nothing is remembered of it.
    """
    items: list[Item] = []
    for body in bodies:
        items.append(_read(call, body, alone))
        if len(items) % _SLICE == 0:
            await asyncio.sleep(0)  # a renewal may have come meanwhile
    idempotency = await call.idempotency()
    for _ in range(LOOKS_MAX):
        items = [await _looked_up(call, each) if _follows(each) else each for each in items]
        if alone and isinstance(items[0], Problem):
            raise items[0]
        with suppress(Ended):  # since it was looked up
            return await _submit_all(call, items, alone, idempotency)
    raise unavailable("busy", "what this follows ends faster than it can be looked up", 1)


def _follows(item: Item) -> TypeGuard[Read]:
    return isinstance(item, Read) and bool(item.parts[0].after or item.parts[0].after_any)


async def _looked_up(call: Call, item: Read) -> Item:
    """With what has become of the requests that it follows."""
    try:
        return item._replace(follows=await look_up(call, item.parts[0]))
    except (CedeError, Problem) as error:
        return problem_of(error)


async def _submit_all(
    call: Call, items: list[Item], alone: bool, idempotency: Idempotency | None
) -> list[Json]:
    def command(tx: Tx) -> list[Outcome]:
        _ask(tx, items)
        return [_submit(tx, item, call.caller, alone) for item in items]

    def shown(outcomes: list[Outcome], tx: Tx) -> list[Json]:
        return [_show(outcome, tx) for outcome in outcomes]

    answers: list[Json] = await call.context.execute(
        command,
        idempotency=idempotency,
        answer=shown,
        # Twice: one full bulk call, and no other, fills a transaction.
        weight=2 * len(items),
    )
    if call.caller.bound is not None:
        for each in answers:
            if "request" in each:
                redact.request(each["request"])
    return answers


def _read(call: Call, body: Any, alone: bool) -> Item:
    parsed = body if isinstance(body, RequestIn) else parse_item(body)
    if isinstance(parsed, Problem):
        return parsed
    try:
        first = submission_of(parsed, call.caller, call.context.config.unpooled)
        array = array_in(parsed)
        if array is not None and not alone:
            raise Invalid("array", "independent tasks are submitted by themselves, not in bulk")
        return Read(_parts(first, array), parsed.pool, [])
    except (CedeError, Problem) as error:
        return problem_of(error)


def _parts(first: Submission, array: Array | None) -> list[Submission]:
    """The tasks of an array, all part of the first, which so knows that there are others."""
    if array is None:
        return [first]
    first = replace(first, part_of=first.id, array=array.text, array_task=array.numbers[0])
    others = (replace(first, id=new_id(), array_task=each) for each in array.numbers[1:])
    return [first, *others]


def _ask(tx: Tx, items: list[Item]) -> None:
    """Where a tenant's quota has room for this only if those before it in the transaction do not
    start, it is their pass that decides: so it makes no difference whether two calls meet in one.
    """
    nodes: dict[str, int] = {}
    for each in (part for item in items if not isinstance(item, Problem) for part in item.parts):
        if name := each.terms.tenant:
            nodes[name] = nodes.get(name, 0) + (1 if each.shape is None else each.shape.tasks)
    for name, more in nodes.items():
        before = tx.asked.get(name, 0)
        if before and not has_nodes(tx.state, name, before + more):
            raise Undecided
        tx.asked[name] = before + more


def _submit(tx: Tx, item: Item, caller: Caller, alone: bool) -> Outcome:
    if isinstance(item, Problem):
        return _refused(item)
    mark = tx.state.mark()
    try:
        pool_id = None if item.pool is None else pool_in(tx.state, item.pool).id
        if candidates(tx.state, item.parts[0].subject, None):
            caller.check_bound(item.parts[0].subject)
        common = {"pool_id": pool_id, "created": tx.wall, **following(tx.state, item.follows)}
        parts = [replace(each, **common) for each in item.parts]
        made = [commands.submit(tx.state, each, tx.now) for each in parts]
    except Ended:
        raise  # for all of them: nothing of this transaction was answered yet
    except CedeError as error:
        if alone:
            raise
        tx.state.undo(mark)
        return _refused(problem_of(error))
    if isinstance(made[0], Untracked):
        # Nothing is kept of it, so its place in the journal is given back: nothing else would be
        # written there, and the next commit would not find the index that it expects.
        tx.state.undo(mark)
        return {"status": 200, "request": untracked_out(parts[0], made[0].reason)}
    return [each.id for each in parts]


def _show(outcome: Outcome, tx: Tx) -> Json:
    if isinstance(outcome, dict):
        return outcome
    shown = live_request_out(tx.state, outcome[0])
    if shown["part_of"] is not None:
        shown["parts"] = outcome
    return {"status": 201, "request": shown}


def _refused(problem: Problem) -> Json:
    return {"status": problem.status, "error": problem.to_dict()}
