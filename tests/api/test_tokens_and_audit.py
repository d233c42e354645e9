"""Tokens are shown once, expire and can be revoked (C3); privileged actions are on record (C13)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

from cede.server import clock
from tests.api.conftest import PATIENCE, Server, made

API = "/api/v1"


def call_with(server: Server, secret: str, path: str = "/whoami") -> int:
    headers = {"Authorization": f"Bearer {secret}"}
    return server["nobody"].get(API + path, headers=headers).status_code


def test_a_token_is_shown_once_and_stored_as_a_hash(server: Server) -> None:
    body = {"name": "ci", "role": "submitter", "subjects": ["team:red"], "expires_in": 60}
    answer = made(server["admin"].post(f"{API}/tokens", json=body))
    secret = answer.pop("token")
    assert call_with(server, secret) == 200
    listed = server["admin"].get(f"{API}/tokens").text
    assert secret not in listed and "hash" not in listed
    assert made(server["admin"].get(f"{API}/tokens/{answer['id']}")) == answer
    stored = server.store.get_token(answer["id"])
    assert secret not in repr(stored)
    assert secret not in server["admin"].get(f"{API}/audit").text


def test_a_repeated_creation_does_not_show_the_secret_again(server: Server) -> None:
    body = {"name": "ci", "role": "viewer"}
    headers = {"Idempotency-Key": "k"}
    secret = made(server["admin"].post(f"{API}/tokens", json=body, headers=headers))["token"]
    again = server["admin"].post(f"{API}/tokens", json=body, headers=headers)
    assert again.status_code == 409
    assert secret not in again.text
    assert again.json()["type"] == "urn:cede:problem:already_created"


def test_revoking_works_within_a_second_also_from_another_server(server: Server) -> None:
    answer = made(server["admin"].post(f"{API}/tokens", json={"name": "t", "role": "viewer"}))
    assert call_with(server, answer["token"]) == 200
    assert server["admin"].delete(f"{API}/tokens/{answer['id']}").status_code == 204
    assert call_with(server, answer["token"]) == 401
    other = made(server["admin"].post(f"{API}/tokens", json={"name": "u", "role": "viewer"}))
    assert call_with(server, other["token"]) == 200
    # Not through this server's API, as if another process had done it.
    token = server.store.get_token(other["id"])
    server.writer.execute(lambda tx: tx.put_token(replace(token, revoked=True))).result(PATIENCE)
    time.sleep(1)
    assert call_with(server, other["token"]) == 401


def test_a_token_expires(server: Server, eventually: Callable[..., None]) -> None:
    body = {"name": "short", "role": "viewer", "expires_in": 1}
    answer = made(server["admin"].post(f"{API}/tokens", json=body))
    assert answer["expires_at"] <= clock.wall(timedelta(seconds=1))
    eventually(lambda: call_with(server, answer["token"]) == 401)


def test_privileged_actions_are_audited_with_their_effect(server: Server) -> None:
    server.pool("gpus", 8)
    policy = server.policy("red", reserved={"gpu": 4})
    admin = server["admin"]
    made(admin.patch(f"{API}/pools/gpus", json={"capacity": {"gpu": 9}}))
    made(admin.patch(f"{API}/policies/{policy['id']}", json={"priority": 3}))
    request = server.submit("red", 9)
    made(admin.post(f"{API}/requests/{request['id']}/cancel"))
    made(server["red"].post(f"{API}/requests/{request['id']}/release", json={"outcome": "stopped"}))
    assert server["red"].delete(f"{API}/requests/{request['id']}").status_code == 204
    token = made(admin.post(f"{API}/tokens", json={"name": "t", "role": "viewer"}))
    admin.delete(f"{API}/tokens/{token['id']}")
    admin.delete(f"{API}/policies/{policy['id']}")
    admin.delete(f"{API}/pools/gpus")
    refused = admin.post(f"{API}/pools", json={"name": "x", "capacity": {}})
    assert refused.status_code == 422
    entries = made(admin.get(f"{API}/audit?limit=500"))["items"]
    assert [each["action"] for each in reversed(entries)] == [
        "pool.create",
        "policy.attach",
        "pool.update",
        "policy.update",
        "request.cancel",
        "request.delete",
        "token.create",
        "token.revoke",
        "policy.detach",
        "pool.delete",
    ]
    assert {each["actor"] for each in entries} == {"admin", "team:red/red"}
    assert all(a["previous"] == b["hash"] for a, b in pairwise(entries))
    assert server.store.verify_audit().broken is None
