"""Running work is asked to save itself when that is worth it, and nobody is stopped by it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cede.engine.admin import edits
from cede.engine.audit import audit
from cede.engine.decide import decide
from cede.engine.explain.why import why
from cede.engine.lifecycle import commands, reports
from cede.engine.lifecycle.orders import Order, orders
from cede.engine.state.changes import Event
from cede.engine.state.trial import what_if
from cede.engine.steps import checkpoint as brokering
from cede.model import bounds
from cede.model.allocation import Allocation
from cede.model.errors import Invalid
from cede.model.lifecycle import AllocationState
from cede.model.settings import Settings
from cede.model.stopping import Ask, StopProgress
from cede.store.node_rows import hints_from, hints_text
from tests.scenario import Story, tell

SECOND, MINUTE, HOUR = bounds.SECOND, bounds.MINUTE, bounds.HOUR
NODES = """
node n1..n2 4 in gpus
pool gpus nodes
  team red reserved 4 priority 1
  team blue priority 1
"""


def begin(lines: str, **settings: Any) -> Story:
    """A story so far, in a pool that has a broker from then on."""
    story = tell(NODES + lines)
    edits.update_pool(story.state, "gpus", settings={"broker": True, **settings})
    story.settle()
    return story


def one(**settings: Any) -> Story:
    """One piece of work of red, in its share: 4 GPUs of one node."""
    return begin("red runs a of 4 checkpoint auto free -> running a\na starts", **settings)


def counted(**settings: Any) -> Story:
    """The same without nodes, which would have to be heard of."""
    story = tell(
        "pool gpus 8\n  team red reserved 4 priority 1\n"
        "red submits a of 4 checkpoint auto free -> running a\na starts"
    )
    edits.update_pool(story.state, "gpus", settings={"broker": True, **settings})
    story.settle()
    return story


def held(story: Story, name: str = "a") -> Allocation:
    found = story.state.allocation_of(name)
    assert found is not None
    return found


def events(story: Story, kind: str, name: str = "a") -> list[Event]:
    return [each for each in story.events if (each.kind, each.request_id) == (kind, name)]


def asked_at(story: Story, name: str = "a") -> list[int]:
    return [each.at for each in events(story, "checkpoint_asked", name)]


def order(story: Story, name: str = "a") -> Order:
    node = held(story, name).members[0].node_id
    [found] = [each for each in orders(story.state, node) if each.request_id == name]
    return found


def says(story: Story, kind: str, name: str = "a", **fields: Any) -> None:
    allocation = held(story, name)
    report = reports.Report(allocation.id, allocation.attempt, 0, kind, **fields)
    assert reports.take(story.state, allocation.members[0].node_id, report, story.now)
    story.settle()


def saves(story: Story, name: str = "a", checkpoint: str = "c1", *, hint: int) -> None:
    says(story, "saved", name, checkpoint=checkpoint, size=7, hint=hint)


def ask_of(story: Story, name: str = "a") -> Ask:
    ask = held(story, name).open_ask
    assert ask is not None
    return ask


def test_without_a_broker_nobody_is_asked_or_looked_at() -> None:
    story = one(broker=False)
    story.advance(7 * HOUR)
    assert not asked_at(story) and held(story).asked is None


def test_it_is_asked_when_it_is_worth_it_and_goes_on() -> None:
    """By hand: saving costs 8 + 32 + 1.6, and 4 GPUs at a risk of 0.001 a second are worth more
    after 10,400 s; the looks are every 30 s from the 300th on.
    """
    story = one()
    story.advance(4 * HOUR)
    [asked, *_] = events(story, "checkpoint_asked")
    assert asked.at == 10_410 * SECOND
    assert asked.data["cost"] == 41.6 and asked.data["value"] > 41.6
    assert asked.data["unsaved"] == asked.at and asked.data["borrowed"] is False
    assert held(story).state is AllocationState.RUNNING
    assert story.state.requests["a"].status == "allocated"


def test_the_order_says_save_and_go_on_until_it_is_answered() -> None:
    story = one(checkpoint_interval_max=600)
    assert (order(story).do, order(story).hint, order(story).asks) == ("run", 0, False)
    story.advance(600 * SECOND)
    ask = ask_of(story)
    assert (order(story).do, order(story).hint, order(story).asks) == ("run", ask.number, True)
    assert order(story).until == ask.until == story.now + 10 * MINUTE
    story.advance(20 * SECOND)
    saves(story, hint=ask.number)
    assert (order(story).do, order(story).hint, order(story).keep) == ("run", 0, "")
    assert held(story).asked == replace(ask, over=True, until=story.now, took=20 * SECOND)
    saved = story.state.requests["a"].saved
    assert saved is not None and (saved.id, saved.at) == ("c1", story.now)
    [told] = events(story, "checkpoint_saved")
    assert (told.data["asked"], told.data["took"]) == (ask.number, 20 * SECOND)


def test_how_long_it_took_is_what_it_costs_the_next_time() -> None:
    story = one(checkpoint_interval_min=60, checkpoint_interval_max=600)
    story.advance(600 * SECOND)
    story.advance(20 * SECOND)
    saves(story, hint=ask_of(story).number)
    story.advance(600 * SECOND)
    assert events(story, "checkpoint_asked")[1].data["cost"] == 20 + 80 + 1.6


def test_never_sooner_than_the_least_interval_after_the_last_checkpoint() -> None:
    """Others want what it holds, so it is worth it at once."""
    story = one(checkpoint_interval_min=600)
    story.line(0, "red runs w1..w3 of 4 fixed -> running w1, waiting w2..w3")
    story.advance(500 * SECOND)
    saves(story, checkpoint="own", hint=0)
    story.advance(599 * SECOND)
    assert asked_at(story) == []
    story.advance(1 * SECOND)
    assert asked_at(story) == [1100 * SECOND]


def test_never_later_than_the_greatest_interval() -> None:
    story = one(checkpoint_interval_min=60, checkpoint_interval_max=700.5)
    story.advance(900 * SECOND)
    assert asked_at(story) == [700_500]
    assert ask_of(story).until == 700_500 + 10 * MINUTE


def test_borrowed_work_is_asked_sooner_than_its_equal_at_home() -> None:
    story = begin(
        "red runs a of 4 checkpoint auto free -> running a, inside a\n"
        "blue runs b of 4 checkpoint auto free -> running b, borrowed b\n"
        "a b starts"
    )
    story.advance(4 * HOUR)
    assert asked_at(story, "b")[0] == 960 * SECOND  # 945.5 s, and the next look
    assert asked_at(story, "a")[0] == 10_410 * SECOND


def test_work_on_nodes_that_are_lent_is_asked_sooner_than_its_equal_at_home() -> None:
    """By hand, for one GPU: 8 + 8 + 1.6 is what 0.011 a second is worth after 1,600 s, and 0.001
    after 17,600 s.
    """
    story = tell(
        "node n1 1 in gpus label rack=a\n"
        "node n2 1 in gpus label rack=b\n"
        "pool gpus nodes preset classes\n"
        "  team web home rack=a\n"
        "  team red home rack=b lending 1\n"
        "web runs a of 1 class 2 checkpoint auto -> running a, on a n1, inside a\n"
        "web runs b of 1 class 2 checkpoint auto -> running b, on b n2, borrowed b\n"
        "a b starts"
    )
    edits.update_pool(story.state, "gpus", settings={"broker": True})
    story.advance(5 * HOUR)
    assert asked_at(story, "b")[0] == 1620 * SECOND
    assert asked_at(story, "a")[0] == 17_610 * SECOND


def test_waiters_of_higher_rank_and_a_backlog_make_it_sooner() -> None:
    story = one()
    story.line(0, "edit blue priority 9")
    story.line(0, "blue runs x of 4 -> running x")
    story.line(0, "blue runs w1..w3 of 4 -> waiting w1..w3")
    story.advance(300 * SECOND)
    [asked] = events(story, "checkpoint_asked")
    assert (asked.data["waiting_higher"], asked.data["backlog"]) == (3, 1.0)
    assert asked.data["value"] == pytest.approx(3 * 100 * 0.6 + 60 + 300 * 4 * 0.001)


@pytest.mark.parametrize("line", ["red runs a of 4 checkpoint manual free", "red runs a of 4 free"])
def test_work_that_sees_to_it_itself_or_cannot_is_not_asked(line: str) -> None:
    story = begin(f"{line} -> running a\na starts")
    story.advance(7 * HOUR)
    assert not asked_at(story) and story.state.timers.next() is not None


def test_work_that_has_not_started_is_not_asked() -> None:
    story = begin("red runs a of 4 checkpoint auto free -> running a")
    story.advance(7 * HOUR)
    assert not asked_at(story)


def test_sensitive_work_has_intervals_of_its_own() -> None:
    story = begin(
        "edit red sensitive yes\n"
        "red runs a of 4 checkpoint auto free sensitive -> running a\n"
        "a starts"
    )
    story.advance(2 * HOUR)
    assert asked_at(story)[0] == HOUR


def test_an_ask_without_an_answer_is_over_quietly_and_is_repeated_later() -> None:
    story = one(checkpoint_interval_min=120, checkpoint_interval_max=600)
    story.advance(600 * SECOND)
    first = ask_of(story)
    story.advance(10 * MINUTE)
    [over] = events(story, "checkpoint_unanswered")
    assert (over.at, over.data["hint"]) == (first.until, first.number)
    assert held(story).open_ask is None and held(story).state is AllocationState.RUNNING
    assert (order(story).do, order(story).hint) == ("run", 0)
    story.advance(119 * SECOND)
    assert len(asked_at(story)) == 1
    story.advance(1 * SECOND)
    assert asked_at(story)[1] == first.until + 120 * SECOND
    assert not events(story, "checkpoint_failed") and not events(story, "preempting")


def test_an_answer_that_comes_late_still_counts_as_a_checkpoint() -> None:
    story = one(checkpoint_interval_min=300, checkpoint_interval_max=600)
    story.advance(600 * SECOND)
    number = ask_of(story).number
    story.advance(11 * MINUTE)
    saves(story, hint=number)
    saved = story.state.requests["a"].saved
    assert saved is not None and saved.id == "c1"
    assert "asked" not in events(story, "checkpoint_saved")[0].data


def test_a_checkpoint_of_its_own_accord_does_not_answer() -> None:
    story = one(checkpoint_interval_max=600)
    story.advance(600 * SECOND)
    ask = ask_of(story)
    saves(story, checkpoint="own", hint=0)
    assert held(story).open_ask == ask


def test_what_it_says_meanwhile_changes_nothing() -> None:
    story = one(checkpoint_interval_max=600)
    story.advance(600 * SECOND)
    before = held(story)
    says(story, "answered")
    says(story, "progress", text="10% saved")
    says(story, "deferral", seconds=60 * SECOND, text="later")
    says(story, "save_failed", text="disk full")
    assert held(story) == before


def asked_borrower() -> Story:
    lines = "blue runs b of 4 checkpoint auto free -> running b\nblue runs x of 4 -> running x\n"
    return begin(lines + "b x starts", checkpoint_interval_max=600)


def test_a_stop_policy_takes_the_place_of_an_ask() -> None:
    story = asked_borrower()
    story.advance(600 * SECOND)
    number = ask_of(story, "b").number
    story.line(0, "x done -> ")
    story.line(0, "red runs r0 of 4 fixed -> running r0")
    story.line(0, "edit red reserved 8")
    story.line(0, "red runs r of 4 -> saving b, earmark r")
    stop_policy = held(story, "b").stop_progress
    assert stop_policy is not None and stop_policy.hint > number and held(story, "b").asked is None
    assert (order(story, "b").do, order(story, "b").hint) == ("hint", stop_policy.hint)
    saves(story, "b", "c1", hint=number)  # what was being written when it came
    assert held(story, "b").state is AllocationState.CHECKPOINTING
    saved = story.state.requests["b"].saved
    assert saved is not None and saved.id == "c1", "less is lost"
    saves(story, "b", "c2", hint=stop_policy.hint)
    assert held(story, "b").state is AllocationState.STOPPING
    assert [each.data["took"] for each in events(story, "checkpoint_saved", "b")] == [0, 0]


def test_whoever_goes_on_after_all_may_be_asked_again() -> None:
    story = asked_borrower()
    story.advance(600 * SECOND)
    story.line(0, "x done -> ")
    story.line(0, "edit red reserved 8")
    story.line(0, "red runs r1 of 4 fixed -> running r1")
    story.line(0, "red runs r of 4 -> saving b, earmark r")
    story.line(0, "cancel r -> cancelled r, running b")
    assert held(story, "b").open_ask is None and order(story, "b").hint == 0
    story.advance(60 * SECOND)
    assert len(asked_at(story, "b")) == 2


def test_a_gang_has_answered_when_every_task_has() -> None:
    story = begin(
        "red runs g of 2 tasks 2 checkpoint auto free -> running g\ng starts",
        checkpoint_interval_max=600,
    )
    story.advance(600 * SECOND)
    ask, allocation = ask_of(story, "g"), held(story, "g")
    for task, is_open in ((0, True), (1, False)):
        report = reports.Report(
            allocation.id, 1, task, "saved", checkpoint="c1", size=1, hint=ask.number
        )
        node = allocation.members[task].node_id
        assert reports.take(story.state, node, report, story.now)
        story.settle()
        assert (held(story, "g").open_ask is not None) is is_open


def test_a_client_that_holds_its_work_is_asked_too() -> None:
    story = counted(checkpoint_interval_max=600)
    story.advance(600 * SECOND)
    said = commands.Said("saved", checkpoint="c1", hint=ask_of(story).number)
    commands.said(story.state, "a", said, story.now, attempt=1)
    assert held(story).open_ask is None and held(story).state is AllocationState.RUNNING


def test_a_holder_is_looked_at_only_when_it_is_time() -> None:
    story = counted()
    plan = decide(story.state, 200 * SECOND)
    assert not plan.judged and plan.next_timer is not None
    looks = []
    story.now = 295 * SECOND
    while story.now < 500 * SECOND:
        plan = decide(story.state, story.now)
        if plan.judged:
            assert plan.judged == {("gpus", brokering.NOT_YET): 1}
            looks.append(story.now // SECOND)
        story.now += SECOND
    assert looks == [300, 330, 360, 390, 420, 450, 480]


def test_a_look_does_not_make_the_pass_look_at_the_whole_pool() -> None:
    story = counted(min_run=310)
    due = story.state.begin_pass(300 * SECOND)
    assert due == [("allocation", "a.1")] and not story.state.dirty
    story.state.reschedule(due)
    story.state.begin_pass(310 * SECOND)
    assert list(story.state.dirty) == ["gpus"], "what may be taken from now on does"


def test_the_answers_are_counted() -> None:
    story = counted(checkpoint_interval_min=60, checkpoint_interval_max=90)
    plans = []
    for now in (60, 90):
        story.now = now * SECOND
        plans.append(decide(story.state, story.now))
    assert [dict(each.judged) for each in plans] == [
        {("gpus", brokering.NOT_YET): 1},
        {("gpus", brokering.OVERDUE): 1},
    ]
    story.line(0, "red submits w1..w9 of 4 fixed -> running w1, waiting w2..w9")
    number = ask_of(story).number
    said = commands.Said("saved", checkpoint="c", hint=number)
    commands.said(story.state, "a", said, story.now, attempt=1)
    assert decide(story.state, 150 * SECOND).judged == {("gpus", brokering.WORTH_IT): 1}


def test_trying_something_out_asks_nobody() -> None:
    story = counted(checkpoint_interval_max=600)
    with what_if(story.state):
        decide(story.state, 600 * SECOND)
        assert held(story).open_ask is not None
    assert held(story).asked is None and story.state.timers.next() == 300 * SECOND
    story.advance(600 * SECOND)
    assert asked_at(story) == [600 * SECOND] and not audit.check(story.state)


def test_a_server_that_is_restarted_while_it_asked_does_not_ask_again() -> None:
    """All that counts is in the rows: the same ask, with the same time."""
    story = one(checkpoint_interval_max=600)
    story.advance(600 * SECOND)
    before = story.state
    again = Story(now=story.now)
    tables = (before.pools, before.nodes, before.policies, before.requests, before.allocations)
    entities = [each for table in tables for each in table.values()]
    again.state.load(entities, index=before.index, now=story.now)
    again.advance(9 * MINUTE)
    assert held(again) == held(story) and not asked_at(again)
    again.advance(1 * MINUTE)
    assert len(events(again, "checkpoint_unanswered")) == 1


@pytest.mark.parametrize("stop_progress", [False, True])
@pytest.mark.parametrize("asked", [None, Ask(7, 1, 2), Ask(7, 1, 2, over=True, took=5)])
def test_an_ask_is_written_down_beside_a_stop_policy(
    asked: Ask | None, stop_progress: bool
) -> None:
    stop_policy = StopProgress(9, 3, 4) if stop_progress else None
    given = replace(
        held(one()), stop_progress=stop_policy, asked=asked, announced=stop_policy is not None
    )
    assert replace(held(one()), **hints_from(hints_text(given), 1)) == given


def test_why_says_when_it_was_saved_and_when_it_is_looked_at() -> None:
    story = one()
    story.advance(100 * SECOND)
    saves(story, checkpoint="own", hint=0)
    story.advance(50 * SECOND)
    told = why(story.state, "a", story.now)["checkpoint"]
    assert told == {
        "last": "own",
        "unsaved_for": 50,
        "asked": None,
        "next_look_in": 250,
        "cost": 41.6,
        "value": 0.2,
    }
    story.line(0, "edit pool gpus checkpoint_interval_max 300s")
    story.advance(255 * SECOND)
    told = why(story.state, "a", story.now)["checkpoint"]
    assert (told["asked"], told["next_look_in"]) == ({"seconds_left": 595}, None)
    edits.update_pool(story.state, "gpus", settings={"broker": False})
    story.advance(10 * MINUTE)
    assert held(story).open_ask is None, "what was asked is over also when nobody asks any more"
    assert "checkpoint" not in why(story.state, "a", story.now)


def test_intervals_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(Invalid, match=r"checkpoint_interval_max.*below"):
        Settings().override({"checkpoint_interval_min": 10, "checkpoint_interval_max": 9})
    with pytest.raises(Invalid, match="true or false"):
        Settings().override({"broker": 1})
    assert not Settings().broker
