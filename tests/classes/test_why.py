"""Why a waiter stops nobody where price decides, and whom it weighed."""

from __future__ import annotations

from typing import Any

import pytest

from cede.engine.decide import decide
from cede.engine.explain.why import why
from cede.sim.plan import run
from cede.snapshot.reader import load


def snapshot(**changes: Any) -> dict[str, Any]:
    """One holder of eight GPUs, and a waiter of a higher class that wants them."""
    holder = {"id": "low", "policy": "red", "pool": "gpus", "nodes": 2, "gpus_per_node": 4}
    holder |= {"class": 3, "checkpoint": "auto", "started_at": 90_000, "walltime": 50_000}
    waiter = {"id": "high", "policy": "blue", "nodes": 2, "gpus_per_node": 4, "class": 7}
    return {
        "now": 100_000,
        "pools": [
            {"name": "gpus", "preset": "classes", "capacity": {"gpu": 8}}
            | {"settings": changes.get("settings", {})}
        ],
        "policies": [{"pool": "gpus", "name": "red"}, {"pool": "gpus", "name": "blue"}],
        "running": [holder | changes.get("holder", {})],
        "requests": [waiter | changes.get("waiter", {})],
    }


def decisions(given: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run(given)["passes"][0]["decisions"]
    return found


def test_a_taking_shows_whom_it_weighed() -> None:
    preempt = decisions(snapshot())[0]
    assert (preempt["do"], preempt["victims"]) == ("preempt", ["low"])
    (one,) = preempt["candidates"]
    assert (one["id"], one["chosen"], one["why_not"]) == ("low", True, None)
    assert one["price"] == sum(one["parts"].values())
    assert preempt["cost"] == one["price"] + 1


@pytest.mark.parametrize(
    ("changes", "code", "why_not"),
    [
        ({"waiter": {"walltime": 20}}, "too_dear", "too_dear"),
        ({"holder": {"walltime": 10_300}}, "no_capacity", "near_completion"),
        ({"holder": {"walltime": 10_310}}, "waits_first", "waits_first"),
        ({"holder": {"class": 8, "checkpoint": "none"}}, "no_capacity", "unsaved"),
        ({"holder": {"sensitive": True}}, "no_capacity", "sensitive"),
        ({"holder": {"class": 7}}, "protected", "standing"),
        ({"settings": {"class_bands": True}, "waiter": {"class": 5}, "holder": {"class": 4}},
         "protected", "class_band"),
    ],
)  # fmt: skip
def test_a_waiter_says_why_it_takes_nobody(
    changes: dict[str, Any], code: str, why_not: str | None
) -> None:
    wait = decisions(snapshot(**changes))[-1]
    assert (wait["do"], wait["reason"]["code"]) == ("wait", code)
    assert [each["why_not"] for each in wait["candidates"]] == [why_not]


def test_the_whole_story_has_the_candidates() -> None:
    state = load(snapshot(waiter={"walltime": 20}))
    decide(state, state.now)
    (pool,) = why(state, "high", state.now)["pools"]
    assert [(each["id"], each["why_not"]) for each in pool["candidates"]] == [("low", "too_dear")]


@pytest.mark.parametrize(
    ("lows", "waiter", "code", "why_not"),
    [
        ([{}], {"walltime": 20}, "too_dear", {"low0": "too_dear"}),
        (
            [{"nodes": 1}, {"nodes": 1, "walltime": 10_300}],
            {},
            "no_capacity",
            {"low0": "not_enough", "low1": "near_completion"},
        ),
        ([{"class": 8}], {}, "no_capacity", {"low0": "standing"}),
    ],
)
def test_who_could_be_exchanged_is_weighed_as_if_the_place_were_free(
    lows: list[dict[str, Any]], waiter: dict[str, Any], code: str, why_not: dict[str, str]
) -> None:
    """A share full of a lower class: as things are the waiter is borrowed, and they are above."""
    given = snapshot(waiter={"policy": "red", **waiter})
    given["pools"][0]["settings"] = {"precedence": "rights_first"}
    given["policies"][0]["reserved"] = {"gpu": 8}
    (low,) = given["running"]
    given["running"] = [low | {"id": f"low{n}"} | each for n, each in enumerate(lows)]
    (waits,) = decisions(given)
    assert {each["id"]: each["why_not"] for each in waits["candidates"]} == why_not
    assert waits["reason"]["code"] == code
