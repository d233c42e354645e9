"""Terms of requests and what policies say beside their amounts, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from cede.server.api.schemas import HeldOut, PolicyOut
from tests.api.conftest import Server, made

API = "/api/v1"
TERMS: dict[str, Any] = {
    "class": 7,
    "sensitive": True,
    "tenant": "bio",
    "limit": {"gpu": 4, "step_run": 0x10},
    "weight": 2.5,
    "settings": {
        "fair_share_starvation_timeout": 90.5,
        "fair_share_starvation_tolerance": 0.5,
        "non_preemptible_resource_usage_threshold": {"gpu": 1},
    },
}
USUAL: dict[str, Any] = {
    "class": 4,
    "sensitive": False,
    "tenant": None,
    "limit": {},
    "weight": 1,
    "settings": {},
}
SAID: dict[str, Any] = {
    "weight": 2.5,
    "mode": "fifo",
    "settings": {"fair_share_starvation_timeout": 60, "enable_aggressive_starvation": True},
    "integral": {
        "guarantee_type": "relaxed",
        "resource_flow": {"gpu": 2},
        "relaxed_share_multiplier_limit": 2.5,
        "can_accept_free_volume": False,
        "should_distribute_free_volume_among_children": True,
    },
    "type": "service",
    "max_class": 10,
    "allow_sensitive": True,
    "home": {"rack": "r1"},
    "allow_lending": False,
    "allow_borrowing": False,
    "max_borrow_pct": 0.5,
    "return_grace": 2.5,
}


def ready(server: Server, **policy: Any) -> str:
    server.pool("gpus", 8)
    return str(server.policy("red", **{"allow_sensitive": True, **policy})["id"])


def of(shown: dict[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    return {name: shown[name] for name in names}


def test_a_policy_is_shown_as_it_was_said(any_server: Server) -> None:
    policy_id = ready(any_server, **SAID)
    shown = made(any_server["viewer"].get(f"{API}/policies/{policy_id}"))
    PolicyOut.model_validate(shown)
    assert of(shown, SAID) == SAID


def test_what_is_not_given_stays_and_what_is_empty_goes(any_server: Server) -> None:
    path = f"{API}/policies/{ready(any_server, **SAID)}"
    changed = {"weight": 1, "mode": "fair_share", "max_class": 5, "home": ["node-1"]}
    shown = made(any_server["operator"].patch(path, json=changed))
    assert of(shown, SAID) == SAID | changed
    emptied: dict[str, Any] = {"home": [], "settings": {}, "integral": {}}
    shown = made(any_server["operator"].patch(path, json=emptied))
    assert (shown["home"], shown["settings"]) == (None, {})
    assert shown["max_class"] == 5


def test_a_request_is_shown_with_its_terms_in_every_form(any_server: Server) -> None:
    server = any_server
    ready(server)
    plain = server.submit("red", 1)
    assert of(plain, USUAL) == USUAL
    single = server.submit("red", 1, **TERMS)
    HeldOut.model_validate(single)
    assert of(single, TERMS) == TERMS
    many = server.submit("red", 1, tasks=2, gang=False, **TERMS)
    for part in many["parts"]:
        shown = made(server["red"].get(f"{API}/requests/{part}"))
        assert of(shown, TERMS) == TERMS
    body = {"requests": [{"resources": {"gpu": 1}, **TERMS}, {"class": "5"}]}
    good, bad = made(server["red"].post(f"{API}/requests/bulk", json=body))["items"]
    assert of(good["request"], TERMS) == TERMS
    assert (bad["status"], bad["error"]["field"]) == (400, "class")
    found = made(server["red"].get(f"{API}/requests?tenant=bio"))["items"]
    assert len(found) == 4 and plain["id"] not in [each["id"] for each in found]
    assert made(server["red"].get(f"{API}/requests?tenant=chem"))["items"] == []


@pytest.mark.parametrize("value", ["5", 5.0, True, -1, 11, 10**22, [4], {}])
def test_what_is_no_class_is_a_400_that_names_the_range(shared: Server, value: object) -> None:
    body = {"resources": {"gpu": "many"}, "class": value}
    refused = shared["red"].post(f"{API}/requests", json=body)
    assert refused.status_code == 400, refused.text
    problem = refused.json()
    assert (problem["field"], problem["type"]) == ("class", "urn:cede:problem:malformed")
    assert "integer from 0 to 10" in problem["detail"]
    assert len(problem["errors"]) == 2  # the other one is named too
    policy = {"pool": "gpus", "component": "new", "max_class": value}
    refused = shared["admin"].post(f"{API}/policies", json=policy)
    assert (refused.status_code, refused.json()["field"]) == (400, "max_class")


@pytest.mark.parametrize("value", ["2", True, 0, -1, 1e-7, 1e7, 10**22, [4], {}])
def test_what_is_no_weight_is_refused_by_name(shared: Server, value: object) -> None:
    refused = shared["red"].post(f"{API}/requests", json={"resources": {"gpu": 1}, "weight": value})
    assert refused.status_code in (400, 422), refused.text
    assert refused.json()["field"] == "weight"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("relaxed_share_multiplier_limit", each) for each in (0.5, 11, -1, "3", True, 1e300)),
        ("can_accept_free_volume", 1),
        ("should_distribute_free_volume_among_children", "yes"),
        ("relaxed_share_multiplier", 3),
    ],
)
def test_what_is_no_guarantee_over_time_is_refused_by_name(
    shared: Server, name: str, value: object
) -> None:
    policy = {"pool": "gpus", "component": "new", "priority": 1, "integral": {name: value}}
    refused = shared["admin"].post(f"{API}/policies", json=policy)
    assert refused.status_code in (400, 422), refused.text
    assert refused.json()["field"] == f"integral.{name}"


def test_a_step_may_say_both_what_it_needs_and_how_long_it_is_patient(shared: Server) -> None:
    settings = {"gpu_count": 1, "fair_share_starvation_timeout": 60}
    made_ = made(shared["red"].post(f"{API}/requests", json={"settings": settings}))
    assert made_["resources"] == {"gpu": 1, "step_run": 1}
    assert made_["settings"] == {"fair_share_starvation_timeout": 60}


def test_what_its_policy_may_not_give_is_rejected_with_the_reason(shared: Server) -> None:
    rejected = shared.submit("red", 1, sensitive=True)
    assert rejected["status"] == "rejected"
    assert rejected["reason"]["code"] == "sensitive_not_allowed"
    assert "allow_sensitive" in rejected["reason"]["fix"]
    rejected = shared.submit("red", 2, limit={"gpu": 1})
    assert rejected["reason"]["code"] == "request_limit"


# The limit of a request that is there -----------------------------------------------------------


def limit(server: Server, who: str, id: str, **amounts: int) -> Any:
    return server[who].patch(f"{API}/requests/{id}", json={"limit": amounts})


def test_a_limit_changes_while_it_waits_and_runs(any_server: Server) -> None:
    server = any_server
    ready(server)
    holder = server.submit("red", 8)
    waiter = server.submit("red", 2)
    assert made(limit(server, "red", waiter["id"], gpu=0))["limit"] == {"gpu": 0}
    shown = made(limit(server, "operator", holder["id"], gpu=4))
    assert (shown["status"], shown["limit"]) == ("allocated", {"gpu": 4})
    made(server["red"].post(f"{API}/requests/{holder['id']}/release"))
    shown = made(server["red"].get(f"{API}/requests/{waiter['id']}"))
    assert (shown["status"], shown["reason"]["code"]) == ("queued", "request_limit")
    raised = made(limit(server, "red", waiter["id"][:30], gpu=2))
    assert raised["status"] == "allocated"
    kinds = [
        (each["kind"], each["data"])
        for each in made(server["red"].get(f"{API}/events?request_id={waiter['id']}"))["items"]
    ]
    assert ("limit_changed", {"limit": {"gpu": 0}}) in kinds
    notes = made(server["admin"].get(f"{API}/audit"))["items"]
    assert [each["target"] for each in notes if each["action"] == "request.limit"] == [holder["id"]]


def test_one_of_a_task_group_stands_for_all_also_when_it_has_ended(server: Server) -> None:
    ready(server)
    first, second = server.submit("red", 1, tasks=2, gang=False)["parts"]
    made(limit(server, "red", second, gpu=2))
    for id in (first, second):
        assert made(server["red"].get(f"{API}/requests/{id}"))["limit"] == {"gpu": 2}
    made(server["red"].post(f"{API}/requests/{first}/release"))
    made(limit(server, "operator", first, gpu=1))
    assert made(server["red"].get(f"{API}/requests/{second}"))["limit"] == {"gpu": 1}
    notes = made(server["admin"].get(f"{API}/audit"))["items"]
    assert [each["target"] for each in notes if each["action"] == "request.limit"] == [first]
    made(server["red"].post(f"{API}/requests/{second}/release"))
    for id in (first, second):
        refused = limit(server, "red", id, gpu=1)
        assert (refused.status_code, refused.json()["type"]) == (
            409,
            "urn:cede:problem:already_ended",
        )


def test_only_its_owner_or_an_operator_changes_it(server: Server) -> None:
    ready(server)
    request = server.submit("red", 1)
    assert limit(server, "blue", request["id"], gpu=1).status_code == 404
    assert limit(server, "viewer", request["id"], gpu=1).status_code == 403
    assert limit(server, "nobody", request["id"], gpu=1).status_code == 401


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "limit"),
        ({"limit": None}, "limit"),
        ({"limit": {"gpu": -1}}, "limit.gpu"),
        ({"limit": {"gpu": 1.5}}, "limit.gpu"),
        ({"limit": {"gpu": 1}, "class": 5}, "class"),
        ({"limit": {"gpus": 1}}, "limit.gpus"),
    ],
)
def test_what_is_no_limit_is_refused(shared: Server, body: dict[str, Any], field: str) -> None:
    request = shared.submit("red", 1, pool="gpus")
    refused = shared["red"].patch(f"{API}/requests/{request['id']}", json=body)
    assert (refused.status_code, refused.json()["field"]) == (422, field), refused.text
    made(shared["red"].post(f"{API}/requests/{request['id']}/cancel"))
