"""Tenants and usage over HTTP: bounds hold, the first of two over a quota wins, hours add up."""

from __future__ import annotations

import threading
from typing import Any

import httpx2
import pytest

from cede.engine.ledger.tenants import publish_budgets
from cede.model import bounds
from cede.server.api.tenant_schemas import TENANT, USAGE, TenantOut, UsageOut
from tests.api.conftest import PATIENCE, Server, made, running

API = "/api/v1"
BOUNDS: dict[str, Any] = {
    "max_nodes": 4,
    "max_concurrent": 10,
    "gpu_hours_budget": 100.5,
    "node_hours_budget": 10.0,
    "fair_share_target": 0.25,
    "burst_allowance": 1.5,
}
HOUR = bounds.HOUR


def ready(server: Server, **quota: Any) -> dict[str, Any]:
    server.pool("gpus", 8)
    for team in ("red", "blue"):
        server.policy(team, reserved={"gpu": 4}, name=f"{team}-policy")
    return made(server["operator"].post(f"{API}/tenants", json={"name": "bio", **quota}))


def later(server: Server, milliseconds: int) -> None:
    """The server's clock, further on."""
    server.writer._clock._base += milliseconds


def used(server: Server, who: str = "viewer", **params: Any) -> dict[str | None, dict[str, Any]]:
    found = made(server[who].get(f"{API}/usage", params=params))
    UsageOut.model_validate(found)
    return {each["name"]: each for each in found["items"]}


def test_a_tenant_is_shown_as_it_was_said(any_server: Server) -> None:
    shown = ready(any_server, **BOUNDS)
    TenantOut.model_validate(shown)
    path = f"{API}/tenants/bio"
    assert made(any_server["viewer"].get(path)) == shown | {"budget_used": 0.0}
    assert {name: shown[name] for name in BOUNDS} == BOUNDS
    changed = {"max_nodes": 5, "max_concurrent": None, "fair_share_target": None}
    shown = made(any_server["operator"].patch(path, json=changed))
    expected = BOUNDS | {"max_nodes": 5, "max_concurrent": None, "fair_share_target": 0.0}
    assert {name: shown[name] for name in BOUNDS} == expected
    assert made(any_server["viewer"].get(f"{API}/tenants"))["items"] == [shown]
    assert made(any_server["viewer"].get(f"{API}/tenants/{shown['id'][:30]}")) == shown
    taken = any_server["operator"].post(f"{API}/tenants", json={"name": "bio"})
    assert (taken.status_code, taken.json()["type"]) == (409, "urn:cede:problem:name_taken")
    assert any_server["operator"].delete(path).status_code == 204
    assert any_server["operator"].delete(path).status_code == 404
    assert made(any_server["viewer"].get(f"{API}/tenants"))["items"] == []
    notes = made(any_server["admin"].get(f"{API}/audit"))["items"]
    actions = [each["action"] for each in notes if each["action"].startswith("tenant")]
    assert actions == ["tenant.delete", "tenant.update", "tenant.create"]


def test_examples_fit_their_schemas() -> None:
    TenantOut.model_validate(TENANT)
    UsageOut.model_validate(USAGE)


def test_a_repeated_creation_gets_the_same_answer(server: Server) -> None:
    headers = {"Idempotency-Key": "once"}
    first, second = (
        made(server["operator"].post(f"{API}/tenants", json={"name": "bio"}, headers=headers))
        for _ in range(2)
    )
    assert first == second


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"max_nodes": -1}, "max_nodes"),
        ({"max_nodes": 1.5}, "max_nodes"),
        ({"gpu_hours_budget": 0}, "gpu_hours_budget"),
        ({"fair_share_target": 2}, "fair_share_target"),
        ({"max_node": 1}, "max_node"),
        ({"name": "a/b"}, "name"),
    ],
)
def test_what_is_no_bound_is_refused(shared: Server, body: dict[str, Any], field: str) -> None:
    refused = shared["operator"].post(f"{API}/tenants", json={"name": "bad", **body})
    assert (refused.status_code, refused.json()["field"]) == (422, field), refused.text


def test_a_refusal_says_what_is_in_use_and_what_would_change_it(server: Server) -> None:
    ready(server, max_nodes=2, max_concurrent=3)
    server.submit("red", 1, tenant="bio", tasks=2)
    body = {"resources": {"gpu": 1}, "tenant": "bio"}
    refused = server["red"].post(f"{API}/requests", json=body)
    assert (refused.status_code, refused.json()["type"]) == (422, "urn:cede:problem:refused")
    reason = refused.json()["reason"]
    assert (reason["code"], reason["held"], reason["requested"], reason["bound"]) == (
        "tenant_nodes",
        2,
        1,
        2,
    )
    made(server["operator"].patch(f"{API}/tenants/bio", json={"max_nodes": 10}))
    many = [{"resources": {"gpu": 1}, "tenant": "bio"}] * 4
    items = made(server["red"].post(f"{API}/requests/bulk", json={"requests": many}))["items"]
    assert [each["status"] for each in items] == [201, 201, 422, 422]
    assert items[2]["error"]["reason"]["code"] == "tenant_concurrent"
    # Independent tasks come together or not at all.
    made(server["operator"].patch(f"{API}/tenants/bio", json={"max_concurrent": 5}))
    parts = {**body, "tasks": 3, "gang": False}
    assert server["red"].post(f"{API}/requests", json=parts).status_code == 422
    shown = made(server["viewer"].get(f"{API}/tenants/bio"))
    assert (shown["requests"], shown["nodes"]) == (3, 4)
    assert made(server["red"].post(f"{API}/requests", json={**parts, "tasks": 2}))


def submit_at_once(
    server: Server, eventually: Any, teams: tuple[str, ...]
) -> list[httpx2.Response]:
    """One request of tenant bio from each of so many threads: the writer finds all of them at once,
    and would take them in one transaction.
    """
    reached, gate = threading.Event(), threading.Event()

    def hold() -> bool:
        reached.set()
        return gate.wait(PATIENCE)

    held = server.writer.query(lambda state, _: hold())
    assert reached.wait(PATIENCE)  # or it would be taken together with the first of them
    answers: list[httpx2.Response] = []

    def submit(team: str) -> None:
        with server.client(server.secrets[team]) as client:
            body = {"resources": {"gpu": 1}, "tenant": "bio"}
            answers.append(client.post(f"{API}/requests", json=body))

    threads = [threading.Thread(target=submit, args=(team,)) for team in teams]
    for each in threads:
        each.start()
    eventually(lambda: server.writer.waiting == len(teams))
    gate.set()
    for each in threads:
        each.join(PATIENCE)
    assert held.result(PATIENCE) and len(answers) == len(teams)
    return answers


def test_of_many_at_once_no_more_start_than_the_quota_has_nodes(
    any_server: Server, eventually: Any
) -> None:
    """As if they had come one after the other: who meets others in one transaction waits for what
    becomes of them.
    """
    ready(any_server, max_nodes=3)
    answers = submit_at_once(any_server, eventually, ("red", "blue") * 4)
    taken = [each.json()["status"] for each in answers if each.status_code == 201]
    refused = [each.json()["reason"]["code"] for each in answers if each.status_code == 422]
    assert (taken, refused) == (["allocated"] * 3, ["tenant_nodes"] * 5)
    assert made(any_server["viewer"].get(f"{API}/tenants/bio"))["nodes"] == 3


@pytest.mark.parametrize("quota", ["max_nodes", "max_concurrent"])
def test_of_two_at_once_over_a_quota_the_second_is_refused(
    any_server: Server, eventually: Any, quota: str
) -> None:
    ready(any_server, **{quota: 1})
    answers = submit_at_once(any_server, eventually, ("red", "blue"))
    assert sorted(each.status_code for each in answers) == [201, 422]
    refused = max(answers, key=lambda each: each.status_code).json()
    assert refused["reason"]["code"] == quota.replace("max", "tenant")


def test_of_two_that_wait_for_room_the_second_waits_for_the_quota(
    server: Server, eventually: Any
) -> None:
    """Who waits uses no nodes, so both may: they exceed nothing before they start."""
    ready(server, max_nodes=1)
    full = [server.submit(team, 4, preemptible=False) for team in ("red", "blue")]
    answers = submit_at_once(server, eventually, ("red", "red"))
    assert [each.json()["status"] for each in answers] == ["queued", "queued"]
    made(server["red"].post(f"{API}/requests/{full[0]['id']}/release"))
    found = [made(server["red"].get(f"{API}/requests/{each.json()['id']}")) for each in answers]
    first, second = sorted(found, key=lambda each: str(each["status"]))
    assert (first["status"], second["status"]) == ("allocated", "queued")
    assert second["reason"]["code"] == "tenant_nodes"
    made(server["red"].post(f"{API}/requests/{first['id']}/release"))
    assert made(server["red"].get(f"{API}/requests/{second['id']}"))["status"] == "allocated"


def test_what_one_call_asks_for_together_waits_beyond_the_quota(server: Server) -> None:
    ready(server, max_nodes=2)
    body = {"resources": {"gpu": 1}, "tenant": "bio", "tasks": 4, "gang": False}
    parts = made(server["red"].post(f"{API}/requests", json=body))["parts"]
    shown = [made(server["red"].get(f"{API}/requests/{each}"))["status"] for each in parts]
    assert sorted(shown) == ["allocated", "allocated", "queued", "queued"]


def test_a_lower_quota_stops_nobody(server: Server) -> None:
    ready(server)
    holder = server.submit("red", 2, tenant="bio")
    made(server["operator"].patch(f"{API}/tenants/bio", json={"max_nodes": 0}))
    shown = made(server["red"].get(f"{API}/requests/{holder['id']}"))
    assert shown["status"] == "allocated"
    assert server.writer.query(lambda state, _: state.tenancy.held).result(PATIENCE) == {"bio": 1}


def test_a_waiter_is_told_of_its_quota(server: Server) -> None:
    ready(server)
    server.submit("red", 8, tenant="bio")
    waiter = server.submit("red", 1, tenant="bio")
    made(server["operator"].patch(f"{API}/tenants/bio", json={"max_nodes": 1}))
    shown = made(server["red"].get(f"{API}/requests/{waiter['id']}"))
    assert (shown["status"], shown["reason"]["code"]) == ("queued", "tenant_nodes")
    story = made(server["red"].get(f"{API}/requests/{waiter['id']}/why"))
    assert "--max-nodes 2" in story["reason"]["fix"]


# Usage ------------------------------------------------------------------------------------------


def test_hours_add_up_by_pool_policy_and_tenant(any_server: Server) -> None:
    server = any_server
    ready(server, gpu_hours_budget=100)
    first = server.submit("red", 4, tenant="bio", lease="none")
    server.submit("blue", 1, tasks=2, lease="none")
    later(server, 10 * HOUR)
    made(server["red"].post(f"{API}/requests/{first['id']}/release"))
    later(server, 2 * HOUR)
    tenants = used(server, by="tenant")
    assert list(tenants) == ["bio", None]  # the most GPU time first
    assert tenants["bio"]["gpu_hours"] == pytest.approx(40, abs=0.1)
    assert tenants["bio"]["node_hours"] == pytest.approx(10, abs=0.1)
    assert tenants["bio"]["hours"]["step_run"] == pytest.approx(10, abs=0.1)
    assert tenants[None]["node_hours"] == pytest.approx(24, abs=0.1)
    assert (tenants[None]["requests"], tenants[None]["preempted"]) == (1, 0)
    policies = used(server, by="policy")
    assert policies["red-policy"]["pool"] == "gpus"
    assert policies["blue-policy"]["gpu_hours"] == pytest.approx(24, abs=0.1)
    assert used(server)["gpus"]["node_hours"] == pytest.approx(34, abs=0.1)
    recent = used(server, by="tenant", since=3600)
    assert list(recent) == [None] and recent[None]["node_hours"] == pytest.approx(2, abs=0.1)
    shown = made(server["viewer"].get(f"{API}/tenants/bio"))
    assert shown["budget_used"] == pytest.approx(0.4, abs=0.01)


def test_a_bound_token_sees_what_its_own_policies_held(server: Server) -> None:
    ready(server)
    server.submit("red", 1, tenant="bio")
    server.submit("blue", 1, tenant="chem")
    assert list(used(server, "red", by="policy")) == ["red-policy"]
    assert list(used(server, "red", by="tenant")) == ["bio"]
    assert used(server, "red")["gpus"]["requests"] == 1
    assert server["red"].get(f"{API}/tenants").status_code == 403
    assert server["red"].get(f"{API}/tenants/bio").status_code == 403


def test_who_was_stopped_is_counted_and_what_is_deleted_stays(server: Server) -> None:
    ready(server)
    victim = server.submit("red", 8)
    server.submit("blue", 4)
    path = f"{API}/requests/{victim['id']}"
    made(server["red"].post(path + "/renew", json={"attempt": 1}))
    made(server["red"].post(path + "/release", json={"outcome": "stopped"}))
    assert used(server, by="policy")["red-policy"]["preempted"] == 1
    before = used(server)["gpus"]
    assert server["red"].delete(path).status_code == 204
    after = used(server)["gpus"]
    assert (after["requests"], after["preempted"]) == (before["requests"], before["preempted"])
    assert after["gpu_hours"] >= before["gpu_hours"]


def test_a_pool_that_is_gone_is_called_by_its_id(server: Server) -> None:
    ready(server)
    request = server.submit("red", 1)
    made(server["red"].post(f"{API}/requests/{request['id']}/release"))
    pool = made(server["viewer"].get(f"{API}/pools/gpus"))
    assert server["operator"].delete(f"{API}/pools/gpus").status_code == 204
    server.app.state.cede._names.clear()
    found = used(server)[pool["id"]]
    assert (found["id"], found["requests"]) == (None, 1)
    policy = next(iter(used(server, by="policy").values()))
    assert policy["pool"] is None


@pytest.mark.parametrize("query", ["by=moon", "since=-1", "since=nan", "since=x", "until=3"])
def test_what_is_no_period_is_refused(shared: Server, query: str) -> None:
    assert shared["viewer"].get(f"{API}/usage?{query}").status_code == 422


# Budgets that the engine uses -------------------------------------------------------------------


def budgets(server: Server) -> dict[str, float]:
    return server.writer.query(lambda state, _: dict(state.budgets)).result(PATIENCE)


def test_budgets_are_published_at_the_start_and_every_minute(
    database_url: str, eventually: Any
) -> None:
    with running(database_url) as server:
        ready(server, node_hours_budget=20)
        server.submit("red", 1, tenant="bio", lease="none")
        assert budgets(server) == {}
        later(server, 10 * HOUR)
        made(server["red"].get(f"{API}/whoami"))
        server.submit("red", 1)  # a turn of the writer: a minute is over
        eventually(lambda: budgets(server).get("bio", 0) >= 0.5)
    with running(database_url) as server:
        assert budgets(server)["bio"] >= 0.5  # before the first pass
        assert server["operator"].delete(f"{API}/tenants/bio").status_code == 204
        later(server, HOUR)
        server.submit("red", 1)
        eventually(lambda: budgets(server) == {})


def test_what_cannot_be_read_leaves_what_was_published(
    server: Server, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready(server, node_hours_budget=20)
    asked = threading.Event()

    def fails(now: int) -> dict[str, float]:
        asked.set()
        raise OSError("the disk is gone")

    server.writer.query(lambda state, _: publish_budgets(state, {"bio": 0.7})).result(PATIENCE)
    monkeypatch.setattr(server.store, "budgets_used", fails)
    later(server, HOUR)
    server.submit("red", 1)
    assert asked.wait(PATIENCE)
    monkeypatch.undo()
    assert budgets(server) == {"bio": 0.7}
    later(server, HOUR)
    server.submit("red", 1)
    eventually(lambda: budgets(server) == {"bio": 0.0})
