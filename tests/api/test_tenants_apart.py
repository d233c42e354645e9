"""C1 to C4: every route of the OpenAPI document, file and stream, called by everybody of one tenant
with the ids of another's things: it gets no further than it may, and reads no name of the other's.

Every name that the other tenant has holds a word that is nowhere else; no answer may hold it. A
route that is new in the document is called as well, and fails here until it is said with what.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.api import machines
from tests.api.conftest import Server, made, running
from tests.api.machines import API, Machine

MINE, THEIRS = "crimson", "azure"
METHODS = ("get", "post", "patch", "put", "delete", "head", "options")
FILES = ("/", "/page.js", "/page.css", "/healthz", "/version")
# Who calls: what of MINE there is, machines, and nobody.
CALLERS = [f"{MINE}-viewer", f"{MINE}-submitter", "join", "node", "nobody"]
# Things of one tenant, by the name that they have in a path; the others are everybody's.
PRIVATE = {"/requests/{id}": "request", "/policies/{policy}": "policy"}
PRIVATE |= {"/tenants/{tenant}": "tenant", "/tokens/{id}": "token"}


class World:
    """A server with two tenants that wait, run, claim and have ended."""

    def __init__(self, server: Server) -> None:
        self.server = server
        body = {"name": "yard", "nodes": {"zone": "a"}, "preset": "classes"}
        made(server["admin"].post(f"{API}/pools", json=body))
        self.ids = {team: self._tenant(team) for team in (MINE, THEIRS)}
        for name in ("alpha", "beta"):
            Machine(server, name)
        # A node of another pool: its token has nothing to do with either of them.
        server.secrets["node"] = Machine(server, "idle", labels={"zone": "far"}).token
        for team in (THEIRS, MINE):
            self.ids[team]["request"] = self._submit(team)
            self.ids[team]["ended"] = self._submit(team)
            path = f"{API}/requests/{self.ids[team]['ended']}/cancel"
            made(server[f"{team}-submitter"].post(path))
        # It stops what runs there, and whoever is stopped or waits is told why.
        claim = {"nodes": ["alpha"]}
        made(server[f"{THEIRS}-submitter"].post(f"{API}/nodes/claim", json=claim))

    def _tenant(self, team: str) -> dict[str, str]:
        server, subject = self.server, f"{team}-team"
        tenant = made(server["admin"].post(f"{API}/tenants", json={"name": f"{team}-tenant"}))
        policy = server.policy(subject, "yard", allow_sensitive=True, max_class=9)
        ids = {"tenant": tenant["name"], "policy": policy["id"]}
        for role in ("viewer", "submitter"):
            body = {"name": f"{team}-{role}", "role": role, "subjects": [f"team:{subject}"]}
            token = made(server["admin"].post(f"{API}/tokens", json=body))
            server.secrets[f"{team}-{role}"] = token["token"]
            ids["token"] = token["id"]
        return ids

    def _submit(self, team: str) -> str:
        body = {
            "pool": "yard",
            "resources": {"gpu": 2},
            "labels": {f"{team}-label": f"{team}-value"},
            "work": {"argv": [f"{team}-program"], "env": {f"{team.upper()}_KEY": f"{team}-secret"}},
        }
        answer = self.server[f"{team}-submitter"].post(f"{API}/requests", json=body)
        return str(made(answer)["id"])

    def routes(self) -> list[tuple[str, str, dict[str, Any]]]:
        document = self.server["admin"].get(f"{API}/openapi.json").json()
        found = [
            (method, path, operation)
            for path, operations in document["paths"].items()
            for method, operation in operations.items()
            if method in METHODS
        ]
        assert len(found) > 40
        return found

    def fill(self, path: str, of: str) -> str:
        for start, thing in PRIVATE.items():
            if path.startswith(API + start):
                name = re.findall(r"\{\w+\}", start)[0]
                path = path.replace(name, self.ids[of][thing], 1)
        path = path.replace("{pool}", "yard").replace("{node}", "alpha")
        assert "{" not in path, f"{path}: say in this file what stands there"
        return path


def bodies(team: str) -> dict[tuple[str, str], Any]:
    """What is sent, by route: what could do or tell most. Subjects are those of the other."""
    request = {"component": f"{team}-team", "component_type": "team", "resources": {"gpu": 1}}
    return {
        ("post", "/pools"): {"name": "other", "capacity": {"gpu": 1}},
        ("patch", "/pools/{pool}"): {"description": "x"},
        ("post", "/policies"): {"pool": "yard", "component": "green"},
        ("patch", "/policies/{policy}"): {"priority": 10},
        ("post", "/tenants"): {"name": "new"},
        ("patch", "/tenants/{tenant}"): {"max_nodes": 4},
        ("patch", "/requests/{id}"): {"limit": {"gpu": 4}},
        ("post", "/requests"): request,
        ("post", "/requests/bulk"): {"requests": [request]},
        ("post", "/requests/{id}/renew"): {"attempt": 1, "running": True},
        ("post", "/requests/{id}/release"): {"outcome": "done"},
        ("post", "/requests/{id}/hand-over"): {"attempt": 1, "work": {"argv": ["true"]}},
        ("post", "/requests/{id}/said"): {"kind": "progress"},
        ("post", "/plan"): {"pools": []},
        ("post", "/configuration"): {"pools": [{"name": "other", "capacity": {"gpu": 1}}]},
        ("post", "/links/open"): {"code": "nobody's"},
        ("post", "/tokens"): {"name": "t", "role": "viewer"},
        ("post", "/nodes/claim"): {"nodes": ["alpha"]},
        ("post", "/nodes/unclaim"): {"nodes": ["alpha"]},
        ("post", "/nodes/{node}/drain"): {"reason": "x"},
        ("post", "/nodes/{node}/disable"): {"reason": "x"},
        ("post", "/agent/register"): machines.body("alpha"),
        ("post", "/bridge/register"): {
            "protocol": 3,
            "name": "slurm",
            "boot": "boot",
            "session": "first",
            "nodes": [{"name": "alpha", "amounts": {"gpu": 1}}],
        },
        ("post", "/agent/heartbeat"): {"protocol": 1, "boot": "boot of idle"},
    }


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running(f"sqlite:///{tmp_path_factory.mktemp('apart') / 'cede.db'}") as server:
        yield World(server)


@pytest.mark.parametrize("caller", CALLERS)
def test_nothing_of_another_tenant_is_read_or_changed(world: World, caller: str) -> None:
    sent = bodies(THEIRS)
    before = _theirs(world)
    for method, path, operation in world.routes():
        body = sent.get((method, path.removeprefix(API)))
        if operation.get("requestBody", {}).get("required"):
            assert body is not None, f"{method} {path}: say in this file what to send"
        url = world.fill(path, THEIRS)
        more = {} if body is None else {"json": body}
        answer = world.server[caller].request(method.upper(), url, **more)
        where = (caller, method, path, answer.status_code, answer.text[:2_000])
        assert answer.status_code < 500, where
        # What was sent may come back: the component that a token is not bound to.
        text = answer.text.replace(f"team:{THEIRS}-team", "") if body else answer.text
        assert THEIRS not in text.lower(), where
        if any(path.startswith(API + start) for start in PRIVATE):
            assert answer.status_code in (401, 403, 404), where
    assert _theirs(world) == before


def _theirs(world: World) -> list[Any]:
    """What the other tenant's things are, to somebody who may see them."""
    ids, admin = world.ids[THEIRS], world.server["admin"]
    paths = [f"requests/{ids['request']}", f"policies/{ids['policy']}", f"tenants/{ids['tenant']}"]
    shown = [made(admin.get(f"{API}/{each}")) for each in [*paths, "nodes/alpha"]]
    return [
        [shown[0]["status"], shown[0]["limit"], shown[0]["attempt"]],
        [shown[1]["priority"], shown[1]["reserved"]],
        [shown[2]["name"], shown[2].get("max_nodes")],
        [shown[3]["claimed_by"], shown[3]["out"]],
    ]


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("path", FILES)
def test_files_tell_nothing(world: World, caller: str, path: str) -> None:
    answer = world.server[caller].get(path)
    assert answer.status_code == 200
    assert THEIRS not in answer.text.lower() and MINE not in answer.text.lower()


@pytest.mark.parametrize("caller", CALLERS[:2])
def test_the_stream_of_events_is_ones_own(world: World, caller: str) -> None:
    mine = world.ids[MINE]["ended"]
    headers = {"Accept": "text/event-stream"}
    path = f"{API}/events?after=0"
    heard = ""
    with world.server[caller].stream("GET", path, headers=headers) as answer:
        for line in answer.iter_lines():
            heard += line
            # Theirs came first, so it would have been heard by then.
            if mine in line and "cancelled" in line:
                break
    assert mine in heard
    assert THEIRS not in heard.lower() and world.ids[THEIRS]["request"] not in heard


def test_the_words_are_there_to_be_found(world: World) -> None:
    """The searches above can fail: whoever may see these names is shown them."""
    for path in ("requests", "policies", "nodes", "pools/yard/shares", "events"):
        for who in (f"{THEIRS}-viewer", "viewer"):
            text = world.server[who].get(f"{API}/{path}").text.lower()
            assert THEIRS in text, (who, path, text)
    waits = world.ids[MINE]["request"]
    assert THEIRS in world.server["viewer"].get(f"{API}/requests/{waits}/why").text.lower()
