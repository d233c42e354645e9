"""C1 and C2: every route of the router, with every role, for one's own and for others' requests."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.routing import APIRoute

from cede.model.token import Role
from cede.server.api.permissions import PERMISSIONS
from cede.server.api.route import CedeRoute
from tests.api import machines
from tests.api.conftest import TOKENS, Server

LINK = "/api/v1/links/open"
OPEN = {"/", "/page.js", "/page.css", "/healthz", "/readyz", "/version", LINK}
CALLERS = ["nobody", *TOKENS]


def routes_of(server: Server) -> list[tuple[str, str]]:
    """What the router really has; not a list that somebody keeps."""
    return [
        (method, route.path)
        for route in server.app.routes
        if isinstance(route, APIRoute)
        for method in sorted(route.methods)
    ]


def test_every_route_is_ours_and_has_exactly_one_permission(shared: Server) -> None:
    assert all(isinstance(route, CedeRoute) for route in shared.app.routes)
    found = routes_of(shared)
    assert len(found) == len(set(found)) > 30
    assert set(found) == set(PERMISSIONS)


def test_only_the_static_page_health_and_version_are_open(shared: Server) -> None:
    assert {path for (_, path), each in PERMISSIONS.items() if each.role is None} == OPEN


def test_machines_stand_beside_the_ladder() -> None:
    """Whoever may more may not do what a machine does, and a machine does nothing else."""
    for role in Role:
        assert role.covers(role)
        for other in Role:
            if role is not other and (role.machine or other.machine):
                assert not role.covers(other), (role, other)
    allowed = {
        role: {path for (_, path), each in PERMISSIONS.items() if each.role and each.allows(role)}
        for role in (Role.JOIN, Role.NODE)
    }
    assert allowed[Role.JOIN] == {"/api/v1/agent/register", "/api/v1/bridge/register"}
    assert allowed[Role.NODE] == {*allowed[Role.JOIN], "/api/v1/agent/heartbeat"}


def test_a_route_without_a_permission_is_denied(
    shared: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(PERMISSIONS, ("GET", "/version"))
    assert shared["admin"].get("/version").status_code == 403


def test_nobody_gets_in_without_a_token(shared: Server) -> None:
    for method, path in routes_of(shared):
        response = shared["nobody"].request(method, path.replace("{", "").replace("}", ""))
        if path in OPEN:
            # A link is opened by its code, and this is a call without any.
            assert response.status_code == (422 if path == LINK else 200), path
        else:
            assert response.status_code == 401, (method, path)
            assert response.headers["www-authenticate"].startswith("Bearer")
            assert response.json()["type"] == "urn:cede:problem:unauthenticated"


BAD_HEADERS = {
    "not ours": "Bearer abc",
    "another scheme": "Basic YTpi",
    "a wrong checksum": "Bearer cede_" + "0" * 49,
    "no secret": "Bearer",
    "huge": "Bearer cede_" + "a" * 20_000,
}


@pytest.mark.parametrize("name", BAD_HEADERS)
def test_bad_authorization_is_401(shared: Server, name: str) -> None:
    headers = {"Authorization": BAD_HEADERS[name]}
    response = shared["nobody"].get("/api/v1/pools", headers=headers)
    assert response.status_code == 401
    assert "cede_0" not in response.text


def test_two_authorizations_are_refused(shared: Server) -> None:
    given = [("Authorization", f"Bearer {shared.secrets[name]}") for name in ("admin", "red")]
    assert shared["nobody"].get("/api/v1/pools", headers=given).status_code == 400


# Bodies that every role could send; what is denied is denied whatever they say.
BODIES: dict[tuple[str, str], Any] = {
    ("POST", "/api/v1/pools"): {"name": "other", "capacity": {"gpu": 1}},
    ("PATCH", "/api/v1/pools/{pool}"): {"description": "x"},
    ("POST", "/api/v1/policies"): {"pool": "gpus", "component": "green"},
    ("PATCH", "/api/v1/policies/{policy}"): {"priority": 10},
    ("POST", "/api/v1/tenants"): {"name": "new"},
    ("PATCH", "/api/v1/tenants/{tenant}"): {"max_nodes": 4},
    ("PATCH", "/api/v1/requests/{id}"): {"limit": {"gpu": 4}},
    ("POST", "/api/v1/requests"): {"component": "red", "component_type": "team"},
    ("POST", "/api/v1/requests/bulk"): {
        "requests": [{"component": "red", "component_type": "team"}]
    },
    ("POST", "/api/v1/plan"): {"pools": []},
    ("POST", "/api/v1/configuration"): {"tenants": [{"name": "declared"}]},
    ("POST", "/api/v1/tokens"): {"name": "t", "role": "viewer"},
    ("POST", "/api/v1/requests/{id}/said"): {"kind": "progress"},
    ("POST", "/api/v1/requests/{id}/hand-over"): {"attempt": 1, "work": {"argv": ["true"]}},
    ("POST", "/api/v1/nodes/claim"): {"nodes": ["mine"]},
    ("POST", "/api/v1/nodes/unclaim"): {"nodes": ["mine"]},
    ("POST", "/api/v1/agent/register"): machines.body("mine"),
    ("POST", "/api/v1/agent/heartbeat"): {"protocol": 1, "boot": "boot of mine"},
    ("POST", "/api/v1/bridge/register"): {
        "protocol": 3,
        "name": "slurm",
        "boot": "mark",
        "session": "first",
        "machine": "mark",
        "nodes": [{"name": "bridged", "amounts": {"gpu": 1}}],
    },
}


def expected(caller: str, method: str, path: str, owner: str) -> int:
    """The matrix in words: what the answer must be; 200 stands for any success."""
    permission = PERMISSIONS[method, path]
    role, subjects = TOKENS[caller]
    assert permission.role is not None
    if not permission.allows(role) or (permission.whole and subjects):
        return 403
    if path.endswith("/bridge/register") and role is Role.NODE:
        return 403  # a node's token is no bridge's (C8)
    if role.machine:
        return 200
    sees = role >= Role.OPERATOR or not subjects or owner in {each.name for each in subjects}
    if path.startswith(("/api/v1/requests/{id}", "/api/v1/policies/{policy}")) and not sees:
        return 404
    if (method, path) == ("POST", "/api/v1/requests") and not sees:
        return 403
    return 200


# The others the quick loop leaves to the whole suite.
QUICK = {
    ("viewer", "red"), ("red-viewer", "blue"), ("red", "red"), ("red", "blue"), ("operator", "red"),
    ("node", "red"),
}  # fmt: skip
PAIRS = [
    pytest.param(caller, owner, marks=() if (caller, owner) in QUICK else pytest.mark.slow)
    for caller in TOKENS
    for owner in ("red", "blue")
]


@pytest.mark.parametrize(("caller", "owner"), PAIRS)
def test_every_role_on_every_route(server: Server, caller: str, owner: str) -> None:
    server.pool("gpus", 8)
    server.policy("red", reserved={"gpu": 4})
    server.policy("blue", reserved={"gpu": 4})
    server.secrets["node"] = machines.Machine(server, "mine").token
    everything = [each for each in routes_of(server) if PERMISSIONS[each].role is not None]
    for method, path in everything:
        if path.endswith("/events"):
            query = "?after=0"
        else:
            query = ""
        body = BODIES.get((method, path))
        if body is not None and path == "/api/v1/requests":
            body = body | {"component": owner}
        url = _fill(server, path, owner) + query
        response = server[caller].request(method, url, **({"json": body} if body else {}))
        wanted = expected(caller, method, path, owner)
        got = 200 if response.is_success else response.status_code
        if path.endswith("/logs") and got == 409:
            got = 200  # permitted: the client that holds this request has what it wrote
        if path.endswith("/hand-over") and got == 409:
            got = 200  # permitted: but it holds no node
        if path.endswith("claim") and got in (409, 422):
            got = 200  # permitted: but there is no sensitive work that it may be for
        if path.endswith("/pools/{pool}/enable") and got == 409:
            got = 200  # permitted: but nothing was restored
        assert got == wanted, (caller, method, url, response.text)


def _node_for(server: Server, action: str) -> str:
    """A fresh node on which the action makes sense."""
    name = f"spare-{server.writer.index}"
    machines.Machine(server, name)
    before = {"undrain": "drain", "enable": "disable"}.get(action)
    if before is not None:
        assert server["operator"].post(f"/api/v1/nodes/{name}/{before}").is_success
    return name


def _fill(server: Server, path: str, owner: str) -> str:
    """A fresh thing of this owner for each call, so that deleting one does not spoil the next."""
    if "{id}" in path and "requests" in path:
        path = path.replace("{id}", server.submit(owner, 1)["id"])
    elif "{id}" in path:
        body = {"name": "spare", "role": "viewer"}
        path = path.replace("{id}", server["admin"].post("/api/v1/tokens", json=body).json()["id"])
    elif "{node}" in path:
        path = path.replace("{node}", _node_for(server, path.rpartition("/")[2]))
    elif "{policy}" in path:
        pool = server.pool(f"spare-{server.writer.index}", 1)
        path = path.replace("{policy}", server.policy(owner, pool["name"])["id"])
    elif "{tenant}" in path:
        name = f"spare-{server.writer.index}"
        server["admin"].post("/api/v1/tenants", json={"name": name})
        path = path.replace("{tenant}", name)
    elif path == "/api/v1/pools/{pool}":
        path = path.replace("{pool}", server.pool(f"spare-{server.writer.index}", 1)["name"])
    return path.replace("{pool}", "gpus")
