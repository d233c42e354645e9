"""Which state may follow which: every edge, and no other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cede.engine.state.moves import check_move
from cede.model import lifecycle
from cede.model.allocation import Allocation
from cede.model.lifecycle import ALLOCATION_MOVES, REQUEST_MOVES, AllocationState, RequestStatus
from cede.model.request import Request
from cede.model.subject import Subject

REQUEST = Request("r", Subject("team", "red"), {"gpu": 1}, 0, 1)
ALLOCATION = Allocation("r.1", "r", "p", "p/red", {"gpu": 1}, True, 1, 2, 0)


def test_every_state_is_in_its_table() -> None:
    assert set(REQUEST_MOVES) == set(RequestStatus)
    assert set(ALLOCATION_MOVES) == set(AllocationState)


@pytest.mark.parametrize("old", RequestStatus)
@pytest.mark.parametrize("new", RequestStatus)
def test_requests_move_along_the_table_only(old: RequestStatus, new: RequestStatus) -> None:
    one, other = replace(REQUEST, status=old), replace(REQUEST, status=new)
    if old is new or new in REQUEST_MOVES[old]:
        check_move(one, other)
    else:
        with pytest.raises(AssertionError):
            check_move(one, other)


@pytest.mark.parametrize("old", AllocationState)
@pytest.mark.parametrize("new", AllocationState)
def test_allocations_move_along_the_table_only(old: AllocationState, new: AllocationState) -> None:
    one, other = replace(ALLOCATION, state=old), replace(ALLOCATION, state=new)
    if old is new or new in ALLOCATION_MOVES[old]:
        check_move(one, other)
    else:
        with pytest.raises(AssertionError):
            check_move(one, other)


def test_an_end_is_never_left() -> None:
    ends = {"preempted", "rejected", "cancelled", "released", "failed"}
    assert {str(each) for each in lifecycle.TERMINAL} == ends
    assert not ALLOCATION_MOVES[AllocationState.ENDED]
    for status in RequestStatus:
        request = replace(REQUEST, status=status)
        assert request.ended == (status in lifecycle.TERMINAL)
        assert request.waiting == (status in lifecycle.WAITING)
        assert (request.waiting, request.ended, status in lifecycle.HOLDING).count(True) == 1


def test_every_end_can_be_reached() -> None:
    reached, todo = set(), [RequestStatus.QUEUED]
    while todo:
        status = todo.pop()
        reached.add(status)
        todo += [each for each in REQUEST_MOVES[status] if each not in reached]
    assert reached == set(RequestStatus)


def test_who_holds_is_live_until_it_ended() -> None:
    for state in AllocationState:
        assert replace(ALLOCATION, state=state).live == (state is not AllocationState.ENDED)
    assert replace(ALLOCATION, walltime=5).ends_at == 5
    assert replace(ALLOCATION, walltime=5, started_at=10).ends_at == 15
    assert ALLOCATION.ends_at is None
