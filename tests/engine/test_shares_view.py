"""Who has what of a pool, and what is due to whom: shown as it is, without changing anything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cede.engine.audit import audit
from cede.engine.explain.shares import Row, shares_of, show, view_of
from cede.engine.explain.why import why
from cede.engine.fair.groups import Group
from cede.engine.fair.status import SATISFIED
from cede.engine.shares.publish import refresh
from cede.model.stopping import Saved
from cede.snapshot.reader import load
from cede.snapshot.writer import dump
from tests.scenario import Story, tell
from tests.worlds.draw import KINDS
from tests.worlds.walk import Walk, walk

TEAM = {"pool": "gpus", "component_type": "team"}


def rows_of(story: Story, pool: str = "gpus") -> dict[str, Row]:
    found = shares_of(story.state, story.state.ledgers[pool], story.now)
    return {each.name: each for each in found}


def near(shares: Any, **wanted: float) -> None:
    assert dict(shares) == pytest.approx(wanted, abs=1e-6)


CONTESTED = """
    pool gpus 8 preset fair_share fair_share_update_period 0
      team red
      team blue weight 3
    red submits r1..r4 of 2      -> running r1 r2 r3 r4
    blue submits b1..b2 of 4     -> waiting b1 b2 (patience)
"""


def test_a_counted_pool_shows_what_is_used_wanted_and_due() -> None:
    rows = rows_of(tell(CONTESTED))
    assert list(rows) == ["blue", "b1", "b2", "red", "r1", "r2", "r3", "r4"]
    red, blue = rows["red"], rows["blue"]
    near(red.fair_share, gpu=0.25)
    near(red.usage_share, gpu=1.0)
    near(blue.fair_share, gpu=0.75)
    near(blue.demand_share, gpu=1.0)
    near(rows["b1"].fair_share, gpu=0.375)
    assert (red.usage, red.demand, blue.usage, blue.demand) == (
        *({"gpu": 8}, {"gpu": 8}),
        *({"gpu": 0}, {"gpu": 8}),
    )
    assert red.satisfaction == pytest.approx(4) and blue.satisfaction == 0
    assert (blue.weight, blue.mode, blue.depth, blue.parent) == (3, "fair_share", 0, None)
    assert (rows["b1"].depth, rows["b1"].parent, rows["b1"].kind) == (1, "blue", "request")
    assert (red.status, blue.status) == ("normal", "below_fair_share")


def test_who_is_below_its_share_starves_after_a_while() -> None:
    rows = rows_of(tell(CONTESTED + "after 20s"))
    assert (rows["blue"].starvation, rows["blue"].below_since) == ("non_starving", 0)
    assert rows["blue"].starving_since is None
    assert rows["red"].below_since is None
    # What protects the young keeps it from taking, so that it goes on starving.
    text = CONTESTED.replace("period 0", "period 0 min_run 900s reclaim_min_run 900s")
    rows = rows_of(tell(text + "after 40s"))
    assert (rows["blue"].starvation, rows["blue"].starving_since) == ("starving", 30_000)
    assert rows["b1"].starvation == "starving"


def test_a_tree_shows_parents_first_and_sums() -> None:
    rows = rows_of(
        tell(
            """
            pool gpus 8 preset fair_share fair_share_update_period 0
              team lab reserved 4
              team vision under lab reserved 2 weight 2
              team speech under lab
              team shop
            vision submits v1 of 2 -> running v1
            speech submits s1 of 1 -> running s1
            shop submits x1 of 5   -> running x1
            speech submits s2 of 3 -> waiting s2 (patience)
            """
        )
    )
    assert list(rows) == ["lab", "speech", "s1", "s2", "vision", "v1", "shop", "x1"]
    assert [rows[each].depth for each in ("lab", "vision", "v1")] == [0, 1, 2]
    assert (rows["vision"].parent, rows["vision"].guarantee) == ("lab", {"gpu": 2})
    assert (rows["lab"].usage, rows["lab"].demand) == ({"gpu": 3}, {"gpu": 6})
    held = rows["lab"].groups[Group.NON_PREEMPTIBLE]
    assert set(held) == {"v1.1", "s1.1"}


TASK_GROUP = {
    "now": 100,
    "pools": [{"name": "gpus", "capacity": {"gpu": 8}, "preset": "fair_share"}],
    "policies": [{**TEAM, "component": "red"}, {**TEAM, "component": "blue"}],
    "running": [
        {
            **TEAM,
            "id": f"r{n}",
            "component": "red",
            "resources": {"gpu": 1},
            "allocated_at": n,
            "part_of": "r1",
        }
        for n in range(1, 9)
    ],
    "requests": [
        {"id": "b1", "component": "blue", "component_type": "team", "resources": {"gpu": 8}}
    ],
}


def task_group(**settings: Any) -> dict[str, Row]:
    """Red's eight tasks are one request, and half of them is what it is due."""
    pool = {**TASK_GROUP["pools"][0], "settings": settings}  # type: ignore[index]
    return rows_in({**TASK_GROUP, "pools": [pool]})


def rows_in(snapshot: dict[str, Any]) -> dict[str, Row]:
    state = load(snapshot)
    refresh(state, [])
    return {each.name: each for each in shares_of(state, state.ledgers["gpus"], state.now)}


def test_independent_tasks_are_one_element_with_three_groups() -> None:
    rows = task_group()
    assert list(rows) == ["blue", "b1", "red", "r1"]
    near(rows["r1"].fair_share, gpu=0.5)
    groups = rows["r1"].groups
    assert groups[Group.NON_PREEMPTIBLE] == ("r1.1", "r2.1")
    assert groups[Group.AGGRESSIVELY_PREEMPTIBLE] == ("r3.1", "r4.1")
    assert groups[Group.PREEMPTIBLE] == ("r5.1", "r6.1", "r7.1", "r8.1")
    assert rows["red"].groups == groups


def test_thresholds_of_the_pool_move_the_groups() -> None:
    groups = task_group(
        aggressive_preemption_satisfaction_threshold=0.25, preemption_satisfaction_threshold=0.5
    )["red"].groups
    sizes = [len(groups[each]) for each in Group]
    assert sizes == [1, 1, 6]


def test_saved_progress_and_leaving_change_the_order() -> None:
    running = [dict(each) for each in TASK_GROUP["running"]]  # type: ignore[attr-defined]
    running[1] |= {"state": "preempting", "for": "b1"}
    state = load({**TASK_GROUP, "running": running})
    state.put(replace(state.requests["r1"], saved=Saved("c1", 50_000, index=99)))
    state.put(replace(state.allocations["r1.1"], started_at=2_000))
    refresh(state, [])
    rows = {each.name: each for each in shares_of(state, state.ledgers["gpus"], state.now)}
    groups = rows["red"].groups
    assert groups[Group.PREEMPTIBLE][-1] == "r1.1"
    assert "r2.1" not in {each for ids in groups.values() for each in ids}
    assert rows["red"].usage == {"gpu": 7}


def test_a_quota_pool_is_shown_as_it_would_be() -> None:
    story = tell(
        """
        pool gpus 8
          team red  reserved 4
          team blue reserved 2
        red submits r1..r4 of 2  -> running r1 r2 r3 r4
        blue submits b1 of 4     -> waiting b1 (partial_headroom)
        """
    )
    view = view_of(story.state, "gpus", story.now)
    assert (view.share, view.in_force) == ("reserved", False)
    rows = {each.name: each for each in view.rows}
    # Guarantees first, and the two that are left by weight.
    near(rows["red"].fair_share, gpu=0.625)
    near(rows["blue"].fair_share, gpu=0.375)
    assert rows["b1"].status == "below_fair_share"
    assert story.state.solvers == {} and story.state.pools["gpus"].settings.share == "reserved"


def test_who_wants_nothing_is_satisfied() -> None:
    story = tell("pool gpus 8 preset fair_share\n  team red")
    row = rows_of(story)["red"]
    assert (row.satisfaction, row.status, row.dominant) == (SATISFIED, "normal", "gpu")


def test_a_pool_without_policies_or_capacity_is_empty() -> None:
    assert rows_of(tell("pool gpus 8 preset fair_share")) == {}
    state = load({"pools": [{"name": "farm", "nodes": {"rack": "7"}, "preset": "fair_share"}]})
    assert shares_of(state, state.ledgers["farm"], 0) == []


@pytest.mark.parametrize("preset", ["fair_share", "quota"])
def test_looking_changes_nothing(preset: str) -> None:
    text = CONTESTED.replace("preset fair_share", f"preset {preset}")
    story = tell(text.replace("(patience)", ""))
    state = story.state
    before = (dump(state, story.now), state.timers.next(), dict(state.starving), dict(state.dirty))
    published = state.ledgers["gpus"].published
    for later in (0, 10_000, 100_000):
        shares_of(state, state.ledgers["gpus"], story.now + later)
        assert state.now == story.now
        assert (
            *(dump(state, story.now), state.timers.next()),
            *(dict(state.starving), dict(state.dirty)),
        ) == before
        assert state.ledgers["gpus"].published is published
        assert audit.check(state) == []


def test_what_was_only_tried_out_is_not_shown() -> None:
    """`why` lets holders end on the same solver, and takes it back."""
    story = tell(CONTESTED)
    before = show([view_of(story.state, "gpus", story.now)], story.now)
    why(story.state, "b1", story.now)
    assert show([view_of(story.state, "gpus", story.now)], story.now) == before
    assert before["pools"][0]["in_force"]


def test_who_came_after_the_last_computation_is_due_nothing_yet() -> None:
    story = tell(CONTESTED.replace("period 0", "period 60s").replace("(patience)", ""))
    row = rows_of(story)["b2"]
    assert (row.fair_share, row.demand) == ({"gpu": 0}, {"gpu": 4})
    assert (row.satisfaction, row.status, row.starvation) == (0, "normal", "non_starving")
    story.advance(60_000)
    assert rows_of(story)["b2"].status == "below_fair_share"


def test_settings_of_a_policy_are_shown_where_they_hold() -> None:
    state = load(TASK_GROUP)
    red = next(each for each in state.policies.values() if each.subject.name == "red")
    state.put(replace(red, settings={"fair_share_starvation_timeout": 60_000}))
    refresh(state, [])
    rows = {each.name: each for each in shares_of(state, state.ledgers["gpus"], state.now)}
    found = {name: row.settings.fair_share_starvation_timeout for name, row in rows.items()}
    assert found == {"red": 60_000, "r1": 60_000, "blue": 30_000, "b1": 30_000}


def test_the_data_has_seconds_names_and_settings() -> None:
    story = tell(CONTESTED + "after 12s")
    shown = show([view_of(story.state, "gpus", story.now)], story.now, {"r1.1": "first"})
    assert (shown["now"], shown["pools"][0]["name"]) == (12, "gpus")
    elements = {each["name"]: each for each in shown["elements"]}
    assert elements["r1"]["groups"]["non_preemptible"] == ["first"]
    assert elements["r2"]["groups"]["non_preemptible"] == ["r2.1"]
    assert elements["blue"]["below_since"] == 0
    assert elements["blue"]["settings"]["fair_share_starvation_timeout"] == 30
    assert (elements["blue"]["component"], elements["blue"]["component_type"]) == ("blue", "team")


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=5), st.integers(1, 40))
def test_requests_of_a_policy_share_it_by_their_weights(weights: list[float], most: int) -> None:
    """Whoever does not get all it wants has the same for its weight, and nobody has more."""
    wants = [
        {"id": f"r{at}", "policy": "red", "resources": {"gpu": most}, "weight": weight}
        for at, weight in enumerate(weights)
    ]
    state = load(
        {
            "pools": [{"name": "gpus", "capacity": {"gpu": 40}, "preset": "fair_share"}],
            "policies": [{"name": "red"}],
            "requests": wants,
        }
    )
    refresh(state, [("pool", "gpus")])
    rows = {each.name: each for each in shares_of(state, state.ledgers["gpus"], state.now)}
    due = [rows[f"r{at}"].fair_share["gpu"] * 40 for at in range(len(weights))]
    assert sum(due) == pytest.approx(min(40, most * len(weights)))
    paid = [amount / weight for amount, weight in zip(due, weights, strict=True)]
    short = [each for each, amount in zip(paid, due, strict=True) if amount < most - 1e-6]
    assert short == pytest.approx([max(paid)] * len(short))
    assert [rows[f"r{at}"].weight for at in range(len(weights))] == weights


@given(st.floats(1, 10), st.integers(1, 4))
def test_a_relaxed_guarantee_gives_at_most_so_many_flows(limit: float, flow: int) -> None:
    """Red has saved up for an hour, so that only the multiplier bounds what it has above its part
    by weight, and then only the pool.
    """
    state = load(
        {
            "pools": [{"name": "gpus", "capacity": {"gpu": 40}, "preset": "fair_share"}],
            "policies": [
                {
                    "name": "red",
                    "integral": {"guarantee_type": "relaxed"}
                    | {"resource_flow": {"gpu": flow}, "relaxed_share_multiplier_limit": limit},
                },
                {"name": "blue"},
            ],
            "requests": [
                {"id": each, "policy": each, "resources": {"gpu": 40}} for each in ("red", "blue")
            ],
        }
    )
    for now in (0, 3_600_000):
        state.now, state.dirty = now, {"gpus": None}
        refresh(state, [])
    part = state.solvers["gpus"].solver.share("gpus/orchestrator:red").integral[0]
    assert part == pytest.approx(min(1, limit * flow / 40))


def test_the_parts_of_a_share_add_up_to_it() -> None:
    story = tell(
        """
        pool gpus 8 preset fair_share fair_share_update_period 0
          team red reserved 2
          team blue
        red submits r1 of 6  -> running r1
        blue submits b1 of 6 -> waiting b1
        """
    )
    rows = shares_of(story.state, story.state.ledgers["gpus"], story.now)
    red = next(each for each in rows if each.name == "red")
    assert (red.strong_share["gpu"], red.integral_share["gpu"]) == (0.25, 0.0)
    for each in rows:
        parts = (each.strong_share, each.integral_share, each.weighed_share)
        assert sum(part["gpu"] for part in parts) == pytest.approx(each.fair_share["gpu"])


@settings(max_examples=60)
@given(
    st.builds(walk, st.sampled_from(sorted(KINDS)), st.integers(0, 999)),
    st.lists(st.integers(0, 99), max_size=12),
)
def test_policies_alone_are_shown_as_beside_their_requests(walk: Walk, steps: list[int]) -> None:
    walk.go(steps)
    state = walk.state
    for pool_id in list(state.pools):
        both = view_of(state, pool_id, state.now).rows
        alone = view_of(state, pool_id, state.now, requests=False).rows
        expected = [replace(each, groups={}) for each in both if each.kind == "policy"]
        for mine, theirs in zip(alone, expected, strict=True):
            assert replace(mine, groups={}) == theirs
