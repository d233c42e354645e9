"""What people write into a snapshot about classes, and what a plan says of whom it weighed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cede.engine.rights.price import Shield
from cede.engine.victims.protection import Spared
from cede.engine.victims.why_not import WhyNot
from cede.sim.plan import run
from cede.snapshot.fields import SnapshotError
from tests.docs.names import rows

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "snapshot.md"
NOW = 7200


def snapshot(**given: Any) -> dict[str, Any]:
    """Two nodes of four GPUs, one policy that may do everything, and whatever else is said."""
    nodes = [{"name": name, "amounts": {"gpu": 4}} for name in ("n1", "n2")]
    policy = {"pool": "gpus", "name": "red", "max_class": 10, "allow_sensitive": True}
    pool = {"name": "gpus", "preset": "classes", "nodes": {}, "settings": given.get("settings", {})}
    return {
        "now": NOW,
        "nodes": given.get("nodes", nodes),
        "pools": [pool],
        "policies": given.get("policies", [policy]),
        "tenants": given.get("tenants", []),
        "running": [
            {"pool": "gpus", "policy": "red", "class": 3, "checkpoint": "auto", **each}
            for each in given.get("running", ())
        ],
        "requests": [
            {"id": "w", "policy": "red", "class": 7, "nodes": 1, **each}
            for each in given.get("requests", ())
        ],
    }


def decisions(**given: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run(snapshot(**given))["passes"][0]["decisions"]
    return found


def weighed(**given: Any) -> dict[str, Any]:
    """Why each holder is not stopped for the only waiter."""
    (waits,) = decisions(**given)
    assert waits["do"] == "wait"
    assert not any(each["chosen"] for each in waits["candidates"])
    return {each["id"]: each["why_not"] for each in waits["candidates"]}


# What is written ------------------------------------------------------------------------------


def test_nodes_alone_are_whole_nodes() -> None:
    taking, _ = decisions(running=[{"id": "r", "nodes": ["n1"]}], requests=[{"nodes": 2}])
    assert (taking["victims"], taking["cost"]) == (["r"], 6)
    (granted,) = decisions(requests=[{"nodes": 2}])
    assert granted["nodes"] == ["n1", "n2"]


@pytest.mark.parametrize(
    ("request_", "nodes", "path", "problem"),
    [
        ({}, [4, 8], "requests[0].nodes", "not alike: say gpus_per_node, or resources"),
        ({"gpus_per_node": 0}, [4], "requests[0].gpus_per_node", "nothing else"),
        ({"nodes": "2"}, [4], "requests[0].nodes", "must be an integer from 1"),
        ({"nodes": ["n1"]}, [4], "requests[0].nodes", "must be a number"),
    ],
)
def test_what_is_no_number_of_nodes_is_told(
    request_: dict[str, Any], nodes: list[int], path: str, problem: str
) -> None:
    made = [{"name": f"n{at}", "amounts": {"gpu": gpus}} for at, gpus in enumerate(nodes)]
    with pytest.raises(SnapshotError) as caught:
        run(snapshot(nodes=made, requests=[request_]))
    assert caught.value.path == path
    assert problem in caught.value.problem


def test_no_gpu_is_a_number_of_them() -> None:
    nodes = [{"name": "n1", "amounts": {"gpu": 4, "mcpu": 8000}}]
    (granted,) = decisions(nodes=nodes, requests=[{"gpus_per_node": 0}])
    assert granted["do"] == "grant"


@pytest.mark.parametrize(
    ("given", "lost"),
    [
        ({"started_at": 3600}, 60),
        ({"started_at": 3600, "last_checkpoint_at": 6600}, 10),
        ({"allocated_at": 3600}, 60),
        ({"last_checkpoint_at": 6600}, 10),
        ({"state": "granted", "last_checkpoint_at": 6600}, 0),  # an earlier attempt saved it
        ({}, 0),
    ],
)
def test_what_runs_has_started(given: dict[str, Any], lost: int) -> None:
    """Nobody says when, so it was when it was granted, or had saved itself."""
    holder = {"id": "r", "nodes": ["n1"], "checkpoint": "none", "gpus_per_node": 1, **given}
    asks = {"nodes": 2, "gpus_per_node": 4, "class": 1}
    (waits,) = decisions(running=[holder], requests=[asks])
    assert waits["candidates"][0]["parts"]["recompute"] == lost


# What is said ---------------------------------------------------------------------------------

HOLDER = {"id": "r", "nodes": ["n1", "n2"], "started_at": 3600}


@pytest.mark.parametrize(
    ("given", "why_not"),
    [
        ({"running": [{**HOLDER, "class": 8}]}, "standing"),
        ({"running": [{**HOLDER, "class": 7}]}, "own_policy"),
        ({"running": [{**HOLDER, "walltime": 3920}]}, "waits_first"),
        ({"tenants": [{"name": "bio", "max_nodes": 0}], "requests": [{"tenant": "bio"}]},
         "tenant_nodes"),
        ({"settings": {"min_run": 9000}}, "min_run"),
    ],
)  # fmt: skip
def test_who_waits_has_chosen_nobody(given: dict[str, Any], why_not: str) -> None:
    assert weighed(**{"running": [HOLDER], "requests": [{}], **given}) == {"r": why_not}


def test_every_decision_that_weighs_has_candidates() -> None:
    """Who has capacity on its way weighs nobody any more."""
    preempt, wait = decisions(running=[HOLDER], requests=[{}])
    assert [each["id"] for each in preempt["candidates"]] == ["r"]
    assert (wait["reason"]["code"], wait["candidates"]) == ("on_its_way", [])


def test_who_is_of_no_help_at_home_may_be_elsewhere() -> None:
    """A borrower that shares no node with the waiter's home is weighed where it sits."""
    owner = {"pool": "gpus", "name": "red", "home": ["n1"]}
    policies = [owner, {"pool": "gpus", "name": "blue"}]
    running = [
        {"id": "mine", "nodes": ["n1"], "class": 7},
        {"id": "common", "policy": "blue", "nodes": ["n2"], "class": 8},
    ]
    found = weighed(policies=policies, running=running, requests=[{}])
    assert found == {"mine": "own_policy", "common": "standing"}


def test_the_page_has_every_word() -> None:
    part = PAGE.read_text().split("## What a plan says")[1]
    shown = {word.strip("` ") for row in rows(part, r"`[a-z_]+`.*") for word in row[0].split(",")}
    barred = {"leaving", "non_preemptible", "protected", "standing", "own_policy"}
    assert {*map(str, (*Spared, *Shield, *WhyNot)), *barred} <= shown


# Why it waits ---------------------------------------------------------------------------------


def reason(**given: Any) -> str:
    (waits,) = decisions(**given)
    code: str = waits["reason"]["code"]
    return code


def test_what_leaves_a_node_that_does_not_suit_is_not_on_its_way() -> None:
    nodes = [
        {"name": "n1", "amounts": {"gpu": 4}},
        {"name": "n2", "amounts": {"gpu": 4}, "labels": {"disk": "big"}},
    ]
    running = [
        {"id": "goes", "nodes": ["n1"], "state": "checkpointing"},
        {"id": "stays", "nodes": ["n2"], "class": 8},
    ]
    asks = {"gpus_per_node": 4, "node_labels": {"disk": "big"}}
    assert reason(nodes=nodes, running=running, requests=[asks]) == "no_node"


@pytest.mark.parametrize(
    ("holder", "waiter", "code"),
    [
        ({}, {"walltime": 6}, "too_dear"),
        ({"walltime": 3920}, {}, "waits_first"),
        ({"class": 8}, {}, "no_node"),
    ],
)
def test_where_enough_is_free_in_pieces_the_price_is_told_too(
    holder: dict[str, Any], waiter: dict[str, Any], code: str
) -> None:
    """Two GPUs are free on each node, and a task needs four."""
    half = {"id": "r", "nodes": ["n1", "n2"], "gpus_per_node": 2, "started_at": 3600, **holder}
    asks = {"gpus_per_node": 4, **waiter}
    assert reason(running=[half], requests=[asks]) == code


def test_what_is_not_lent_is_told() -> None:
    """Nor is it the reason where the price is."""
    policies = [{"pool": "gpus", "name": "red"}, {"pool": "gpus", "name": "blue", "home": ["n1"]}]
    (waits,) = decisions(policies=policies, requests=[{"nodes": 2}])
    assert (waits["reason"]["code"], waits["reason"]["nodes"]) == ("not_lent", "n1")
    given = {"policies": policies, "running": [{"id": "r", "nodes": ["n2"]}]}
    assert reason(**given, requests=[{"walltime": 6, "class": 4}]) == "too_dear"
    assert reason(**given, requests=[{"class": 3}]) == "not_lent"


def test_amounts_are_no_home() -> None:
    policy = {"pool": "gpus", "name": "red", "home": {"gpu": 4}}
    with pytest.raises(SnapshotError, match="amounts of its own are `reserved`"):
        run(snapshot(policies=[policy]))


# The highest class ----------------------------------------------------------------------------


@pytest.mark.parametrize("terms", [{"class": 10}, {"class": 5, "sensitive": True}])
def test_sensitive_work_and_the_highest_class_neither_wait_nor_are_measured(
    terms: dict[str, Any],
) -> None:
    """Its holder ends within the stop, and costs more than a minute of the waiter is worth."""
    holder = {**HOLDER, "walltime": 3920}
    first = decisions(running=[holder], requests=[{"walltime": 6, **terms}])[0]
    assert (first["do"], first["victims"]) == ("preempt", ["r"])
    first = decisions(running=[holder], requests=[{"walltime": 6, "class": 9}])[0]
    assert first["do"] == "wait"


# Only what victims free -----------------------------------------------------------------------


def test_what_is_withheld_where_victims_sat_stays_so() -> None:
    """With count_free off what they free is not, for that, more than there will be."""
    nodes = [{"name": name, "amounts": {"gpu": 2}} for name in ("n0", "n1", "n2")]
    policies = [{"pool": "gpus", "name": name} for name in ("red", "blue", "desk")]
    policies[2]["type"] = "interactive"
    half = {"policy": "desk", "gpus_per_node": 1, "class": 4, "checkpoint": "none"}
    running = [
        {**half, "id": "wide", "nodes": ["n1", "n0"]},
        {**half, "id": "whole", "nodes": ["n2"], "gpus_per_node": 2},
        {**half, "id": "beside", "nodes": ["n1"]},
        {**half, "id": "ends", "nodes": ["n0"], "policy": "blue", "class": 1, "walltime": 36_000},
    ]
    asks = {"nodes": 2, "gpus_per_node": 1}
    requests = [{**asks, "class": 8}, {**asks, "id": "v", "policy": "blue", "class": 9}]
    given = {"nodes": nodes, "policies": policies, "running": running, "requests": requests}
    found = run(snapshot(settings={"count_free": False}, **given), until_rest=True)
    assert (found["at_rest"], found["loop"]) == (True, False)


# Services -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "why_not"), [("service", "service_at_home"), ("hpc_batch", None)])
def test_a_service_at_home_is_not_stopped_by_its_own_policy_either(
    kind: str, why_not: str | None
) -> None:
    """On a borrowed node it is; and so is other work, wherever it sits."""
    policies = [{"pool": "gpus", "name": "red", "type": kind, "home": ["n1"]}]
    running = [{"id": "home", "nodes": ["n1"]}, {"id": "borrowed", "nodes": ["n2"]}]
    first = decisions(policies=policies, running=running, requests=[{"nodes": 2}])[0]
    found = {each["id"]: each["why_not"] for each in first["candidates"]}
    assert found == {"home": why_not, "borrowed": why_not and "not_enough"}
    first = decisions(policies=policies, running=running, requests=[{}])[0]
    assert first["victims"] == ["borrowed" if why_not else "home"]  # at home first
