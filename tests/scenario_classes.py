"""What stories say about classes, homes, tenants and prices.

    pool gpus nodes preset classes wait_first no      settings by name; yes and no
    team red type ml_training home rack=a lends no borrows no lending 0.5 return_grace 60s
    team blue home n1,n2 max_class 10 sensitive yes
    tenant bio max_nodes 3 target 0.5 burst 1 used 1.2   `used` is the part of its budget
    red runs r1 of 1 class 7 checkpoint auto walltime 3600s tenant bio

Facts are `price r1 16` (what stopping it would cost now), `why_not w r1 near_completion` (why `r1`
is not stopped for `w`) and `first w v` (the queue goes on with `w`, then `v`).
"""

from __future__ import annotations

from collections.abc import Callable

from cede.engine.admin import tenant_edits
from cede.engine.explain.price import candidates
from cede.engine.explain.why import waiting_reason
from cede.engine.ledger.tenants import publish_budgets
from cede.engine.queue.cursor import Cursor, streams
from cede.engine.queue.scoring import score_queues
from cede.engine.state.state import State
from cede.engine.victims import pricing
from cede.model.request import Request
from tests.scenario_nodes import Untrue
from tests.scenario_words import options_of

_TENANT = {"max_nodes": int, "max_concurrent": int, "target": float, "burst": float}
_NAMES = {"target": "fair_share_target", "burst": "burst_allowance"}


def tenant(state: State, name: str, words: list[str]) -> None:
    """A tenant, new or with other numbers."""
    _, options = options_of(words)
    used = options.pop("used", None)
    given = {_NAMES.get(each, each): _TENANT[each](value) for each, value in options.items()}
    if name in state.tenants:
        tenant_edits.update_tenant(state, name, **given)
    else:
        tenant_edits.create_tenant(state, id=name, name=name, **given)
    if used is not None:
        publish_budgets(state, {**state.budgets, name: float(used)})


def _price(state: State, request: Request, words: list[str]) -> list[str]:
    allocation = state.allocation_of(request.id)
    assert allocation is not None, f"{request.id} holds nothing"
    ledger = state.ledgers[allocation.pool_id]
    found = pricing.price(state, ledger, ledger.holdings[allocation.id]).total
    if found != float(words[0]):
        raise Untrue(f"the price of {request.id} is {found:g}, not {words[0]}")
    return []


def _why_not(state: State, request: Request, words: list[str]) -> list[str]:
    shown = {
        state.allocations[each["id"]].request_id: each["why_not"]
        for policy in state.places(request.id)
        for each in candidates(state, request, policy, waiting_reason(state, request))
    }
    if words[0] not in shown:
        raise Untrue(f"{words[0]} is no candidate of {request.id}: {shown}")
    if shown[words[0]] != words[1]:
        raise Untrue(f"{words[0]} is not stopped for {request.id}: {shown[words[0]]}")
    return []


def _first(state: State, request: Request, words: list[str]) -> list[str]:
    """The queue of its pool, in order, from its head on."""
    (policy,) = state.places(request.id)
    ledger = state.ledgers[policy.pool_id]
    state.dirty.setdefault(ledger.pool.id)
    score_queues(state)
    found: list[str] = []
    cursor = Cursor(ledger, streams(ledger), lambda stream: stream.own_room(ledger), found)
    while (candidate := cursor.peek()) is not None:
        found.append(candidate.request_id)
        cursor.skip()
    wanted = [request.id, *words]
    found = list(dict.fromkeys(found))[: len(wanted)]
    if found != wanted:
        raise Untrue(f"the queue is {found}, not {wanted}")
    return []


FACTS: dict[str, Callable[[State, Request, list[str]], list[str]]] = {
    "price": _price,
    "why_not": _why_not,
    "first": _first,
}
