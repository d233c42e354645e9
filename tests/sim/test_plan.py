"""What the engine would do with a snapshot: one pass, or on until nothing changes."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cede.model.errors import Invalid
from cede.sim.plan import run
from cede.snapshot.reader import SnapshotError
from cede.snapshot.writer import dump
from tests.scenario import tell

Snapshot = dict[str, Any]


def snapshot(**more: Any) -> Snapshot:
    """Red borrowed everything; blue is inside its reserve and waits."""
    given: Snapshot = {
        "now": 100,
        "pools": [{"name": "gpus", "capacity": {"gpu": 8}}],
        "policies": [
            _policy("red", priority=10, reserved={"gpu": 4}),
            _policy("blue", priority=10, reserved={"gpu": 4}),
        ],
        "running": [_running(f"r{n}", "red", n) for n in range(4)],
        "requests": [{"id": "b", "component": "blue", "resources": {"gpu": 4}}],
    }
    return {**given, **more}


def _policy(component: str, **more: Any) -> Snapshot:
    return {"pool": "gpus", "component": component, **more}


def _running(id_: str, component: str, at: float, gpu: int = 2, **more: Any) -> Snapshot:
    return {
        "id": id_, "pool": "gpus", "component": component, "resources": {"gpu": gpu},
        "allocated_at": at, **more,
    }  # fmt: skip


def decisions(plan: dict[str, Any], number: int = 0) -> list[tuple[str, str]]:
    return [
        (each["do"], each.get("request") or each["beneficiary"])
        for each in plan["passes"][number]["decisions"]
    ]


def test_one_pass_says_who_stops_for_whom_and_under_which_rule() -> None:
    plan = run(snapshot())
    assert plan["passes"][0]["decisions"][0] == {
        "do": "preempt",
        "beneficiary": "b",
        "victims": ["r3", "r2"],
        "pool": "gpus",
        "cost": 2,
        "reason": {"code": "reclaim", "pool": "gpus", "policy": "red", "beneficiary": "b"},
    }
    assert decisions(plan)[1] == ("wait", "b")
    assert plan["at_rest"] and not plan["loop"]


def test_until_rest_victims_stop_and_queue_again() -> None:
    plan = run(snapshot(), until_rest=True)
    assert plan["at_rest"] and not plan["loop"]
    assert ("grant", "b") in decisions(plan, 1)
    assert decisions(plan, len(plan["passes"]) - 1)[-2:] == [("wait", "r2"), ("wait", "r3")]


def test_victims_without_retries_do_not_come_back() -> None:
    running = [_running(f"r{n}", "red", n, retries=0) for n in range(4)]
    plan = run(snapshot(running=running), until_rest=True)
    assert {who for do, who in decisions(plan, 1)} == {"b"}


def test_a_delayed_retry_comes_back_within_the_horizon() -> None:
    """b takes r2 and r3; when b's walltime is over they start again, after their delay."""
    running = [_running(f"r{n}", "red", n, retries=1, retry_delay=30) for n in range(4)]
    requests = [{"id": "b", "component": "blue", "resources": {"gpu": 4}, "walltime": 60}]
    given = snapshot(running=running, requests=requests)
    here = run(given, until_rest=True)
    assert here["next_timer"] == 130
    later = run(given, horizon=60)  # which is until rest, too
    granted = [(each["now"], d["request"]) for each in later["passes"] for d in each["decisions"]
               if d["do"] == "grant"]  # fmt: skip
    assert granted == [(100, "b"), (160, "r2"), (160, "r3")]


def test_walltimes_end_work_within_the_horizon_and_not_beyond() -> None:
    running = [_running("r", "red", 0, gpu=8, walltime=150)]
    given = snapshot(policies=[_policy("red"), _policy("blue")], running=running)
    short = run(given, until_rest=True, horizon=49)
    assert short["next_timer"] == 150 and ("grant", "b") not in decisions(short)
    long = run(given, until_rest=True, horizon=50)
    assert [each["now"] for each in long["passes"]] == [100, 150]
    assert decisions(long, 1) == [("grant", "b")]
    started = [_running("r", "red", 0, gpu=8, walltime=150, started_at=20)]
    assert run({**given, "running": started}, until_rest=True)["next_timer"] == 170


def test_withholding_is_no_loop() -> None:
    given = snapshot(
        pools=[{"name": "gpus", "capacity": {"gpu": 8}, "settings": {"bypass_max": 0}}],
        policies=[_policy("red"), _policy("blue")],
        running=[_running("r", "red", 100, gpu=6, walltime=50)],
        requests=[
            {"id": "head", "component": "blue", "resources": {"gpu": 7}},
            {"id": "small", "component": "red", "resources": {"gpu": 2}},
        ],
    )
    plan = run(given, until_rest=True, horizon=50)
    assert plan["at_rest"] and not plan["loop"]
    waits = {each["request"]: each["reason"] for each in plan["passes"][0]["decisions"]}
    assert waits["small"]["code"] == "withheld"
    assert decisions(plan, 1)[0] == ("grant", "head")


def test_what_no_pool_can_grant_is_rejected() -> None:
    requests = [{"id": "x", "component": "blue", "settings": {"gpu_count": 9}}]
    first = run(snapshot(requests=requests))["passes"][0]["decisions"][0]
    assert (first["do"], first["reason"]["code"]) == ("reject", "capacity_exceeded")


def test_settings_add_the_step_slot_and_resources_do_not() -> None:
    pools = [{"name": "gpus", "capacity": {"gpu": 8, "step_run": 1}}]
    for asked, fits in (({"resources": {"gpu": 1}}, True), ({"settings": {"gpu_count": 1}}, False)):
        requests = [{"id": name, "component": "blue", **asked} for name in ("a", "b")]
        plan = run(snapshot(pools=pools, running=[], requests=requests))
        assert (decisions(plan)[-1] == ("grant", "b")) == fits


def test_planning_does_not_change_its_snapshot() -> None:
    given = snapshot()
    before = copy.deepcopy(given)
    run(given, until_rest=True, horizon=1000)
    assert given == before


def test_the_plan_of_a_servers_snapshot_is_what_the_server_does() -> None:
    story = tell("""
        pool gpus 8
        team red reserved 4 limit 8 priority 10
        team blue reserved 4 limit 8 priority 10
        red submits r1..r4 of 2 -> running r1 r2 r3 r4
        blue submits b of 2     -> stopping r4, earmark b
    """)
    plan = run(dump(story.state, story.now), until_rest=True)
    assert decisions(plan, 1) == [("grant", "b")]


@pytest.mark.parametrize("precedence", ["rights_first", "rank_first"])
def test_reclaim_and_priority_together_do_not_go_round(precedence: str) -> None:
    """Read literally, the two rules of document 000 evict each other for ever in this pool."""
    given = snapshot(
        pools=[{"name": "gpus", "capacity": {"gpu": 4}, "settings": {"precedence": precedence}}],
        policies=[
            _policy("low", priority=1, reserved={"gpu": 2}),
            _policy("high", priority=9, reserved={"gpu": 0}),
        ],
        running=[_running("h1", "high", 1)],
        requests=[
            {"id": f"{team}{n}", "component": team, "resources": {"gpu": 2}}
            for n in (2, 3)
            for team in ("low", "high")
        ],
    )
    plan = run(given, until_rest=True)
    assert plan["at_rest"] and not plan["loop"]


@pytest.mark.parametrize("horizon", [-1, "6o", True, float("nan"), 10**12])
def test_a_bad_horizon_is_refused(horizon: Any) -> None:
    with pytest.raises(Invalid) as caught:
        run(snapshot(), until_rest=True, horizon=horizon)
    assert caught.value.field == "horizon"


def test_an_empty_snapshot_is_at_rest() -> None:
    assert run({})["at_rest"] and run({}, until_rest=True)["at_rest"]


def test_nothing_else_is_raised() -> None:
    for given in (None, [], "x", 5):
        with pytest.raises(SnapshotError):
            run(given)


def test_victims_are_called_by_the_name_of_their_holding() -> None:
    """A holding may have a name of its own beside its request's."""
    snapshot = {
        "now": 0,
        "pools": [{"name": "p", "capacity": {"gpu": 2}}],
        "policies": [
            {"pool": "p", "component": "red"},
            {"pool": "p", "component": "blue", "reserved": {"gpu": 2}},
        ],
        "running": [
            {
                "id": "held",
                "request": "asked",
                "component": "red",
                "pool": "p",
                "resources": {"gpu": 2},
            }
        ],
        "requests": [{"id": "b", "component": "blue", "resources": {"gpu": 2}}],
    }
    first = run(snapshot)["passes"][0]["decisions"][0]
    assert (first["do"], first["victims"]) == ("preempt", ["held"])


def test_work_that_would_be_asked_to_save_itself_comes_to_rest_too() -> None:
    """Over a month, in which a server would look at it eighty thousand times."""
    running = [_running("r0", "red", 0, checkpoint="auto", started_at=1)]
    settings = {"broker": True, "checkpoint_interval_max": 600}
    pools = [{"name": "gpus", "capacity": {"gpu": 8}, "settings": settings}]
    found = run(snapshot(pools=pools, running=running), until_rest=True, horizon=30 * 24 * 3600)
    assert found["at_rest"] and len(found["passes"]) == 1 and found["next_timer"] is None


def test_where_there_is_one_pool_nobody_need_name_it() -> None:
    red = {"component": "red"}
    found = run(
        {
            "now": 0,
            "pools": [{"name": "gpus", "capacity": {"gpu": 4}}],
            "policies": [red],
            "running": [{"id": "holder", **red, "resources": {"gpu": 3}}],
            "requests": [{"id": "waiter", **red, "resources": {"gpu": 1}}],
        }
    )
    (decision,) = found["passes"][0]["decisions"]
    assert (decision["do"], decision["request"], decision["pool"]) == ("grant", "waiter", "gpus")
