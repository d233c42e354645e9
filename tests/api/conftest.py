"""A real server on a real port: store, writer, app and uvicorn, with tokens of every role."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from cede.model.subject import Subject
from cede.model.token import Role, Token, node_subject
from cede.server import clock, tokens
from cede.server.api.app import close_streams, create_app
from cede.server.config import Config
from cede.server.connections import Connections
from cede.server.history import History
from cede.server.ids import new_id
from cede.server.tx import Tx
from cede.server.writer import Writer
from cede.store import Store
from tests.api import listening
from tests.support import databases

PATIENCE = 60.0  # seconds that anything may take before a test gives up
RED, BLUE = Subject("team", "red"), Subject("team", "blue")
# name: (role, subjects)
TOKENS: dict[str, tuple[Role, tuple[Subject, ...]]] = {
    "viewer": (Role.VIEWER, ()),
    "red-viewer": (Role.VIEWER, (RED,)),
    "red": (Role.SUBMITTER, (RED,)),
    "blue": (Role.SUBMITTER, (BLUE,)),
    "operator": (Role.OPERATOR, ()),
    "admin": (Role.ADMIN, ()),
    "join": (Role.JOIN, ()),
    # Of a node that there is not; a test that needs one registers it.
    "node": (Role.NODE, (node_subject("none"),)),
}


@dataclass
class Server:
    """One running server, and a client for each of its tokens."""

    url: str
    app: FastAPI
    store: Store
    writer: Writer
    secrets: dict[str, str]
    connections: Connections
    clients: dict[str, httpx2.Client] = field(default_factory=dict)

    def __getitem__(self, name: str) -> httpx2.Client:
        """The client that speaks with the token of this name; `nobody` has none."""
        if name not in self.clients:
            self.clients[name] = self.client(None if name == "nobody" else self.secrets[name])
        return self.clients[name]

    def client(self, secret: str | None) -> httpx2.Client:
        """A client of its own, for whoever closes it."""
        return httpx2.Client(
            base_url=self.url,
            headers={} if secret is None else {"Authorization": f"Bearer {secret}"},
            timeout=PATIENCE,
            trust_env=False,
            verify=False,  # plain HTTP; reading certificates takes longer than most tests
        )

    def pool(self, name: str = "gpus", gpu: int = 8, **fields: Any) -> dict[str, Any]:
        body = {"name": name, "capacity": {"gpu": gpu}, **fields}
        return made(self["admin"].post("/api/v1/pools", json=body))

    def policy(self, team: str, pool: str = "gpus", **fields: Any) -> dict[str, Any]:
        body = {"pool": pool, "component": team, "component_type": "team", **fields}
        return made(self["admin"].post("/api/v1/policies", json=body))

    def submit(self, who: str, gpu: int = 1, **fields: Any) -> dict[str, Any]:
        body = {"resources": {"gpu": gpu}, **fields}
        return made(self[who].post("/api/v1/requests", json=body))


def made(response: httpx2.Response) -> dict[str, Any]:
    assert response.status_code in (200, 201), response.text
    answer: dict[str, Any] = response.json()
    return answer


# The description of the API is the same for every app, and takes a second to make.
_described: list[dict[str, Any]] = []


@contextmanager
def running(url: str) -> Iterator[Server]:
    databases.give_tables(url)
    store = Store(url)
    store.migrate()
    store.take_over()
    writer = Writer(store, store.load(), on_fatal=lambda error: None)
    writer.start()
    History(store, writer, {}).turn()  # as `run` does: it notes the time of day
    secrets = _make_tokens(writer)
    app = create_app(store, writer, Config(data=Path(), database=url))
    app.openapi_schema = _described[0] if _described else None
    with listening.at_a_port(app) as port:
        where = f"http://127.0.0.1:{port.number}"
        found = Server(where, app, store, writer, secrets, port.connections)
        try:
            yield found
        finally:
            for client in found.clients.values():
                client.close()
            close_streams(app)
    if app.openapi_schema is not None:
        _described[:] = [app.openapi_schema]
    writer.stop()
    store.close()


def _make_tokens(writer: Writer) -> dict[str, str]:
    """One of each kind, in one commit: by name, its secret."""
    secrets: dict[str, str] = {}

    def put_all(tx: Tx) -> None:
        for name, (role, subjects) in TOKENS.items():
            secrets[name], digest = tokens.new_token()
            tx.put_token(Token(new_id(), name, role, subjects, digest, clock.wall()))

    writer.execute(put_all).result(PATIENCE)
    return secrets


@pytest.fixture(scope="session", autouse=True)
def _ports() -> Iterator[None]:
    yield
    listening.stop_all()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A fresh server on SQLite."""
    with running(f"sqlite:///{tmp_path / 'cede.db'}") as found:
        yield found


@pytest.fixture
def farm(server: Server) -> Server:
    """A pool of nodes in which red and blue have a place."""
    made(server["admin"].post("/api/v1/pools", json={"name": "farm", "nodes": {"zone": "a"}}))
    server.policy("red", "farm", priority=1)
    server.policy("blue", "farm", priority=2)
    return server


@pytest.fixture
def any_server(database_url: str) -> Iterator[Server]:
    """A fresh server, once on each kind of database."""
    with running(database_url) as found:
        yield found


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for a whole file, with a pool and policies for red and blue."""
    with running(f"sqlite:///{tmp_path_factory.mktemp('api') / 'cede.db'}") as found:
        found.pool("gpus", 8)
        found.policy("red", reserved={"gpu": 4}, priority=10)
        found.policy("blue", reserved={"gpu": 4}, priority=10)
        yield found


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], None]:
    def wait(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.02)

    return wait
