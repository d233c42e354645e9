"""The life of a request over HTTP, on both databases where it matters."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from cede.server.api import plan_process
from cede.server.api.schemas import BulkOut, HeldOut, PolicyOut, PoolOut
from tests.api.conftest import Server, made

API = "/api/v1"


def ready(server: Server, gpu: int = 8) -> Server:
    server.pool("gpus", gpu)
    server.policy("red", reserved={"gpu": gpu // 2}, priority=10)
    server.policy("blue", reserved={"gpu": gpu // 2}, priority=10)
    return server


def get(server: Server, who: str, path: str) -> dict[str, Any]:
    return made(server[who].get(API + path))


def post(server: Server, who: str, path: str, **body: Any) -> dict[str, Any]:
    return made(server[who].post(API + path, json=body))


def test_a_comment_is_for_people_and_decides_nothing(any_server: Server) -> None:
    server = ready(any_server)
    request = server.submit("red", 2, comment="for Friday's demo")
    assert request["comment"] == "for Friday's demo"
    assert get(server, "red", f"/requests/{request['id']}")["comment"] == "for Friday's demo"
    assert [each["comment"] for each in get(server, "red", "/requests")["items"]] == [
        "for Friday's demo"
    ]
    assert server.submit("red", 2)["comment"] == ""
    assert "Friday" not in server["admin"].get(f"{API}/snapshot").text


def test_submitted_granted_renewed_released(any_server: Server) -> None:
    server = ready(any_server)
    request = server.submit("red", 2, walltime=3600, labels={"job": "a"}, lease=30)
    HeldOut.model_validate(request)
    assert (request["status"], request["pool"], request["component"]) == (
        "allocated",
        "gpus",
        "red",
    )
    assert request["resources"] == {"gpu": 2, "step_run": 1}
    assert request["allocation"]["id"] == request["id"] + ".1"
    pool = get(server, "red", "/pools/gpus")
    PoolOut.model_validate(pool)
    assert (pool["occupied"], pool["free"], pool["active"]) == ({"gpu": 2}, {"gpu": 6}, 1)
    policy = get(server, "red", "/policies?component=red")["items"][0]
    PolicyOut.model_validate(policy)
    assert policy["occupied"]["gpu"] == 2

    path = f"/requests/{request['id']}"
    renewed = post(server, "red", path + "/renew", attempt=1, running=True)
    assert renewed["allocation"]["state"] == "running"
    stale = server["red"].post(API + path + "/renew", json={"attempt": 2})
    assert (stale.status_code, stale.json()["type"]) == (409, "urn:cede:problem:stale_fence")
    released = post(server, "red", path + "/release", outcome="done", attempt=1)
    assert (released["status"], released["allocation"]["state"]) == ("released", "ended")
    assert get(server, "red", path)["status"] == "released"
    assert get(server, "red", "/pools/gpus")["free"] == {"gpu": 8}

    # Afterwards everything is told as it is, and nothing changes any more.
    assert post(server, "red", path + "/renew")["status"] == "released"
    assert post(server, "red", path + "/release")["status"] == "released"
    assert server["red"].post(API + path + "/cancel").status_code == 409
    assert get(server, "red", path + "/why")["status"] == "released"
    assert server["red"].delete(API + path).status_code == 204
    assert server["red"].get(API + path).status_code == 404


def test_a_waiter_is_told_why_and_can_be_cancelled(any_server: Server) -> None:
    server = ready(any_server)
    server.submit("red", 8, preemptible=True)
    waiting = server.submit("red", 4)
    assert waiting["status"] == "queued"
    path = f"/requests/{waiting['id']}"
    shown = get(server, "red", path)
    assert shown["reason"]["text"] and shown["reason"]["code"] and "fix" in shown["reason"]
    why = get(server, "red", path + "/why")
    assert why["reason"]["code"] == shown["reason"]["code"]
    assert get(server, "red", "/requests?explain=true&status=queued")["items"][0]["reason"]
    assert get(server, "red", "/pools/gpus/requests?view=queued")["items"][0]["id"] == waiting["id"]
    assert len(get(server, "red", "/pools/gpus/requests?view=active")["items"]) == 1
    assert len(get(server, "red", "/pools/gpus/requests")["items"]) == 2
    assert post(server, "red", path + "/cancel")["status"] == "cancelled"
    assert len(get(server, "red", "/pools/gpus/requests")["items"]) == 1
    assert post(server, "red", path + "/cancel")["status"] == "cancelled"


def test_a_holder_learns_by_renewing_that_it_must_stop(server: Server) -> None:
    ready(server)
    holder = server.submit("red", 8, retry={"max_retries": 1})
    owner = server.submit("blue", 4)
    assert owner["status"] == "queued" and owner["earmark"] == {"pool": "gpus"}
    told = post(server, "red", f"/requests/{holder['id']}/renew", attempt=1)
    assert told["status"] == "preempting"
    assert told["reason"]["code"] == "reclaim"
    assert told["allocation"]["deadline"] > told["allocation"]["allocated_at"]
    back = post(server, "red", f"/requests/{holder['id']}/release", outcome="stopped", attempt=1)
    assert (back["status"], back["attempt"], back["preempted_count"]) == ("queued", 2, 1)
    assert back["allocation"] is None
    assert get(server, "blue", f"/requests/{owner['id']}")["status"] == "allocated"


def test_what_can_never_be_granted_is_rejected_at_once(server: Server) -> None:
    ready(server)
    rejected = server.submit("red", 9)
    assert rejected["status"] == "rejected"
    assert "exceeds the capacity 8" in rejected["reason"]["text"]
    refused = server["admin"].post(f"{API}/requests", json={"component": "x", "kind": "work"})
    assert refused.status_code == 422
    assert refused.json()["reason"]["code"] == "no_policy"


def test_a_step_without_any_policy_runs_untracked(server: Server) -> None:
    untracked = made(server["admin"].post(f"{API}/requests", json={"component": "x"}))
    HeldOut.model_validate(untracked)
    assert (untracked["id"], untracked["tracked"]) == (None, False)
    assert untracked["reason"]["code"] == "untracked"
    # It leaves no gap in the journal: the writer goes on.
    server.pool("gpus", 1)
    assert server["nobody"].get("/healthz").status_code == 200


def test_settings_become_amounts(server: Server) -> None:
    ready(server)
    settings = {"gpu_count": 1, "cpu_count": 2.5, "memory": "16GiB", "preemptible": False}
    request = post(server, "red", "/requests", settings=settings)
    wanted = {"gpu": 1, "mcpu": 2500, "memory_mb": 17180, "step_run": 1}
    assert request["resources"] == wanted
    assert request["preemptible"] is False


def test_a_holder_that_is_deleted_is_asked_to_stop_first(server: Server) -> None:
    ready(server)
    holder = server.submit("red", 1)
    response = server["red"].delete(f"{API}/requests/{holder['id']}")
    assert response.status_code == 202
    assert response.json()["status"] == "preempting"
    post(server, "red", f"/requests/{holder['id']}/release", outcome="stopped")
    assert server["red"].delete(f"{API}/requests/{holder['id']}").status_code == 204
    server.submit("red", 8)
    waiting = server.submit("red", 8)
    assert server["red"].delete(f"{API}/requests/{waiting['id']}").status_code == 204


def test_bulk_items_succeed_or_fail_alone(any_server: Server) -> None:
    server = ready(any_server)
    items = [
        {"resources": {"gpu": 1}},
        {"resources": {"gpu": -1}},
        {"component": "blue", "component_type": "team"},
        {"pool": "nowhere"},
        {"resources": {"gpu": 9}},
        "what",
        {"resources": {"gpu": 2}, "pool": "gpus"},
    ]
    answer = post(server, "red", "/requests/bulk", requests=items)
    BulkOut.model_validate(answer)
    found = answer["items"]
    assert [each["status"] for each in found] == [201, 422, 403, 404, 201, 422, 201]
    assert found[0]["request"]["status"] == "allocated"
    assert found[1]["error"]["field"] == "resources.gpu"
    assert found[2]["error"]["type"] == "urn:cede:problem:forbidden"
    assert found[4]["request"]["status"] == "rejected"
    assert found[6]["request"]["pool"] == "gpus"
    assert len(get(server, "red", "/requests")["items"]) == 3


def test_one_key_and_one_body_is_one_request(any_server: Server) -> None:
    server = ready(any_server)
    body = {"resources": {"gpu": 1}}
    headers = {"Idempotency-Key": "one"}
    client = server["red"]

    def send(_: int) -> dict[str, Any]:
        return made(client.post(f"{API}/requests", json=body, headers=headers))

    with ThreadPoolExecutor(8) as many:
        answers = list(many.map(send, range(100)))
    assert all(each == answers[0] for each in answers)
    assert len(get(server, "red", "/requests")["items"]) == 1

    reused = client.post(f"{API}/requests", json={"resources": {"gpu": 2}}, headers=headers)
    assert reused.status_code == 409
    assert reused.json()["type"] == "urn:cede:problem:idempotency_key_reused"
    # Keys are the caller's own: blue's "one" is another one.
    blues = made(server["blue"].post(f"{API}/requests", json=body, headers=headers))
    assert blues["id"] != answers[0]["id"]


def test_a_refusal_is_not_remembered(server: Server) -> None:
    headers = {"Idempotency-Key": "later"}
    body = {"resources": {"gpu": 1}, "kind": "work"}
    assert server["red"].post(f"{API}/requests", json=body, headers=headers).status_code == 422
    ready(server)
    made(server["red"].post(f"{API}/requests", json=body, headers=headers))


def test_pages_show_everything_once_and_cursors_cannot_be_forged(any_server: Server) -> None:
    server = ready(any_server)
    sent = [{"resources": {"gpu": 1}, "labels": {"n": str(n % 2)}} for n in range(25)]
    post(server, "red", "/requests/bulk", requests=sent)
    seen: list[str] = []
    cursor = ""
    while True:
        page = get(server, "red", "/requests?limit=10" + cursor)
        seen += [each["id"] for each in page["items"]]
        if page["next"] is None:
            break
        last, cursor = page["next"], f"&cursor={page['next']}"
    assert len(seen) == len(set(seen)) == 25
    for bad in (last[:-2] + "xx", last + "A", "W10", "e30", ""):
        response = server["red"].get(f"{API}/requests?limit=10&cursor={bad}")
        assert response.status_code == 422, bad
        assert response.json()["field"] == "cursor"
    # A cursor belongs to its list and filters, also to what its token may see.
    assert server["red"].get(f"{API}/requests?status=queued&cursor={last}").status_code == 422
    assert server["blue"].get(f"{API}/requests?cursor={last}").status_code == 422


FILTERS = {
    "status=allocated": 3,
    "status=allocated&status=queued": 4,
    "status=queued": 1,
    "component=red": 3,
    "component=blue&component_type=team": 1,
    "component_type=user": 0,
    "preemptible=false": 1,
    "label.job=a": 2,
    "label.job=a&label.rank=1": 1,
    "pool=gpus": 4,
}


def test_lists_can_be_narrowed(server: Server) -> None:
    ready(server)
    server.submit("red", 2, labels={"job": "a", "rank": "1"}, preemptible=False)
    server.submit("red", 2, labels={"job": "a"})
    server.submit("blue", 4)
    server.submit("red", 1)
    for query, number in FILTERS.items():
        assert len(get(server, "admin", f"/requests?{query}")["items"]) == number, query


def test_ids_may_be_shortened_and_pools_named(server: Server) -> None:
    ready(server)
    pool = get(server, "admin", "/pools/gpus")
    request = server.submit("red", 1)
    assert get(server, "red", f"/requests/{request['id'][:30]}")["id"] == request["id"]
    assert get(server, "red", f"/pools/{pool['id'][:20]}")["name"] == "gpus"
    made(server["admin"].patch(f"{API}/pools/{pool['id'][:20]}", json={"capacity": {"gpu": 10}}))
    assert get(server, "red", "/pools/gpus")["capacity"] == {"gpu": 10}
    in_use = server["admin"].delete(f"{API}/pools/gpus")
    assert in_use.status_code == 409
    assert "active=1" in in_use.json()["detail"]


def test_a_snapshot_can_be_planned(server: Server) -> None:
    ready(server)
    server.submit("red", 8)
    server.submit("blue", 8)
    snapshot = get(server, "operator", "/snapshot")
    plan = post(server, "red", "/plan?until_rest=true", **snapshot)
    assert plan["at_rest"] is True


def test_a_plan_loads_no_web_framework_and_no_store() -> None:
    """Each plan starts a process, and these would be most of what it costs."""
    program = f"import {plan_process.__name__}, sys; print(*sys.modules)"
    modules = subprocess.check_output([sys.executable, "-c", program], text=True).split()
    assert "cede.engine.decide" in modules
    assert not {"fastapi", "starlette", "pydantic", "sqlalchemy", "cede.store"} & set(modules)


@pytest.mark.parametrize("bad", ["horizon=-1", "horizon=x", "until_rest=perhaps"])
def test_a_bad_plan_is_refused(server: Server, bad: str) -> None:
    assert server["red"].post(f"{API}/plan?{bad}", json={"pools": []}).status_code == 422


def test_a_step_of_somebody_without_a_policy_runs_untracked_under_any_token(
    any_server: Server,
) -> None:
    """A token that counts some stacks must not break the others; those with a policy stay apart."""
    server = ready(any_server)
    step = {"component": "default", "component_type": "orchestrator", "resources": {"gpu": 1}}
    answer = server["red"].post(f"{API}/requests", json=step)
    assert (answer.status_code, answer.json()["status"]) == (200, "untracked")
    # What is counted needs a token that is bound to it.
    for more in (
        {"kind": "work"},
        {"pool": "gpus"},
        {"component": "blue", "component_type": "team"},
    ):
        refused = server["red"].post(f"{API}/requests", json={**step, **more})
        assert refused.status_code == 403, more
        assert refused.json()["field"] == "component"
    assert get(server, "admin", "/requests")["items"] == []
