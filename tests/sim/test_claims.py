"""Claims in a plan: who leaves for one made before the first pass, and why one is refused."""

from __future__ import annotations

from typing import Any

import pytest

from cede.sim.plan import run
from cede.snapshot.reader import SnapshotError

NODES = [{"name": name, "amounts": {"gpu": 4}, "labels": {"pool": "gpus"}} for name in ("n1", "n2")]


def snapshot(**more: Any) -> dict[str, Any]:
    """Two nodes: red runs on one, bob's sensitive work on the other; ann's waits."""
    return {
        "now": 100,
        "nodes": NODES,
        "pools": [{"name": "gpus", "nodes": {"pool": "gpus"}, "preset": "classes"}],
        "policies": [
            {"pool": "gpus", "component": "red"},
            {"pool": "gpus", "component": "lab", "allow_sensitive": True},
        ],
        "running": [
            {"id": "r", "component": "red", **_on("n1"), "checkpoint": "auto"},
            {"id": "s", "component": "lab", **_on("n2"), "sensitive": True, "owner": "bob"},
        ],
        **more,
    }


def _on(node: str) -> dict[str, Any]:
    held = {"pool": "gpus", "resources": {"gpu": 4}, "nodes": [node]}
    return held | {"work": True, "started_at": 0, "state": "running"}


def waits(owner: str) -> dict[str, Any]:
    return {
        "id": "mine",
        "component": "lab",
        "resources": {"gpu": 4},
        "sensitive": True,
        "owner": owner,
    }


def decisions(plan: dict[str, Any], what: str) -> list[dict[str, Any]]:
    return [each for one in plan["passes"] for each in one["decisions"] if each["do"] == what]


def test_a_claim_names_whom_it_stops_and_its_claimant_starts() -> None:
    asked = [{"nodes": ["n1"], "for": "ann"}]
    plan = run(snapshot(claims=asked, requests=[waits("ann")]), until_rest=True)
    assert plan["passes"][0]["decisions"][0] == {
        "do": "claim",
        "nodes": ["n1"],
        "for": "ann",
        "victims": ["r"],
        "refused": None,
    }
    assert plan["at_rest"]
    [grant] = decisions(plan, "grant")
    assert (grant["request"], grant["nodes"]) == ("mine", ["n1"])


def test_of_two_claims_on_one_node_the_first_is_granted() -> None:
    asked = [{"nodes": ["n1"], "for": "ann"}, {"nodes": ["n1"], "for": "eve"}]
    first, second = decisions(run(snapshot(claims=asked)), "claim")
    assert first["refused"] is None
    assert second["refused"]["code"] == "node_claimed" and "ann" in second["refused"]["text"]
    assert second["victims"] == []


@pytest.mark.parametrize(
    ("nodes", "code", "said"),
    [(["n1", "n2"], "node_held", "n2 holds s"), (["n9"], "not_found", "n9")],
)
def test_a_refused_claim_stops_nobody(nodes: list[str], code: str, said: str) -> None:
    plan = run(snapshot(claims=[{"nodes": nodes, "for": "ann"}]))
    [told] = decisions(plan, "claim")
    assert told["victims"] == [] and told["refused"]["code"] == code
    assert said in told["refused"]["text"]
    assert run(snapshot())["passes"][0]["decisions"] == plan["passes"][0]["decisions"][1:]


def test_a_claimed_node_is_for_its_claimant_alone() -> None:
    nodes = [NODES[0] | {"claimed_by": "ann"}, NODES[1]]
    for owner, granted in (("ann", 1), ("eve", 0)):
        given = snapshot(nodes=nodes, running=[], requests=[waits(owner)])
        given["running"] = [snapshot()["running"][1]]
        assert len(decisions(run(given), "grant")) == granted, owner


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"claims": [{"nodes": ["n1"]}]}, "claims[0].for"),
        ({"claims": [{"nodes": [], "for": "ann"}]}, "claims[0].nodes"),
        ({"claims": [{"nodes": [1], "for": "ann"}]}, "claims[0].nodes[0]"),
        ({"claims": [{"nodes": ["n1"], "for": "ann", "by": "x"}]}, "claims[0].by"),
        ({"nodes": [NODES[0] | {"claimed_by": "ann"}, NODES[1]]}, "nodes[0].claimed_by"),
    ],
)
def test_what_could_not_be_is_an_error(more: dict[str, Any], path: str) -> None:
    with pytest.raises(SnapshotError) as caught:
        run(snapshot(**more))
    assert caught.value.path == path
