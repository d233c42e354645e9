"""What agents say of a gang of two, in every order: it ends once, and nothing stale counts.

Every sequence of a few reports is tried, among them repeated ones, ones of another attempt or node,
and ones that can never follow each other. After each the audit recounts everything.
"""

from __future__ import annotations

from itertools import product

import pytest

from cede.engine.audit import audit
from cede.engine.decide import decide
from cede.engine.lifecycle import reports
from cede.engine.lifecycle.reports import Report
from cede.engine.state.state import State
from cede.engine.state.trial import what_if
from cede.model.allocation import Phase
from cede.model.lifecycle import AllocationState
from tests.scenario import tell

GANG = """
    node n1..n2 4 in gpus
    pool gpus nodes
    team red reserved 4 priority 1
    team blue priority 1
    blue runs g of 4 tasks 2 checkpoint auto retries 1 -> running g
"""
HINTED = (
    GANG
    + """
    g starts
    red runs r of 4 -> saving g, earmark r
"""
)

# What a member may say of itself; the hint is answered where there is one.
WORDS = ("started", "answered", "saved", "exit 0", "exit 1", "stopped", "lost", "refused")


def said(state: State, word: str, task: int, attempt: int = 1) -> Report:
    allocation = state.allocations.get(f"g.{attempt}")
    asked = None if allocation is None else allocation.stop_progress
    code, cause = {
        "exit 0": (0, "exited"),
        "exit 1": (1, "exited"),
        "stopped": (143, "stopped"),
        "lost": (None, "keeper_lost"),
    }.get(word, (None, ""))
    kind = "ended" if cause else word
    hint = 0 if asked is None else asked.hint
    return Report(f"g.{attempt}", attempt, task, kind, code, cause, "c1", 1, hint)


def check(state: State) -> None:
    assert audit.check(state) == []
    live = [each for each in state.allocations.values() if each.live and each.request_id == "g"]
    assert len(live) <= 1  # S9


@pytest.mark.parametrize(
    "story",
    [pytest.param(GANG, id="granted", marks=pytest.mark.slow), pytest.param(HINTED, id="hinted")],
)
@pytest.mark.parametrize("first", WORDS)
def test_every_order_of_reports_of_one_attempt(story: str, first: str) -> None:
    """S9, S13, S16: the attempt ends when both members have, once, and stays ended."""
    state = tell(story).state
    # The two are alike, so the first report is always of the first.
    for rest in product(product(WORDS, (0, 1)), repeat=2):
        with what_if(state):
            ends = [0, 0]
            for word, task in ((first, 0), *rest):
                allocation = state.allocations["g.1"]
                over = not allocation.live or allocation.members[task].phase is Phase.ENDED
                taken = reports.take(state, f"n{task + 1}", said(state, word, task), 5)
                assert taken != over  # nothing is heard of the dead
                ends[task] += taken and word in ("exit 0", "exit 1", "stopped", "lost", "refused")
            check(state)
            assert max(ends) <= 1  # an exit is recorded once
            ended = not state.allocations["g.1"].live
            assert ended == (ends == [1, 1])
            request = state.requests["g"]
            assert request.attempt == (2 if ended and not request.ended else 1)
    check(state)


@pytest.mark.parametrize("word", WORDS)
def test_a_report_that_is_not_of_the_current_attempt_changes_nothing(word: str) -> None:
    story = tell(GANG)
    state = story.state
    good = said(state, word, 0)
    stale = {
        "another node": ("n2", good),
        "a node that is not there": ("n9", good),
        "an earlier attempt": ("n1", said(state, word, 0, attempt=0)),
        "a later attempt": ("n1", said(state, word, 0, attempt=2)),
        "a task that is not there": ("n1", said(state, word, 2)),
        "a negative task": ("n1", said(state, word, -1)),
        "nobody's": ("n1", Report("x.1", 1, 0, good.kind)),
    }
    before = (state.requests["g"], state.allocations["g.1"])
    for node_id, report in stale.values():
        mark = len(state.events)
        assert not reports.take(state, node_id, report, 5)
        assert (state.requests["g"], state.allocations["g.1"]) == before
        assert [each.kind for each in state.events[mark:]] == ["stale_report"]


@pytest.mark.parametrize("word", WORDS)
def test_saying_it_twice_is_saying_it_once(word: str) -> None:
    once, twice = tell(HINTED).state, tell(HINTED).state
    for state, times in ((once, 1), (twice, 2)):
        for _ in range(times):
            reports.take(state, "n1", said(state, word, 0), 5)
        decide(state, 5)
        check(state)
    assert once.allocations["g.1"] == twice.allocations["g.1"]
    assert once.requests["g"].status is twice.requests["g"].status


def test_an_attempt_that_is_over_is_not_heard_after_the_next_began() -> None:
    story = tell(GANG + "\n g starts\n g fails -> running g, attempt g 2")
    late = Report("g.1", 1, 0, "ended", 0, "exited")
    assert not reports.take(story.state, "n1", late, 5)
    allocation = story.state.allocation_of("g")
    assert allocation is not None and allocation.attempt == 2
    assert allocation.state is AllocationState.GRANTED
