"""A snapshot of any state of any world is the whole state: read back it is the same, in every field
that decides, and so is its own snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cede.engine.audit import audit
from cede.engine.state.state import State
from cede.model.allocation import Allocation
from cede.model.reason import Code
from cede.model.request import Request
from cede.snapshot.reader import load
from cede.snapshot.writer import dump
from tests.scenario import ranked, tell
from tests.worlds.classes import EXCHANGE
from tests.worlds.draw import KINDS
from tests.worlds.walk import Walk, walk

# Whose work it is and what it is called; when it was written; ids, which a file has of its own.
_UNSAID = {"labels", "owner", "created", "index", "policy_id", "shape"}


def said(entity: Request | Allocation) -> dict[str, Any]:
    """What an entity is like, as far as that decides. Only the order of indexes does."""
    found = {each.name: getattr(entity, each.name) for each in fields(entity)}
    found["reason"] = entity.reason and entity.reason.code
    if isinstance(entity, Request):
        found["earmark"] = entity.earmark and (entity.earmark.pool_id, entity.earmark.footprint)
        found["saved"] = entity.saved and (entity.saved.id, entity.saved.at)
        if entity.waiting:
            found["reason"] = None  # why it was last stopped
    else:
        found["stop_progress"] = entity.stop_progress and replace(entity.stop_progress, hint=0)
        found["members"] = tuple(replace(each, answered=0) for each in entity.members)  # of a hint
    return {name: value for name, value in found.items() if name not in _UNSAID}


def alive(state: State) -> dict[str, dict[str, Any]]:
    requests = {each.id: each for each in state.requests.values() if not each.ended}
    shown = {each: said(request) for each, request in requests.items()}
    for allocation in state.allocations.values():
        if allocation.live:
            shown[allocation.id] = said(allocation)
            if allocation.taken_for not in requests:  # it was, and is not any more
                shown[allocation.id]["taken_for"] = None
    return shown


def rights(state: State) -> dict[str, int]:
    """Of who holds or was promised something. Fair shares are computed anew by who reads it."""
    unfair = [each for each in state.ledgers.values() if not each.fair]
    return {each: ledger.rights(each) for ledger in unfair for each in ledger.holdings}


def check(state: State) -> None:
    shown = dump(state, state.now)
    again = load(json.loads(json.dumps(shown)))
    assert alive(again) == alive(state)
    assert rights(again) == rights(state)
    assert audit.check(again) == []
    read = dump(again, state.now)
    assert ranked(read) == ranked(shown)
    assert json.dumps(dump(load(read), state.now)) == json.dumps(read)


WALKS = st.builds(walk, st.sampled_from(sorted(KINDS)), st.integers(0, 999)) | st.builds(
    Walk, st.just(EXCHANGE)
)


@settings(max_examples=120)
@given(WALKS, st.lists(st.integers(0, 99), max_size=16), st.booleans())
def test_it_is_the_same_when_it_is_read_back(
    walk: Walk, steps: list[int], anybody_gives_up: bool
) -> None:
    walk.anybody_gives_up = anybody_gives_up
    for step in steps:
        walk.go([step])
        check(walk.state)


def moments(state: State) -> Iterator[str]:
    for each in state.allocations.values():
        if each.live and each.leaving:
            yield "parting"
            if each.yields:
                yield "exchange"
                if state.requests[each.request_id].cancelled:
                    yield "cancelled in an exchange"
    for node in state.nodes.values():
        if node.claimed_by:
            yield "claim"
    for request in state.waiting():
        if request.earmark is not None:
            yield "earmark"
        if request.withhold is not None:
            yield "withheld"


def test_such_walks_come_upon_every_moment() -> None:
    found: set[str] = set()
    walks = [(10, Walk(EXCHANGE)), (9, walk("classes", 9)), (33, walk("classes", 33))]
    for number, each in walks:
        each.anybody_gives_up = number % 2 == 0
        rng = Random(number)
        for _ in range(16):
            each.go([rng.randrange(100)])
            found.update(moments(each.state))
            check(each.state)
    assert found == {
        *("parting", "exchange", "cancelled in an exchange", "claim", "earmark", "withheld"),
    }


CANCELLED = """
    pool gpus 2 preset classes precedence rights_first
      team red reserved 2
      team blue
    blue submits b9 of 1 class 9 checkpoint auto -> running b9
    red submits r3 of 1 class 3 checkpoint auto  -> running r3
    b9 r3 starts
    red submits r4 of 2 class 4 -> saving b9 (reclaim), saving r3 (exchange), earmark r4
    cancel r3                   -> stopping r3
"""


def test_who_is_cancelled_in_an_exchange_has_left_its_place_all_the_same() -> None:
    state = tell(CANCELLED).state
    check(state)
    again = load(dump(state, state.now))
    assert again.requests["r3"].cancelled
    held = again.allocation_of("r3")
    assert held is not None and held.yields
    assert again.ledgers["gpus"].rights("r4") == state.ledgers["gpus"].rights("r4")


def test_without_its_rule_the_promise_would_be_borrowed() -> None:
    """The check sees what was wrong once."""
    state = tell(CANCELLED).state
    with (
        patch("cede.snapshot.writer._rule", lambda request, held: None),
        pytest.raises(AssertionError),
    ):
        check(state)
    assert Code.EXCHANGE in {each.reason.code for each in state.allocations.values() if each.reason}


def test_a_holder_of_a_named_pool_waits_for_that_pool_alone() -> None:
    state = tell("""
        pool east 2
        pool west 2
        team red in east
        team red in west
        red submits r of 1 in east -> running r
    """).state
    check(state)
    assert load(dump(state, state.now)).requests["r"].pool_id == "east"
