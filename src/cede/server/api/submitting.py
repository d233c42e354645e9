"""Submitting one request or many: one command, one transaction, one answer for each.

An item of a bulk call that is refused is undone by itself; its neighbours stand.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from cede.engine.ledger.admit import candidates
from cede.engine.ledger.tenants import has_nodes
from cede.engine.lifecycle import commands
from cede.engine.lifecycle.commands import Submission, Untracked
from cede.model.errors import CedeError, Invalid
from cede.server.api import redact
from cede.server.api.auth import Caller
from cede.server.api.bodies import RequestIn
from cede.server.api.context import Call
from cede.server.api.errors import Problem, problem_of
from cede.server.api.json_type import Json
from cede.server.api.resolve import pool_in
from cede.server.api.submission import parse_item, parts_of, submission_of
from cede.server.api.views import live_request_out, untracked_out
from cede.server.ids import new_id
from cede.server.tx import Tx, Undecided

# What has been read of one item: a submission for each of its parts and the pool it names, or why
# it is refused.
Item = tuple[list[Submission], str | None] | Problem
# What became of it: the ids to show after the pass, or the answer itself.
Outcome = list[str] | Json

# Items that are read in one go: about a millisecond.
_SLICE = 5


async def submit_all(call: Call, bodies: list[Any], *, alone: bool = False) -> list[Json]:
    """The answer of each: `{status, request}` or `{status, error}`.

    A request that is sent `alone` is refused by raising, so that nothing is remembered of it.
    """
    items: list[Item] = []
    for body in bodies:
        items.append(_read(call, body, alone))
        if len(items) % _SLICE == 0:
            await asyncio.sleep(0)  # a renewal may have come meanwhile
    if alone and isinstance(items[0], Problem):
        raise items[0]

    def command(tx: Tx) -> list[Outcome]:
        _ask(tx, items)
        return [_submit(tx, item, call.caller, alone) for item in items]

    def shown(outcomes: list[Outcome], tx: Tx) -> list[Json]:
        return [_show(outcome, tx) for outcome in outcomes]

    answers: list[Json] = await call.context.execute(
        command,
        idempotency=await call.idempotency(),
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
        parts = parts_of(parsed)
        if parts > 1 and not alone:
            raise Invalid("gang", "independent tasks are submitted by themselves, not in bulk")
        return _parts(first, parts), parsed.pool
    except (CedeError, Problem) as error:
        return problem_of(error)


def _parts(first: Submission, parts: int) -> list[Submission]:
    """Independent tasks, all of them part of the first, which so knows that there are others."""
    if parts == 1:
        return [first]
    first = replace(first, part_of=first.id)
    return [first, *(replace(first, id=new_id()) for _ in range(parts - 1))]


def _ask(tx: Tx, items: list[Item]) -> None:
    """Where a tenant's quota has room for this only if those before it in the transaction do not
    start, it is their pass that decides: so it makes no difference whether two calls meet in one.
    """
    nodes: dict[str, int] = {}
    for each in (part for item in items if not isinstance(item, Problem) for part in item[0]):
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
    parts, pool = item
    mark = tx.state.mark()
    try:
        pool_id = None if pool is None else pool_in(tx.state, pool).id
        if candidates(tx.state, parts[0].subject, None):
            caller.check_bound(parts[0].subject)
        parts = [replace(each, pool_id=pool_id, created=tx.wall) for each in parts]
        made = [commands.submit(tx.state, each, tx.now) for each in parts]
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
    if len(outcome) > 1:
        shown["parts"] = outcome
    return {"status": 201, "request": shown}


def _refused(problem: Problem) -> Json:
    return {"status": problem.status, "error": problem.to_dict()}
