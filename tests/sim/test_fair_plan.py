"""Plans of pools that share fairly: what starves takes when its time is over, and not later."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cede.engine.state.state import State
from cede.sim import shares
from cede.sim.plan import run
from cede.snapshot.reader import SnapshotError

Snapshot = dict[str, Any]


def snapshot(nodes: tuple[str, ...] = (), **settings: Any) -> Snapshot:
    """Red holds all eight GPUs, one to a task; blue wants four, and is due them."""
    where: Snapshot = {"nodes": {}} if nodes else {"capacity": {"gpu": 8}}
    return {
        "now": 100,
        "nodes": [{"name": each, "amounts": {"gpu": 8 // len(nodes)}} for each in nodes],
        "pools": [{"name": "gpus", "preset": "fair_share", "settings": settings, **where}],
        "policies": [{"pool": "gpus", "name": each} for each in ("red", "blue")],
        "running": [
            {"id": f"r{at}", "request": "r", "pool": "gpus", "policy": "red", "started_at": at}
            | {"resources": {"gpu": 1}}
            | ({"nodes": [nodes[at * len(nodes) // 8]]} if nodes else {})
            for at in range(8)
        ],
        "requests": [
            {"id": "b", "policy": "blue", "tasks": 4, "gang": False, "resources": {"gpu": 1}}
        ],
    }


def takings(plan: dict[str, Any]) -> list[tuple[float, list[str]]]:
    return [
        (each["now"], decision["victims"])
        for each in plan["passes"]
        for decision in each["decisions"]
        if decision["do"] == "preempt"
    ]


@pytest.mark.parametrize(("horizon", "many"), [(None, 0), (30, 0), (30.001, 4)])
def test_a_time_out_is_exceeded_not_reached(horizon: float | None, many: int) -> None:
    assert len(takings(run(snapshot(), True, horizon))) == many


def test_shares_are_computed_before_every_pass() -> None:
    """A server would look again after its period; a plan need not wait for that."""
    plan = run(snapshot(fair_share_starvation_timeout=0), True, 0.001)
    assert takings(plan) == [(100.001, [f"r{at}"]) for at in (7, 6, 5, 4)]


def test_a_node_takes_again_after_its_back_off() -> None:
    plan = run(snapshot(nodes=("n1", "n2")), True, 600)
    assert takings(plan) == [(130.001 + 5 * at, [f"r{7 - at}"]) for at in range(4)]


def test_in_the_end_it_says_why_somebody_still_waits() -> None:
    """Blue has starved, and is not patient any more: two on every node are more than it may take,
    for red is due what it has on the first.
    """
    given = snapshot(nodes=("n1", "n2"))
    given["requests"] = [
        {"id": "b", "policy": "blue", "tasks": 2, "per_node": 1, "resources": {"gpu": 2}}
    ]
    plan = run(given, True, 60)
    why = [each["decisions"][-1]["reason"]["code"] for each in plan["passes"]]
    assert why == ["patience", "between_thresholds"]
    assert [each["now"] for each in plan["passes"]] == [100, 130.001]


def test_many_policies_open_the_ledger_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading them one by one would cost their square."""
    opened: list[str] = []
    real = State.open_ledger
    monkeypatch.setattr(
        State, "open_ledger", lambda state, pool: (opened.append(pool), real(state, pool))[1]
    )
    given = snapshot()
    given["policies"] += [{"pool": "gpus", "name": f"p{at}", "parent": "red"} for at in range(40)]
    assert len(shares.run(given)["elements"]) == 44
    assert opened == ["gpus", "gpus"]  # the pool, and then all its policies


def test_work_above_a_limit_is_stopped_after_the_grace() -> None:
    """That it is above is told at once; telling is no loop."""
    given = {**snapshot(), "requests": []}
    given["policies"][0]["limit"] = {"gpu": 5}
    plan = run(given, True, 60)
    assert (plan["loop"], plan["at_rest"]) == (False, True)
    assert takings(plan) == [(115, ["r7", "r6", "r5"])]


def test_a_node_that_is_shrunk_may_hold_more_than_its_pool_has() -> None:
    given = snapshot(nodes=("n1", "n2"))
    given["nodes"][1] |= {"amounts": {"gpu": 3}, "shrunk": True}
    given["requests"] = []
    assert takings(run(given, True, 60)) == [(115, ["r7"])]


@pytest.mark.parametrize(
    "saved", [{"last_checkpoint_at": 50}, {"saved": {"id": "c", "at": 50}}], ids=["when", "which"]
)
def test_what_saved_its_progress_stands_at_the_end(saved: Snapshot) -> None:
    given = snapshot()
    given["running"][0] |= {"checkpoint": "auto", **saved}
    request = shares.run(given)["elements"][-1]
    assert request["groups"] == {
        "non_preemptible": ["r1", "r2"],
        "aggressively_preemptible": ["r3", "r4"],
        "preemptible": ["r5", "r6", "r7", "r0"],
    }
    assert takings(run(given, True, 31))[0] == (130.001, ["r0"])


def test_what_was_saved_before_others_began_stands_before_them() -> None:
    given = snapshot()
    given["running"][0] |= {"checkpoint": "auto", "last_checkpoint_at": 2}
    groups = shares.run(given)["elements"][-1]["groups"]
    assert groups["non_preemptible"] + groups["aggressively_preemptible"] == [
        "r1",
        "r2",
        "r0",
        "r3",
    ]


def test_who_is_at_its_own_limit_is_told_so() -> None:
    """The pool has room; it is the request that may not hold more."""
    given = snapshot()
    del given["running"][2:]
    given["requests"] = [
        {"id": "r", "policy": "red", "tasks": 1, "gang": False, "resources": {"gpu": 1}}
        | {"limit": {"gpu": 2}}
    ]
    waits = run(given)["passes"][0]["decisions"]
    assert [each["reason"] for each in waits] == [
        {"code": "request_limit", "key": "gpu", "requested": 3, "bound": 2}
    ]


SLIPS: dict[str, tuple[Snapshot, str]] = {
    "below itself": ({"parent": "red"}, "policy red stands below red: let one of them"),
    "nobody above": (
        {"parent": "lab"},
        "parent: no policy is named 'lab' in pool gpus, for red to stand below; it has blue",
    ),
    "no such key over time": (
        {"integral": {"guarantee_type": "burst", "resource_flow": {"tpu": 1}}},
        "integral.resource_flow.tpu: pool gpus has no such key; it has gpu",
    ),
    "no multiplier": (
        {"integral": {"relaxed_share_multiplier_limit": float("nan")}},
        "integral.relaxed_share_multiplier_limit: must be from 1 to 10, not nan",
    ),
    "no flag": (
        {"integral": {"can_accept_free_volume": 1}},
        "integral.can_accept_free_volume: must be true or false, not 1",
    ),
    "nothing of the kind": (
        {"integral": {"multiplier": 3}},
        "integral.multiplier: unknown; known are burst_guarantee_resources, can_accept",
    ),
    "no such key to protect": (
        {"settings": {"non_preemptible_resource_usage_threshold": {"tpu": 1}}},
        "settings.non_preemptible_resource_usage_threshold.tpu: pool gpus has no such key",
    ),
}


@pytest.mark.parametrize(("said", "answer"), SLIPS.values(), ids=SLIPS)
def test_a_slip_in_a_policy_is_named(said: Snapshot, answer: str) -> None:
    given = {**snapshot(), "running": []}
    given["policies"].reverse()
    given["policies"][1] |= said
    with pytest.raises(SnapshotError, match=re.escape(answer)):
        shares.run(given)


def test_a_round_of_policies_is_named() -> None:
    given = snapshot()
    given["policies"][0]["parent"], given["policies"][1]["parent"] = "blue", "red"
    with pytest.raises(SnapshotError, match="policy red stands below blue stands below red: let"):
        shares.run(given)


def test_a_threshold_of_a_key_that_there_is_not_is_refused() -> None:
    """It would protect everybody: keys that it does not name do not count."""
    with pytest.raises(SnapshotError, match=r"usage_threshold\.gpus: pool gpus has no such key"):
        run(snapshot(non_preemptible_resource_usage_threshold={"gpus": 2}))


def test_what_a_request_may_not_set_is_said() -> None:
    given = snapshot()
    given["requests"][0]["settings"] = {"enable_aggressive_starvation": True}
    told = r"requests\[0\].settings.enable_aggressive_starvation: a request may set fair_share"
    with pytest.raises(SnapshotError, match=told):
        run(given)


# Clocks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("waited", [0, 12, 29.999])
def test_who_has_waited_already_waits_for_the_rest(waited: float) -> None:
    given = snapshot()
    given["pools"][0]["below_since"] = {"policy blue": 100 - waited, "request b": 100 - waited}
    instants = {at for at, _ in takings(run(given, True, 60))}
    assert instants == {round(130.001 - waited, 3)}


def test_who_has_starved_takes_at_once() -> None:
    given = snapshot()
    given["pools"][0]["below_since"] = {"policy orchestrator:blue": 60}
    assert [victims for _, victims in takings(run(given))] == [["r7"], ["r6"], ["r5"], ["r4"]]
    row = next(each for each in shares.run(given)["elements"] if each["name"] == "blue")
    told = (row["starvation"], row["below_since"], row["starving_since"])
    assert told == ("starving", 60, 90)


def test_who_is_not_below_has_no_clock_whatever_is_written() -> None:
    given = snapshot()
    given["pools"][0]["below_since"] = {"policy red": 0}
    row = next(each for each in shares.run(given)["elements"] if each["name"] == "red")
    assert (row["starvation"], row["below_since"]) == ("non_starving", None)


def test_a_node_that_was_taken_from_rests_in_a_plan_too() -> None:
    given = snapshot(nodes=("n1", "n2"))
    given["pools"][0]["below_since"] = {"policy blue": 60}
    for node in given["nodes"]:
        node["taken_at"] = 97
    assert takings(run(given, True, 10))[0] == (102, ["r7"])


def test_what_is_above_a_limit_has_the_rest_of_its_grace() -> None:
    given = snapshot()
    given["policies"][0]["limit"] = {"gpu": 7}
    given["pools"][0] |= {"over_since": {"policy red": 90}}
    assert takings(run(given, True, 20))[0] == (105, ["r7"])


WRONG_CLOCKS: dict[str, tuple[Any, str]] = {
    "no map": ([1], "pools[0].below_since: must be a map"),
    "nobody": ({"policy green": 1}, "pools[0].below_since.policy green: nobody; known are policy"),
    "no kind": ({"blue": 1}, "pools[0].below_since.blue: nobody; known are policy blue"),
    "a node": ({"pool gpus": 1}, "pools[0].below_since.pool gpus: nobody"),
    "no number": ({"policy blue": "now"}, "pools[0].below_since.policy blue: must be a number"),
    "negative": ({"request b": -1}, "pools[0].below_since.request b: must be from 0"),
    "no instant": ({"request b": float("nan")}, "pools[0].below_since.request b: must be from 0"),
    "later": ({"policy blue": 100.001}, "pools[0].below_since.policy blue: is after the instant"),
}


@pytest.mark.parametrize("name", WRONG_CLOCKS)
def test_what_is_no_clock_is_refused_with_its_place(name: str) -> None:
    value, words = WRONG_CLOCKS[name]
    given = snapshot()
    given["pools"][0]["below_since"] = value
    with pytest.raises(SnapshotError, match=re.escape(words)):
        run(given)


def test_a_node_was_not_taken_from_in_the_future() -> None:
    given = snapshot(nodes=("n1",))
    given["nodes"][0]["taken_at"] = 101
    with pytest.raises(SnapshotError, match="taken_at: is after the instant"):
        run(given)
