"""Changes that would help a waiter, each tried on the real engine and taken back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from cede.engine.admin import claims, edits, fleet
from cede.engine.decide import decide
from cede.engine.ledger.account import (
    free_now,
    headroom,
    missing,
    own_bounds,
    reserve_left,
    smallest,
    taken_of_reserve,
)
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.lifecycle import commands, endings
from cede.engine.nodes.placement import suits
from cede.engine.state.state import State
from cede.engine.state.trial import what_if
from cede.engine.steps.rehearsal import play, returning
from cede.model import bounds
from cede.model.amounts import Amounts, show
from cede.model.errors import CedeError
from cede.model.lifecycle import RequestStatus
from cede.model.node import Node, Out
from cede.model.policy import Policy
from cede.model.request import Request

# Single holders tried as "if this one ended"; with more, a reader would slow down the writer.
_HOLDERS_TRIED = 8
# Holders tried together; a request that needs more of them to end is too large.
_SEVERAL_TRIED = 32
# How often the waiters that would be served instead are added to them.
_AHEAD_TRIED = 4


def changes(
    state: State, ledger: PoolLedger, request: Request, policy: Policy, demand: Amounts
) -> Iterator[dict[str, Any]]:
    """The smallest changes of each kind (reserve, limit, size, a claim's or a holder's end) that
    would start the request now; if no single holder's end would, the ends of several. Each has a
    sentence, its `text`. None for the owner of a promise: it starts once victims have stopped.
    """
    if request.earmark is not None:
        return
    for each in _found(state, ledger, request, policy, demand):
        yield each | {"text": _sentence(each)}


def _found(
    state: State, ledger: PoolLedger, request: Request, policy: Policy, demand: Amounts
) -> Iterator[dict[str, Any]]:
    done = set()
    for change, make in _tries(state, ledger, request, policy, demand):
        if change["change"] == "size" and "size" in done:
            continue  # the largest that starts was found
        outcome = _outcome(state, request.id, make)
        if outcome is not None:
            done.add(change["change"])
            yield {**change, "then": outcome}
    if "holder_ends" not in done:
        yield from _several_end(state, ledger, request, demand)
    if not done and ledger.homes.matter:
        yield from _once_lent(state, ledger, request, policy, demand)


def _sentence(change: dict[str, Any]) -> str:
    match change["change"]:
        case "limit":
            words = f"the limit of {change['policy']} is {show(change['to'])}"
        case "reserve":
            words = f"{show(change['to'])} are reserved for {change['policy']}"
        case "size":
            words = f"it asks for {show(change['to'])}"
        case "request_limit":
            words = f"its own limit is {show(change['to'])}"
        case "lend":
            words = "other policies lend their nodes"
            words += " and it has a walltime" if change["walltime"] else ""
            words += "".join(f" and {each} ends" for each in change.get("requests", ()))
        case "node_back":
            words = f"node {change['node']} is back in service"
        case "unclaim":
            words = f"node {change['node']} is unclaimed by {change['claimed_by']}"
        case "holders_end":
            words = f"{', '.join(change['requests'])} end"
        case _:
            words = f"{change['request']} ends"
    then = "it starts" if change["then"] == "starts" else "room is freed for it"
    return f"{then} if {words}"


def in_words(found: Iterable[dict[str, Any]]) -> str:
    """The changes as actions for people, one of each kind."""
    said: dict[str, str] = {}
    for each in found:
        match each["change"]:
            case "limit":
                words = f"raise the limit of {each['policy']} to {show(each['to'])}"
            case "reserve":
                words = f"reserve {show(each['to'])} for {each['policy']}"
            case "size":
                words = f"ask for {show(each['to'])}"
            case "request_limit":
                limit = " ".join(f"{key}={most}" for key, most in each["to"].items())
                words = f"raise its own limit: cede limit {each['request']} {limit}"
            case "lend":
                words = "let other policies lend their nodes (cede policy update --lend)"
                words += " and submit it with a walltime" if each["walltime"] else ""
                if each.get("requests"):
                    words += f", and {', '.join(each['requests'])} must end"
            case "node_back":
                words = f"bring node {each['node']} back into service"
            case "unclaim":
                words = f"unclaim node {each['node']}"
            case "holders_end":
                words = f"{', '.join(each['requests'])} must end"
            case _:
                words = f"{each['request']} must end"
        said.setdefault(each["change"], words)
    return ", or ".join(said.values())


def _several_end(
    state: State, ledger: PoolLedger, request: Request, demand: Amounts
) -> Iterator[dict[str, Any]]:
    """The ends of the fewest of the largest holders that would start it; where other waiters come
    first for the freed units, the ends of these as well.
    """
    useful = [
        each
        for each in ledger.holdings.values()
        if not each.earmark and any(key in each.amounts for key in demand)
    ]
    useful.sort(key=lambda each: (-sum(each.amounts.get(key, 0) for key in demand), -each.index))
    owners = [state.allocations[each.id].request_id for each in useful[:_SEVERAL_TRIED]]
    then = None
    for _ in range(_AHEAD_TRIED):
        then, first = _ended(state, request.id, owners)
        if then is not None or not first:
            break
        owners += first
    low, high = 1, len(owners)
    while then is not None and low < high:
        middle = (low + high) // 2
        outcome, _ = _ended(state, request.id, owners[len(owners) - middle :])
        if outcome is None:
            low = middle + 1
        else:
            high, then = middle, outcome
    if then is not None:
        chosen = owners[len(owners) - high :]
        yield {"change": "holders_end", "requests": chosen, "then": then}


def _once_lent(
    state: State, ledger: PoolLedger, request: Request, policy: Policy, demand: Amounts
) -> Iterator[dict[str, Any]]:
    """The change that other policies lend it their own nodes, if that would start it; if need be
    also with a walltime, which work that cannot be asked to leave needs there, and with holders
    gone.
    """
    for walltime in (False, True) if request.walltime is None else (False,):
        lend = partial(_lend, state, ledger, policy, request if walltime else None)
        then, also = _outcome(state, request.id, lend), {}
        if then is None:
            with what_if(state):
                lend()
                decide(state, state.now)
                several = list(_several_end(state, state.ledgers[ledger.pool.id], request, demand))
            for each in several:  # one at most; together they are a change of their own
                also = {"requests": each["requests"]}
                then = _outcome(state, request.id, partial(lend, each["requests"]))
        if then is not None:
            yield {"change": "lend", "walltime": walltime, **also, "then": then}
            return


def _lend(
    state: State,
    ledger: PoolLedger,
    policy: Policy,
    request: Request | None,
    gone: Iterable[str] = (),
) -> None:
    """Let every policy lend all its own nodes, and this one borrow; a request has an end then, and
    others are gone.
    """
    for each in ledger.policies.values():
        if each.home is not None and each.id != policy.id:
            state.put(replace(each, allow_lending=True, max_borrow_pct=1))
    state.put(replace(policy, allow_borrowing=True))
    if request is not None:
        state.put(replace(request, walltime=bounds.HOUR))
    _end_all(state, gone)


def _ended(state: State, request_id: str, owners: list[str]) -> tuple[str | None, list[str]]:
    """The outcome of a waiter once these have ended, and the requests that would start or be
    promised capacity instead of it.
    """
    with what_if(state):
        _end_all(state, owners)
        before = {each.id for each in state.waiting() if each.earmark is None}
        then = _decided(state, request_id)
        served = [
            each
            for each in before
            if not state.requests[each].waiting or state.requests[each].earmark is not None
        ]
    return then, sorted(each for each in served if each != request_id)


def _tries(
    state: State, ledger: PoolLedger, request: Request, policy: Policy, demand: Amounts
) -> Iterator[tuple[dict[str, Any], Callable[[], object]]]:
    used = ledger.used[policy.id]
    raised = {**policy.limit}
    for key in demand:
        if key in raised:
            raised[key] = max(raised[key], used.get(key, 0) + demand[key])
    change: dict[str, Any]
    if raised != policy.limit:
        change = {"change": "limit", "policy": policy.name, "to": raised}
        yield change, lambda: edits.update_policy(state, policy.id, limit=raised)
    held = used if request.preemptible else taken_of_reserve(ledger, policy.id)
    reserved = {**policy.reserved}
    for key in demand:
        if key in ledger.pool.capacity and (key in ledger.counting or not request.preemptible):
            reserved[key] = max(reserved.get(key, 0), held.get(key, 0) + demand[key])
    if reserved != policy.reserved:
        change = {"change": "reserve", "policy": policy.name, "to": reserved}
        yield change, lambda: edits.update_policy(state, policy.id, reserved=reserved)
    for smaller in _smaller(ledger, request, policy, demand):
        change = {"change": "size", "to": dict(smaller.amounts)}
        if smaller.tasks != request.tasks:
            change["tasks"] = smaller.tasks
        yield change, partial(state.put, smaller)
    group = ledger.task_groups.used.get(request.part_of or request.id, {})
    limit = dict(request.terms.limit)
    enough = {key: max(n, group.get(key, 0) + demand.get(key, 0)) for key, n in limit.items()}
    if enough != limit:
        change = {"change": "request_limit", "request": request.id, "to": enough}
        yield change, partial(commands.set_limit, state, request.id, enough, state.now)
    for node in _nodes_out(ledger, request)[:_HOLDERS_TRIED]:
        yield {"change": "node_back", "node": node.name}, partial(_bring_back, state, node)
    for node in claimed_nodes(ledger, request, policy)[:_HOLDERS_TRIED]:
        change = {"change": "unclaim", "node": node.name, "claimed_by": node.claimed_by}
        yield change, _unclaim(state, node)
    for holder_id in _likely_holders(ledger, demand):
        owner = state.requests[state.allocations[holder_id].request_id]
        change = {"change": "holder_ends", "request": owner.id}
        yield change, _end(state, owner)


def claimed_nodes(ledger: PoolLedger, request: Request, policy: Policy) -> list[Node]:
    """Nodes that suit a waiter and are claimed for another user."""
    key = ledger.queue_of(policy.id, request)
    if ledger.inventory is None or key.form is None:
        return []
    nodes = [
        ledger.inventory.spots[node_id].node
        for node_id, who in ledger.inventory.claimed.items()
        if who != key.claimant
    ]
    return [each for each in nodes if each.usable and suits(each, key.form)]


def _nodes_out(ledger: PoolLedger, request: Request) -> list[Node]:
    """Nodes that suit a waiter and that an operator took out of service."""
    form = ledger.form(request)
    if ledger.inventory is None or form is None:
        return []
    nodes = [each.node for each in ledger.inventory.spots.values()]
    return [each for each in nodes if each.out is not Out.NO and suits(each, form)]


def _bring_back(state: State, node: Node) -> None:
    back = fleet.undrain if node.out is Out.DRAIN else fleet.enable
    back(state, node.id, state.now)


def _unclaim(state: State, node: Node) -> Callable[[], object]:
    return lambda: claims.unclaim(state, [node.id], state.now)


def _end(state: State, owner: Request) -> Callable[[], object]:
    """A function that ends a holder as done, or a waiter as cancelled."""
    status = RequestStatus.CANCELLED if owner.waiting else RequestStatus.RELEASED
    return lambda: endings.finish(state, owner, status, None)


def _end_all(state: State, gone: Iterable[str]) -> None:
    for each in gone:
        if not state.requests[each].ended:  # it may have ended with a dependency
            _end(state, state.requests[each])()


def _smaller(
    ledger: PoolLedger, request: Request, policy: Policy, demand: Amounts
) -> Iterator[Request]:
    """The same request with fewer tasks, or cut down to what is left of its reserve or is free; the
    largest first.
    """
    if (shape := request.shape) is not None and shape.tasks > 1:
        for tasks in sorted({shape.tasks - 1, shape.tasks // 2, 1}, reverse=True):
            amounts = {key: tasks * amount for key, amount in shape.amounts.items()}
            yield replace(request, shape=replace(shape, tasks=tasks), amounts=amounts)
        return
    own = headroom(own_bounds(ledger, ledger.queue_of(policy.id, request))) or {}
    reserve = {key: reserve_left(ledger, policy.id, key) for key in ledger.counting}
    rooms = [smallest((own, reserve)), smallest((own, free_now(ledger)))]
    cuts = [
        {key: min(amount, room.get(key, amount)) for key, amount in demand.items()}
        for room in rooms
    ]
    for cut in sorted(cuts, key=lambda each: -sum(each.values())):
        if all(amount > 0 for amount in cut.values()) and cut != dict(demand):
            amounts = {**request.amounts, **cut}
            form = None if shape is None else replace(shape, amounts=amounts)
            yield replace(request, amounts=amounts, shape=form)


def _likely_holders(ledger: PoolLedger, demand: Amounts) -> list[str]:
    """Holders that have what is missing: the smallest that suffice come first."""
    short = missing(demand, free_now(ledger))
    enough = [
        h
        for h in ledger.holdings.values()
        if not h.earmark and all(h.amounts.get(key, 0) >= need for key, need in short.items())
    ]
    enough.sort(key=lambda h: (sum(h.amounts.values()), -h.index))
    return [h.id for h in enough[:_HOLDERS_TRIED]]


def _outcome(state: State, request_id: str, make: Callable[[], object]) -> str | None:
    """The outcome of the waiter after a change: it starts, is promised its capacity, or neither."""
    with what_if(state):
        try:
            make()
        except CedeError:
            return None
        return _decided(state, request_id)


def _decided(state: State, request_id: str) -> str | None:
    """Decide; the outcome of a waiter is what is left of it once all victims have stopped."""
    decide(state, state.now)
    outcome = _became(state, request_id)
    if outcome is not None and returning(state) <= bounds.REHEARSED_MAX:
        play(state, _leaving(state), lambda state: decide(state, state.now))
        if state.requests[request_id].status is not RequestStatus.ALLOCATED:
            return None
    return outcome


def _leaving(state: State) -> list[str]:
    ledgers = [each for each in state.ledgers.values() if each.leaving]
    return [h.id for each in ledgers for h in each.holdings.values() if h.leaving]


def _became(state: State, request_id: str) -> str | None:
    request = state.requests[request_id]
    if request.status is RequestStatus.ALLOCATED:
        return "starts"
    return "promised" if request.earmark is not None else None
