"""Whether the server says of itself what is true: healthy, unsound, or rolled back."""

from __future__ import annotations

import pytest

from tests.api.conftest import Server

API = "/api/v1"


def test_a_healthy_server_says_so_without_a_token(server: Server) -> None:
    answer = server["nobody"].get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok", "writer": True})


def test_an_unsound_state_is_shown_without_anybodys_names(server: Server) -> None:
    server.writer.trouble = [
        "S1 pool secret-project: 9 gpu held of 8; ['r1.1']",
        "S21 pool secret-project: live is {}, recounted {'gpu': 1}",
        "S21 pool other: live is {}, recounted {'gpu': 1}",
    ]
    answer = server["nobody"].get("/healthz")
    assert answer.status_code == 503
    assert answer.json()["type"] == "urn:cede:problem:unsound"
    assert "(S1, S21)" in answer.json()["detail"]
    assert "secret" not in answer.text
    server.writer.trouble = ["the pass failed: KeyError('secret-project')"]
    failed = server["nobody"].get("/healthz")
    assert failed.status_code == 503
    assert "(the pass failed)" in failed.json()["detail"] and "secret" not in failed.text
    server.writer.trouble = []
    assert server["nobody"].get("/healthz").status_code == 200


def test_nothing_is_changed_for_a_caller_that_has_seen_a_later_index(server: Server) -> None:
    server.pool("gpus", 8)
    server.policy("red", reserved={"gpu": 4})
    mine = server.submit("red", 1)
    ours = server.writer.index
    later = {"Cede-Index-Seen": str(ours + 1)}
    calls = [
        ("POST", "requests", {"resources": {"gpu": 1}}),
        ("POST", f"requests/{mine['id']}/release", {}),
        ("DELETE", f"requests/{mine['id']}", None),
    ]
    for method, path, body in calls:
        refused = server["red"].request(method, f"{API}/{path}", json=body, headers=later)
        assert refused.status_code == 409, path
        assert refused.json()["type"] == "urn:cede:problem:rollback_detected"
        assert str(ours + 1) in refused.json()["detail"]
    assert server.writer.index == ours
    path = f"{API}/requests/{mine['id']}"
    assert server["red"].get(path, headers=later).status_code == 200
    assert server["red"].post(f"{path}/renew", json={}, headers=later).status_code == 200


def test_what_one_caller_claims_to_have_seen_stops_nobody_else(server: Server) -> None:
    server.pool("gpus", 8)
    server.policy("red", reserved={"gpu": 4})
    far = {"Cede-Index-Seen": "9" * 18}
    body = {"resources": {"gpu": 1}}
    assert server["red"].post(f"{API}/requests", json=body, headers=far).status_code == 409
    assert server.submit("red", 1)["status"] == "allocated"
    seen = {"Cede-Index-Seen": str(server.writer.index)}
    assert server["red"].post(f"{API}/requests", json=body, headers=seen).status_code == 201


@pytest.mark.parametrize("given", ["", "-1", "soon", "1e3", "9" * 19, "\u00b2"])
def test_an_index_that_is_none_is_refused(server: Server, given: str) -> None:
    headers = {"Cede-Index-Seen": given.encode("latin-1")}
    answer = server["admin"].post(f"{API}/pools", json={}, headers=headers)
    assert answer.status_code == 422
    assert answer.json()["field"] == "Cede-Index-Seen"
