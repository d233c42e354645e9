"""Why a waiter of a pool that shares fairly takes nothing: the stage, the thresholds, the usage."""

from __future__ import annotations

from typing import Any

import pytest

from cede.engine.explain.why import why
from cede.engine.fair.groups import Group
from cede.engine.shares.prefix import in_policy, in_request
from cede.engine.shares.publish import refresh
from cede.engine.state.state import State
from cede.snapshot.reader import load
from tests.scenario import tell

POOL = """
    pool gpus 8 preset fair_share fair_share_update_period 0
      team red
      team blue
"""
FULL = f"""{POOL}
    red submits r1..r4 of 2 -> running r1 r2 r3 r4
    blue submits b1 of 4    -> waiting b1 (patience)
"""
# What is held up to twice the share is between the thresholds.
WIDE = FULL.replace("period 0", "period 0 preemption_satisfaction_threshold 2")


def told(text: str, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The reason, and the story in its pool."""
    story = tell(text)
    answer = why(story.state, name, story.now)
    return answer["reason"], answer["pools"][0]


def test_who_is_below_its_share_is_told_when_it_starves() -> None:
    reason, pool = told(FULL + "after 12s", "b1")
    assert (reason["code"], reason["stage"], reason["below"]) == ("patience", "regular", "blue")
    assert (reason["since"], reason["seconds"]) == (12, 30)
    assert (
        "blue has been below its fair share for 12 seconds, and starves after 30"
        in (reason["text"])
    )
    fair = pool["fairness"]
    assert (fair["stage"], fair["used"], fair["due"]) == ("regular", {"gpu": 0}, {"gpu": 4})
    assert (fair["tolerance"], fair["threshold"], fair["aggressive_threshold"]) == (0.8, 1, 0.5)
    assert [(each["name"], each["kind"], each["for"]) for each in fair["below"]] == [
        ("blue", "policy", 12),
        ("b1", "request", 12),
    ]
    assert fair["below"][0]["aggressively_after"] is None


def test_its_weight_and_its_own_part_are_told() -> None:
    _, pool = told(
        f"""{POOL}
        red submits r1..r4 of 2       -> running r1 r2 r3 r4
        blue submits b1 of 4          -> waiting b1
        blue submits b2 of 4 weight 3 -> waiting b2
        """,
        "b2",
    )
    fair = pool["fairness"]
    assert (fair["due"], fair["weight"], fair["own_due"]) == ({"gpu": 4}, 3, {"gpu": 3})


def test_a_request_that_is_below_its_part_has_a_clock_of_its_own() -> None:
    reason, pool = told(
        POOL
        + """
        red submits r1 of 4  -> running r1
        blue submits b1 of 4 -> running b1
        blue submits b2 of 1 -> waiting b2
        """,
        "b2",
    )
    assert (reason["code"], reason["below"]) == ("patience", "b2")
    assert [each["kind"] for each in pool["fairness"]["below"]] == ["request"]


TEAM = {"pool": "gpus", "component_type": "team"}


def test_who_is_not_below_its_share_takes_from_nobody() -> None:
    """Within the tolerance nobody starves: three tasks of one are enough for a share of 3.5."""
    blue = {**TEAM, "component": "blue", "resources": {"gpu": 1}, "part_of": "b1"}
    state = load(
        {
            "pools": [{"name": "gpus", "capacity": {"gpu": 7}, "preset": "fair_share"}],
            "policies": [{**TEAM, "component": "red"}, {**TEAM, "component": "blue"}],
            "running": [
                {**TEAM, "id": "r1", "component": "red", "resources": {"gpu": 4}},
                *({**blue, "id": f"b{n}"} for n in (1, 2, 3)),
            ],
            "requests": [{**blue, "id": "b4"}],
        }
    )
    refresh(state, [])
    answer = why(state, "b4", 0)
    reason = answer["reason"]
    assert (reason["code"], reason["stage"]) == ("at_share", "regular")
    assert (reason["used"], reason["share"]) == (3, 3.5)
    assert "is not below its fair share, with 3 of 3.5 gpu" in reason["text"]
    assert answer["pools"][0]["fairness"]["below"] == []


def test_where_classes_rank_who_would_be_beyond_its_own_share_is_told_how_much_fits() -> None:
    reason, _ = told(
        """
        pool gpus 7 preset fair_share fair_share_update_period 0 rank class
          team red
          team blue
        red submits r1..r7 of 1 -> running r1 r2 r3 r4 r5 r6 r7
        blue submits b1 of 4    -> waiting b1 (patience)
        after 31s
        """,
        "b1",
    )
    assert (reason["code"], reason["stage"]) == ("beyond_share", "preemptive")
    assert (reason["would"], reason["share"]) == (4, 3.5)
    assert reason["fix"].startswith("ask for at most 3 gpu")


def test_what_is_between_the_thresholds_waits_for_the_aggressive_stage() -> None:
    text = WIDE.replace("b1 of 4    -> waiting b1", "b1..b2 of 2 -> waiting b1 b2")
    reason, pool = told(text + "after 31s", "b1")
    assert (reason["code"], reason["stage"]) == ("between_thresholds", "preemptive")
    assert reason["group"] == "aggressively_preemptible"
    assert (reason["before"], reason["through"], reason["share"]) == (6, 8, 8)
    assert (reason["aggressive"], reason["normal"]) == (0.5, 2)
    assert "enable_aggressive_starvation" in reason["fix"]
    groups = {each["request"]: each["group"] for each in pool["holders"]}
    assert groups == {
        "r1": "non_preemptible",
        **dict.fromkeys(("r2", "r3", "r4"), "aggressively_preemptible"),
    }


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ("enable_aggressive_starvation yes", "after 120 seconds below its share"),
        ("allow_aggressive_preemption no", "allow_aggressive_preemption"),
    ],
)
def test_what_would_open_the_aggressive_stage_is_named(settings: str, remedy: str) -> None:
    text = WIDE.replace("b1 of 4    -> waiting b1", "b1..b2 of 2 -> waiting b1 b2")
    reason, _ = told(text.replace("period 0", f"period 0 {settings}") + "after 31s", "b1")
    assert reason["code"] == "between_thresholds"
    assert remedy in reason["fix"]


def test_who_starves_aggressively_takes_between_the_thresholds() -> None:
    text = WIDE.replace("b1 of 4    -> waiting b1", "b1..b2 of 2 -> waiting b1 b2")
    text = text.replace("period 0", "period 0 enable_aggressive_starvation yes")
    tell(text + "after 121s -> stopping r3 r4, earmark b1 b2")


def test_holders_inside_their_share_are_named_by_the_usage_before_them() -> None:
    whole = FULL.replace("r1..r4 of 2 -> running r1 r2 r3 r4", "r1 of 8 -> running r1")
    reason, _ = told(whole + "after 31s", "b1")
    assert (reason["code"], reason["group"]) == ("within_share", "non_preemptible")
    assert "0 gpu are before it and 8 with it, of 2" in reason["text"]
    _, pool = told(WIDE + "after 31s", "b1")
    last = next(each for each in pool["holders"] if each["request"] == "r4")
    assert (last["before"], last["through"], last["share"]) == ({"gpu": 6}, {"gpu": 8}, {"gpu": 8})
    assert (last["judged_in"], last["covered_above"]) == ("policy", 0)


def test_who_would_leave_others_where_it_stands_is_told_so() -> None:
    reason, _ = told(
        """
        pool gpus 8 preset fair_share fair_share_update_period 0 enable_aggressive_starvation yes
          team red
          team blue
        red submits r1 of 2  -> running r1
        red submits r2 of 3  -> running r2
        blue submits b0 of 3 -> running b0
        blue submits b1 of 3 -> waiting b1 (patience)
        after 121s
        """,
        "b1",
    )
    assert (reason["code"], reason["stage"]) == ("not_fairer", "aggressively_preemptive")
    assert (reason["holder"], reason["left"], reason["level"]) == ("red", 0.5, 0.75)


def test_what_a_threshold_protects_is_named() -> None:
    """Nine are more than red has, so all of it is protected."""
    state = load(
        {
            "pools": [
                {
                    "name": "gpus",
                    "capacity": {"gpu": 4},
                    "preset": "fair_share",
                    "settings": {"non_preemptible_resource_usage_threshold": {"gpu": 9}},
                    "below_since": {"policy blue": 0},
                }
            ],
            "policies": [{**TEAM, "component": "red"}, {**TEAM, "component": "blue"}],
            "running": [
                {**TEAM, "id": f"r{n}", "component": "red", "resources": {"gpu": 1}}
                for n in range(4)
            ],
            "requests": [{**TEAM, "id": "b1", "component": "blue", "resources": {"gpu": 1}}],
            "now": 100,
        }
    )
    refresh(state, [])
    reason = why(state, "b1", state.now)["reason"]
    assert reason["code"] == "usage_threshold"
    assert "the 4 gpu that red holds are protected" in reason["text"]
    assert reason["text"].endswith("non_preemptible_resource_usage_threshold (9 gpu)")


def test_inside_a_policy_the_groups_of_its_requests_decide() -> None:
    reason, pool = told(
        """
        pool gpus 8 preset fair_share fair_share_update_period 0
          team red
        red submits r1..r2 of 4 -> running r1 r2
        red submits r3 of 4     -> waiting r3 (patience)
        after 31s
        """,
        "r3",
    )
    assert (reason["code"], reason["group"]) == ("within_share", "non_preemptible")
    assert (reason["before"], reason["through"], reason["share"]) == (0, 4, 1.33)
    assert {each["judged_in"] for each in pool["holders"]} == {"request"}


def test_other_pools_say_nothing_of_it() -> None:
    _, pool = told(
        """
        pool gpus 8
          team red
          team blue
        red submits r1 of 8  -> running r1
        blue submits b1 of 4 -> waiting b1
        """,
        "b1",
    )
    assert "fairness" not in pool and "group" not in pool["holders"][0]


def test_who_came_after_the_last_look_is_not_told_that_it_has_enough() -> None:
    story = tell(FULL.replace("period 0", "period 5s").replace("(patience)", "") + "after 2s")
    story.state.now = story.now
    story.line(9, "blue submits b2 of 1 -> waiting b2 (patience)")


# What is told is what was decided -------------------------------------------------------------


def tree() -> State:
    """Two levels, uneven sizes, task groups: whatever the cuts do, every case is there."""
    sizes = {"a": [3, 1, 2, 4, 1], "b": [2, 2, 2], "c": [5, 1, 3]}
    running = [
        {
            **TEAM,
            "id": f"{name}{n}",
            "component": name,
            "resources": {"gpu": size, "cpu": 7 - size},
            "part_of": f"{name}0" if n % 2 == 0 else None,
        }
        for name, each in sizes.items()
        for n, size in enumerate(each)
    ]
    return load(
        {
            "pools": [{"name": "gpus", "capacity": {"gpu": 26, "cpu": 60}, "preset": "fair_share"}],
            "policies": [
                {**TEAM, "component": "top", "reserved": {"gpu": 12}},
                {**TEAM, "component": "a", "parent": "top", "weight": 2},
                {**TEAM, "component": "b", "parent": "top", "reserved": {"gpu": 4}},
                {**TEAM, "component": "c"},
            ],
            "running": [{k: v for k, v in each.items() if v is not None} for each in running],
            "requests": [
                {
                    "id": f"w{name}",
                    "component": name,
                    "component_type": "team",
                    "resources": {"gpu": 9, "cpu": 3},
                }
                for name in sizes
            ],
        }
    )


def test_what_covers_a_holding_is_what_its_prefix_says() -> None:
    state = tree()
    refresh(state, [])
    ledger, seen = state.ledgers["gpus"], set()
    for holding in ledger.holdings.values():
        prefix = in_policy(ledger, holding)
        seen.add((prefix.group, prefix.above))
        behind = any(prefix.before.get(key, 0) >= most - 0.01 for key, most in prefix.bound.items())
        assert behind == (prefix.group is Group.PREEMPTIBLE), (holding.id, prefix)
        assert prefix.through["gpu"] == prefix.before.get("gpu", 0) + holding.amounts["gpu"]
    assert {above for _, above in seen} == {0, None}
    assert {group for group, _ in seen} == set(Group)


def test_the_group_in_a_request_is_what_its_prefix_says() -> None:
    state = tree()
    refresh(state, [])
    ledger = state.ledgers["gpus"]
    groups = []
    for task_group in ledger.task_groups:
        for holding in ledger.task_groups.of(task_group):
            prefix = in_request(ledger, holding)
            behind = any(
                prefix.before.get(key, 0) >= most - 0.01 for key, most in prefix.bound.items()
            )
            assert behind == (prefix.group is Group.PREEMPTIBLE), (holding.id, prefix)
            groups.append(prefix.group)
    assert set(groups) >= {Group.NON_PREEMPTIBLE, Group.PREEMPTIBLE}
