"""The journal names a stop by its cause; the status of the request is `preempting` for all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cede.engine.admin import fleet
from cede.engine.lifecycle import commands
from cede.engine.state.state import State
from tests.scenario import tell

TWO_TEAMS = """
    pool gpus 2
      team red limit 2 priority 10
      team blue reserved 2 priority 10
    red submits r of 2 -> running r
"""
GANG = """
    node n1..n2 2 in gpus
    pool gpus nodes
      team red reserved 4 priority 1
    red runs r of 2 tasks 2 -> running r
    r starts
"""
STOPS = ("preempting", "cancelling", "stopping")


def _cancelled(state: State) -> None:
    commands.cancel(state, "r", state.now, actor="ann")


def _disabled(state: State) -> None:
    fleet.disable(state, "n1", state.now)


@pytest.mark.parametrize(
    ("story", "happens", "event", "code"),
    [
        (TWO_TEAMS, _cancelled, "cancelling", "cancelled"),
        (TWO_TEAMS + "    blue submits b of 2 -> stopping r\n", None, "preempting", "reclaim"),
        (GANG, _disabled, "stopping", "node_lost"),
        (GANG + "    r/0 fails -> stopping r\n", None, "stopping", "work_failed"),
    ],
    ids=["cancelled", "reclaimed", "node disabled", "a task failed"],
)
def test_a_stop_is_named_by_its_cause(
    story: str, happens: Callable[[State], None] | None, event: str, code: str
) -> None:
    told = tell(story)
    state = told.state
    if happens is not None:
        happens(state)
    assert state.requests["r"].status == "preempting"
    stops = [
        each
        for each in (*told.events, *state.events)
        if each.kind in STOPS and each.request_id == "r"
    ]
    assert [(each.kind, each.data["reason"]["code"]) for each in stops] == [(event, code)]
