"""Two servers on one PostgreSQL: the first is cut off from it, is frozen, or loses it.

Its successor starts work again only when what the first one promised is surely over, and whatever
the first one still answers promises nothing.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from sqlalchemy.engine import URL, make_url

from cede import CedeClientError, Client
from cede.client.http import API
from tests.agent.cluster import Cluster, alive, read_when_there
from tests.agent.relay import DOWN, UP, Relay
from tests.agent.test_partition import ALONE, Work
from tests.client.serving import Serving, eventually
from tests.support import postgres

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.postgres]

# A term of 4 s instead of 10, so that nobody need wait for that.
SHORT_TERM = (
    "import sys; from cede.store import term; term.LEASE_MILLISECONDS = 4000; "
    "from cede.cli.main import main; sys.argv[0] = 'cede'; sys.exit(main())"
)
SETTINGS = {"grace": 1.0, "node_lease": 3.0}


@pytest.fixture
def database(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[URL]:
    monkeypatch.setattr(Serving, "program", (sys.executable, "-c", SHORT_TERM))
    with postgres.fresh_database(make_url(postgres_url)) as url:
        yield url


def text(url: URL) -> str:
    return url.render_as_string(hide_password=False)


@contextmanager
def successor(cluster: Cluster, url: URL) -> Iterator[Serving]:
    """A second server of the same database, from when it leads."""
    data = cluster.home / "successor"
    data.mkdir()
    file = data / "client.yaml"
    file.touch(mode=0o600)
    file.write_text(yaml.safe_dump({"token": cluster.server.token}))
    serving = Serving(data, text(url), ("--heartbeat", "1", "--no-agent"))
    try:
        yield serving
    finally:
        serving.stop()


def post(url: str, token: str, path: str, body: dict[str, Any]) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx2.post(url + API + path, json=body, headers=headers, trust_env=False, timeout=60)


def test_a_leader_that_is_cut_off_from_the_database(database: URL, tmp_path: Path) -> None:
    relay = Relay(database.port or 0)
    through = database.set(port=int(relay.url.rpartition(":")[2]))
    cluster = Cluster(tmp_path, database=text(through), settings=SETTINGS)
    try:
        cut_off = cluster.agent("cut-off", 1)
        home = tmp_path / "work"
        home.mkdir()
        command = (sys.executable, str(ALONE), str(home))
        work = Work(cluster.submit(*command, on_silence="stop"), home)
        assert work.story() == ["started 1"]
        relay.lose(UP, DOWN)
        with successor(cluster, database) as second:
            # The first one knows that its term is over, without having heard of a successor.
            health = httpx2.get(cluster.server.url + "/healthz", trust_env=False)
            assert health.status_code == 503 and "not_leading" in health.text
            known = json.loads((cut_off.data / "agent.json").read_text())
            beat = {"protocol": 3, "boot": "any", "session": known["session"]}
            answer = post(cluster.server.url, known["token"], "/agent/heartbeat", beat)
            assert answer.status_code == 503 and answer.headers["Retry-After"]
            # An agent that knows both asks the next when one does not lead.
            both = f"{cluster.server.url},{second.url}"
            cluster.start_agent("refuge", 1, "--allow-root-jobs", "--server", both)
            eventually(lambda: len(work.story()) > 1)
            assert work.story() == ["started 1", "started 2"]  # else: clash 2
            assert not alive(work.pid(1))
            (home / "go").touch()
            with second.client(cluster.server.token) as client:
                eventually(lambda: client.requests.get(work.request)["status"] == "released")
    finally:
        relay.close()
        cluster.stop()


def raw(port: int, token: str, path: str, body: dict[str, Any]) -> socket.socket:
    """A call that is in the server's hands before it is awake to see it."""
    content = json.dumps(body).encode()
    head = (
        f"POST {API}{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        "Connection: close\r\n\r\n"
    )
    made = socket.create_connection(("127.0.0.1", port))
    made.sendall(head.encode() + content)
    return made


def answer_to(call: socket.socket) -> bytes:
    """All of the answer; nothing of a server that ended instead."""
    pieces = []
    with call:
        try:
            while piece := call.recv(1 << 16):
                pieces.append(piece)
        except ConnectionError:
            return b""
    return b"".join(pieces)


def test_a_leader_that_was_frozen_past_its_term(database: URL, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, database=text(database), settings=SETTINGS)
    try:
        first, client = cluster.server, cluster.client
        node = {"protocol": 2, "name": "n", "boot": "b", "amounts": {"gpu": 1}}
        token = post(first.url, cluster.join, "/agent/register", node).json()["token"]
        beat = {"protocol": 2, "boot": "b"}
        assert post(first.url, token, "/agent/heartbeat", beat).status_code == 200
        client.pools.create("counted", {"gpu": 1})
        client.policies.attach("counted", "red", component_type="team", priority=1)
        asked = {"resources": {"gpu": 1}, "pool": "counted", "component": "red"}
        held = client.requests.create(asked | {"component_type": "team", "lease": 60})
        assert held["status"] == "allocated"
        os.kill(first.process.pid, signal.SIGSTOP)
        with successor(cluster, database):
            renew = f"/requests/{held['id']}/renew"
            calls = [raw(first.port, token, "/agent/heartbeat", beat) for _ in range(8)]
            calls += [raw(first.port, first.token, renew, {"attempt": 1}) for _ in range(8)]
            os.kill(first.process.pid, signal.SIGCONT)
            answers = [answer_to(each) for each in calls]
            assert first.process.wait(60) == 70  # it learned that it was deposed
        assert [each for each in answers if each and b" 503 " not in each.splitlines()[0]] == []
    finally:
        if alive(cluster.server.process.pid):
            os.kill(cluster.server.process.pid, signal.SIGCONT)
        cluster.stop()


class Load:
    """Calls of every kind, one after the other, and the statuses of their answers."""

    def __init__(self, client: Client) -> None:
        self.statuses: list[int | None] = []
        self._client = client
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(2)]
        for each in self._threads:
            each.start()

    def _run(self) -> None:
        http = self._client.http
        asked = {"resources": {"gpu": 1}, "pool": "counted", "component": "red"}
        while not self._stop.is_set():
            for method, path, body in (
                ("GET", "/pools", None),
                ("GET", "/requests?limit=5", None),
                ("GET", "/events?limit=5", None),
                ("POST", "/requests", asked | {"component_type": "team"}),
            ):
                try:
                    http.call(method, API + path, body=body, attempts=1)
                    self.statuses.append(200)
                except CedeClientError as error:
                    self.statuses.append(error.status)

    def end(self) -> None:
        self._stop.set()
        for each in self._threads:
            each.join()


def test_a_restart_of_the_database_is_no_mistake_of_ours(tmp_path: Path) -> None:
    """Calls get 503 or nobody, and whoever waits for work goes on waiting."""
    with postgres.own_server(postgres.find_binaries()) as database:
        cluster = Cluster(tmp_path, database=text(database.url), settings={"grace": 1.0})
        try:
            cluster.client.pools.create("counted", {"gpu": 1})
            cluster.client.policies.attach("counted", "red", component_type="team", priority=1)
            cluster.agent("n1", 1)
            home = tmp_path / "work"
            home.mkdir()
            work = cluster.submit(sys.executable, "-u", str(ALONE), str(home))
            assert read_when_there(home / "notes").startswith("started 1")
            wait = cluster.server.start_cede("wait", work)
            logs = cluster.server.start_cede("logs", "-f", work)
            until = f"touch {home}/runs; until test -e {home}/go; do sleep 0.1; done; echo ran"
            run = cluster.server.start_cede("run", "--", "sh", "-c", until)
            cluster.until((home / "runs").exists)
            load = Load(cluster.client)
            try:
                cluster.until(lambda: len(load.statuses) > 20)
                database.stop()
                assert cluster.server.process.wait(60) == 70
                cluster.server.hold_port()
                database.start()
                cluster.server.start()  # as its supervisor does
                before = len(load.statuses)
                cluster.until(lambda: 200 in load.statuses[before:])
            finally:
                load.end()
            # 429: the budget of the token; nothing: nobody was there to answer.
            assert set(load.statuses) <= {200, 429, 503, None}, set(load.statuses)
            (home / "go").touch()
            said = {name: each.communicate() for name, each in (("run", run), ("wait", wait))}
            assert (run.returncode, wait.returncode) == (0, 0), said
            assert said["run"][0] == "ran\n"
            assert logs.wait(60) == 0
        finally:
            cluster.stop()
