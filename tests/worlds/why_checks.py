"""What `why` says comes true: its remedies are tried on the engine, and its promises are kept.

The remedies are read from the answer and made again by this module's own commands, and the pool
then goes on until it is at rest: whoever was told that something starts it must hold its units.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from cede.engine.admin import claims, edits, fleet
from cede.engine.decide import decide
from cede.engine.explain.why import why
from cede.engine.lifecycle import commands, endings
from cede.engine.queue.ends import end_bound
from cede.engine.state.state import State
from cede.engine.state.trial import what_if
from cede.model.allocation import Allocation
from cede.model.lifecycle import RequestStatus
from cede.model.node import Out
from cede.model.request import Request
from cede.sim.plan import stop_victims

from .checks import Broken
from .walk import walk

# A taking is followed by others at most a few times in a small world.
_PASSES = 40
STEPS = 12  # of a walk


@dataclass
class Said:
    """How many waiters were told why, and how many of them what would help."""

    waiters: int = 0
    helped: int = 0
    tried: int = 0
    bounded: int = 0  # told when they start at the latest


def check_why(state: State, said: Said) -> None:
    """Everything that a state's waiters are told holds."""
    for request in [each for each in state.waiting() if state.places(each.id)]:
        story = why(state, request.id, state.now)
        said.waiters += 1
        _check_promise(state, request, story)
        found = [(each, pool["pool"]) for pool in story["pools"] for each in pool["changes"]]
        said.helped += bool(found) or story["reason"]["fix"].startswith("nothing")
        for change, pool in found:
            said.tried += 1
            _check_change(state, request, story, change, pool)


def check_walk(kind: str, seed: int, steps: int, said: Said) -> None:
    """The same after every step of a walk through a world."""
    rng, one = Random(seed), walk(kind, seed)
    for _ in range(steps):
        one.go([rng.randrange(1 << 16)])
        check_why(one.state, said)


def _check_promise(state: State, request: Request, story: dict[str, Any]) -> None:
    """Exactly the owners of earmarks hear that it is on its way, and they run at rest."""
    told = story["reason"]["code"] == "on_its_way"
    if told != (request.earmark is not None):
        raise Broken(f"L10 {request.id} has earmark {request.earmark} and is told {story}")
    if not told:
        return
    with what_if(state):
        to_rest(state)
        if state.requests[request.id].waiting:
            raise Broken(f"L10 {request.id} is told that it is on its way, and waits at rest")


def _check_change(
    state: State, request: Request, story: dict[str, Any], change: dict[str, Any], pool: str
) -> None:
    with what_if(state):
        _make(state, request, change, pool)
        to_rest(state)
        if state.requests[request.id].waiting:
            reason = story["reason"]["text"]
            raise Broken(f"L10 {request.id} ({reason}) does not start if {change}")


def _make(state: State, request: Request, change: dict[str, Any], pool: str) -> None:
    match change["change"]:
        case "limit" | "reserve" as what:
            policy = _policy(state, request, pool)
            field = {"limit": "limit", "reserve": "reserved"}[what]
            edits.update_policy(state, policy, **{field: change["to"]})
        case "size":
            shape = request.shape
            if shape is not None:
                tasks = change.get("tasks", shape.tasks)
                each = {key: amount // tasks for key, amount in change["to"].items()}
                shape = replace(shape, tasks=tasks, amounts=each)
            state.put(replace(request, amounts=change["to"], shape=shape))
        case "request_limit":
            commands.set_limit(state, request.id, change["to"], state.now)
        case "node_back":
            node = next(each for each in state.nodes.values() if each.name == change["node"])
            back = fleet.undrain if node.out is Out.DRAIN else fleet.enable
            back(state, node.id, state.now)
        case "unclaim":
            claims.unclaim(state, [change["node"]], state.now)
        case "lend":
            (mine,) = state.places(request.id)
            for each in [each for each in state.policies.values() if each.home and each != mine]:
                edits.update_policy(state, each.id, allow_lending=True, max_borrow_pct=1)
            edits.update_policy(state, mine.id, allow_borrowing=True)
            if change["walltime"]:
                state.put(replace(state.requests[request.id], walltime=3_600_000))
            for ended in change.get("requests", ()):
                _end_or_give_up(state, ended)
        case "holder_ends" | "holders_end":
            for each in change.get("requests") or [change["request"]]:
                _end_or_give_up(state, each)
        case other:
            raise Broken(f"no such change: {other}")


def _end_or_give_up(state: State, request_id: str) -> None:
    waits = state.requests[request_id].waiting
    status = RequestStatus.CANCELLED if waits else RequestStatus.RELEASED
    endings.finish(state, state.requests[request_id], status, None)


def _policy(state: State, request: Request, pool: str) -> str:
    places = state.places(request.id)
    return next(each.id for each in places if state.pools[each.pool_id].name == pool)


def to_rest(state: State) -> None:
    """Victims stop at once, pass after pass, until nobody is stopped."""
    for _ in range(_PASSES):
        decide(state, state.now)
        if not stop_victims(state):
            return
    raise Broken("L1 it does not come to rest")


# When it starts at the latest -----------------------------------------------------------------


def check_latest(state: State, rng: Random, said: Said, orders: int = 3) -> None:
    """Whoever was told an instant holds its units by then, whatever order holders end in."""
    for request in [each for each in state.waiting() if len(state.places(each.id)) == 1]:
        (pool,) = why(state, request.id, state.now, tried=False)["pools"]
        if pool["earliest_start"] is None:
            continue
        said.bounded += 1
        latest = state.now + round(1000 * pool["earliest_start"])
        for _ in range(orders):
            with what_if(state):
                _keep_word(state, request, latest, rng.randint)


def _keep_word(
    state: State, request: Request, latest: int, between: Callable[[int, int], int]
) -> None:
    """Every holder that is bounded ends at an instant of its own, up to its bound."""
    ends: dict[str, int] = {}
    while state.requests[request.id].waiting:
        for allocation in _live(state):
            bound = end_bound(state, allocation)
            if bound is not None and allocation.id not in ends:
                ends[allocation.id] = between(state.now, max(bound, state.now))
        due = sorted((at, each.id) for each in _live(state) if (at := ends.get(each.id)))
        if not due or due[0][0] > latest:
            raise Broken(f"L10 {request.id} was to start by {latest}: {state.now}, {due}")
        state.now = max(state.now, due[0][0])
        _end(state, state.allocations[due[0][1]])
        decide(state, state.now)


def _live(state: State) -> list[Allocation]:
    return [each for each in state.allocations.values() if each.live]


def _end(state: State, allocation: Allocation) -> None:
    request = state.requests[allocation.request_id]
    if allocation.leaving:
        endings.stopped(state, request, allocation)
    else:
        commands.release(state, request.id, state.now, attempt=request.attempt)
