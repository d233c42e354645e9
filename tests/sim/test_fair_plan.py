"""Plans of pools that share fairly: what starves takes when its time is over, and not later."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cede.engine.snapshot_reader import SnapshotError
from cede.engine.state import State
from cede.sim import shares
from cede.sim.plan import run

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
    assert why == ["patience", "within_share"]
    assert [each["now"] for each in plan["passes"]] == [100, 130.001]


def test_many_policies_open_the_books_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading them one by one would cost their square."""
    opened: list[str] = []
    real = State.open_books
    monkeypatch.setattr(
        State, "open_books", lambda state, pool: (opened.append(pool), real(state, pool))[1]
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
