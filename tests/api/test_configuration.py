"""`/configuration`: declared whole, made whole, with the traces of single edits."""

from __future__ import annotations

from typing import Any

import pytest

from cede.server.api import costly
from cede.server.api.schemas import AppliedOut, ConfigurationOut
from tests.api.conftest import Server, made

PATH = "/api/v1/configuration"


def policy(team: str, **more: Any) -> dict[str, Any]:
    return {"pool": "gpus", "component": team, "component_type": "team", **more}


SITE: dict[str, Any] = {
    "pools": [{"name": "gpus", "capacity": {"gpu": 8}}],
    "policies": [policy("red", reserved={"gpu": 6}), policy("blue", reserved={"gpu": 2})],
    "tenants": [{"name": "bio", "max_nodes": 2}],
}


def applied(server: Server, wanted: dict[str, Any], query: str = "") -> dict[str, Any]:
    found = made(server["operator"].post(f"{PATH}{query}", json=wanted))
    AppliedOut.model_validate(found)
    return found


def done(found: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(each["do"], each["kind"], each["name"]) for each in found["changes"]]


def test_one_transaction_with_the_traces_of_single_edits(any_server: Server) -> None:
    server = any_server
    assert done(applied(server, SITE)) == [
        ("create", "pool", "gpus"),
        ("create", "policy", "team:red"),
        ("create", "policy", "team:blue"),
        ("create", "tenant", "bio"),
    ]
    assert applied(server, SITE) == {"changes": []}
    exported = made(server["operator"].get(PATH))
    ConfigurationOut.model_validate(exported)
    assert applied(server, exported, "?prune=true") == {"changes": []}
    # Blue gets a new parent, and its old one is gone, in one go.
    below = policy("blue", parent="red", reserved={"gpu": 2})
    applied(server, {"policies": [below]})
    green = policy("green", reserved={"gpu": 4})
    moved = {"policies": [policy("blue", parent="green", reserved={"gpu": 2}), green]}
    assert done(applied(server, moved, "?prune=true")) == [
        ("create", "policy", "team:green"),
        ("update", "policy", "team:blue"),
        ("delete", "policy", "team:red"),
    ]
    applied(server, {"pools": [], "tenants": []}, "?prune=true")
    kinds = [each["kind"] for each in server["operator"].get("/api/v1/events").json()["items"]]
    assert [each for each in kinds if each.startswith(("pool_", "policy_", "tenant_"))] == [
        *("pool_created", "policy_attached", "policy_attached", "tenant_created"),
        *("policy_updated", "policy_attached", "policy_updated", "policy_detached"),
        *("pool_deleted", "tenant_deleted"),
    ]
    noted = [each["action"] for each in server["admin"].get("/api/v1/audit").json()["items"]]
    assert noted[::-1] == [
        *("pool.create", "policy.attach", "policy.attach", "tenant.create"),
        *("policy.update", "policy.attach", "policy.update", "policy.detach"),
        *("pool.delete", "tenant.delete"),
    ]


def test_what_is_refused_changes_nothing(server: Server) -> None:
    wanted = {**SITE, "policies": [*SITE["policies"], policy("green", reserved={"gpu": 1})]}
    refused = server["operator"].post(PATH, json=wanted)
    assert (refused.status_code, refused.json()["field"]) == (422, "policies[2].reserved.gpu")
    assert made(server["operator"].get(PATH)) == {"pools": [], "policies": [], "tenants": []}
    assert server["operator"].post(PATH, json={"pool": []}).json()["field"] == "pool"
    for role in ("viewer", "red"):
        assert server[role].post(PATH, json=SITE).status_code == 403
        assert server[role].get(PATH).status_code == 403


@pytest.mark.parametrize("small", [200, -1], ids=["here", "in a child"])
def test_a_dry_run_says_what_would_change_and_whom_it_concerns(
    server: Server, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    monkeypatch.setattr(costly, "SMALL_STATE", small)
    applied(server, SITE)
    held, waits = server.submit("red", 7), server.submit("blue", 4)
    wanted = {"policies": [policy("red", reserved={"gpu": 4}), policy("blue", reserved={"gpu": 4})]}
    found = applied(server, wanted, "?dry_run=true")
    assert len(found["changes"]) == 2
    assert [(each["request"], each["for"]) for each in found["stops"]] == [
        (held["id"], waits["id"])
    ]
    assert [each["request"] for each in found["starts"]] == [waits["id"]]
    assert applied(server, SITE) == {"changes": []}
    wrong = {"policies": [policy("red", reserved={"gpu": 9})]}
    refused = server["operator"].post(f"{PATH}?dry_run=true", json=wanted | wrong)
    assert (refused.status_code, refused.json()["field"]) == (422, "policies[0].reserved.gpu")
