"""`?dry_run=true` of an edit says whom it would stop or pause, and changes nothing."""

from __future__ import annotations

from typing import Any

from cede.server.api import costly
from cede.server.api.schemas import DryRunOut
from tests.api.conftest import Server, made

API = "/api/v1"


def tried(server: Server, method: str, path: str, **body: Any) -> dict[str, Any]:
    response = server["operator"].request(method, f"{API}{path}?dry_run=true", json=body or None)
    found = made(response)
    DryRunOut.model_validate(found)
    return found


def test_a_dry_run_names_whom_an_edit_stops_and_pauses(any_server: Server) -> None:
    server = any_server
    server.pool("gpus", 8)
    red = server.policy("red", limit={"gpu": 8})
    blue = server.policy("blue", limit={"gpu": 8})
    holder, waiter = server.submit("red", 6), server.submit("red", 6)
    beside = server.submit("blue", 4)
    found = tried(server, "PATCH", f"/policies/{blue['id']}", reserved={"gpu": 4})
    assert [(each["request"], each["for"]) for each in found["stops"]] == [
        (holder["id"], beside["id"])
    ]
    found = tried(server, "PATCH", f"/policies/{red['id']}", limit={"gpu": 4})
    assert [each["request"] for each in found["pauses"]] == [waiter["id"]]
    found = tried(server, "PATCH", "/pools/gpus", capacity={"gpu": 16})
    assert {each["request"] for each in found["starts"]} == {beside["id"]}
    new = {"pool": "gpus", "component": "green", "component_type": "team", "priority": 1}
    assert tried(server, "POST", "/policies", **new)["counts"]["stops"] == 0
    policies = server["operator"].get(f"{API}/policies").json()["items"]
    assert [(each["name"], each["reserved"], each["limit"]["gpu"]) for each in policies] == [
        ("red", {}, 8),
        ("blue", {}, 8),
    ]
    shown = server["operator"].get(f"{API}/requests/{holder['id']}").json()
    assert shown["status"] == "allocated"


def test_an_edit_that_is_refused_is_refused_dry_as_well(server: Server, monkeypatch: Any) -> None:
    monkeypatch.setattr(costly, "SMALL_STATE", -1)  # in a child process
    server.pool("gpus", 8)
    red = server.policy("red")
    path = f"{API}/policies/{red['id']}?dry_run=true"
    refused = server["operator"].patch(path, json={"limit": {"gpu": 9}})
    assert (refused.status_code, refused.json()["field"]) == (422, "limit.gpu")
    assert made(server["operator"].patch(path, json={"limit": {"gpu": 4}}))["counts"]["stops"] == 0
    denied = server["red"].patch(path, json={"limit": {"gpu": 4}})
    assert denied.status_code == 403
