"""The service over HTTP: what a durable create and grant costs beside the bare database and beside
nothing.

The server is a process of its own on loopback, with SQLite and the settings that users get.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from time import perf_counter
from urllib.parse import urlsplit

import yaml

from benchmarks.report import Figure

BULK = 50
BULK_CALLS = 400
BULK_CLIENTS = 4
SINGLES = 4_000
CLIENTS = 32
BODY = {
    "component": "bench",
    "component_type": "team",
    "resources": {"gpu": 1},
    "labels": {"pipeline": "bench", "run": "one", "step": "train"},
}


class Service:
    """A running server and what is needed to call it."""

    def __init__(self, data: Path, url: str, token: str, pid: int) -> None:
        self.database = data / "cede.db"
        self.pid = pid
        self.address = urlsplit(url).netloc
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def open(self) -> HTTPConnection:
        return HTTPConnection(self.address, timeout=60)

    def connect(self) -> Callable[[str, object], dict[str, object]]:
        connection = self.open()

        def call(path: str, body: object) -> dict[str, object]:
            connection.request("POST", f"/api/v1{path}", json.dumps(body), self.headers)
            response = connection.getresponse()
            answer: dict[str, object] = json.loads(response.read())
            assert response.status < 300, (response.status, answer)
            return answer

        return call

    def prepare(self) -> None:
        call = self.connect()
        call("/pools", {"name": "bench", "capacity": {"gpu": 10_000_000}})
        policy = {"pool": "bench", "component": "bench", "component_type": "team", "priority": 1}
        call("/policies", policy)

    def rate(self, clients: int, calls: int, path: str, body: object, each: int) -> float:
        """Requests granted a second by so many clients at once."""

        def client(number: int) -> int:
            call = self.connect()
            done = 0
            for _ in range(calls // clients):
                answer = call(path, body)
                done += len(answer["items"]) if each > 1 else answer["status"] == "allocated"  # type: ignore[arg-type]
            return done

        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(client, range(clients)))  # warm
            started = perf_counter()
            granted = sum(pool.map(client, range(clients)))
            took = perf_counter() - started
        assert granted == calls // clients * clients * each
        return granted / took


@contextmanager
def serving(module: str) -> Iterator[Service]:
    with tempfile.TemporaryDirectory(prefix="cede-bench-") as folder:
        data = Path(folder)
        command = [
            sys.executable,
            "-m",
            module,
            "up",
            "--data",
            folder,
            "--port",
            "0",
            "--no-agent",
        ]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            url = next(line.split()[-1] for line in server.stdout if "serving on" in line)
            config = yaml.safe_load((data / "client.yaml").read_text())
            service = Service(data, url, config["token"], server.pid)
            service.prepare()
            yield service
        finally:
            server.terminate()
            server.wait(30)


def bulk() -> Figure:
    body = {"requests": [BODY] * BULK}
    with serving("cede.cli") as service:
        ours = service.rate(BULK_CLIENTS, BULK_CALLS, "/requests/bulk", body, BULK)
        floor = _bare_rate(service.database)
    return Figure(
        "durable bulk create and grant over HTTP (50 a call) over a bare sqlite3 loop",
        ours / floor,
        least=0.2,
        detail=f"{ours:,.0f} over {floor:,.0f} a second",
    )


TABLES = ("requests", "allocations", "events")


def _bare_rate(database: Path) -> float:
    """The same rows, the same schema, the same pragmas, one commit per fifty requests."""
    source = sqlite3.connect(database)
    schema = [
        sql
        for (sql,) in source.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
        if not sql.startswith("CREATE TABLE sqlite_")
    ]
    schema.sort(key=lambda sql: not sql.startswith("CREATE TABLE"))
    rows = {table: source.execute("SELECT * FROM " + table).fetchall() for table in TABLES}
    pools = {
        table: source.execute("SELECT * FROM " + table).fetchall()
        for table in ("pools", "policies")
    }
    columns = {
        table: ",".join("?" * len(many[0])) for table, many in (*rows.items(), *pools.items())
    }
    source.close()
    with tempfile.TemporaryDirectory(prefix="cede-bench-", dir=database.parent) as folder:
        bare = sqlite3.connect(Path(folder) / "bare.db", isolation_level=None)
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            bare.execute("PRAGMA " + pragma)
        for sql in schema:
            bare.execute(sql)
        for table, many in pools.items():
            bare.executemany(f"INSERT INTO {table} VALUES ({columns[table]})", many)
        batches = len(rows["requests"]) // BULK
        started = perf_counter()
        for batch in range(batches):
            bare.execute("BEGIN IMMEDIATE")
            for table, many in rows.items():
                each = len(many) // batches
                some = many[batch * each : (batch + 1) * each]
                bare.executemany(f"INSERT INTO {table} VALUES ({columns[table]})", some)
            bare.execute("COMMIT")
        took = perf_counter() - started
        bare.close()
    return batches * BULK / took


def single() -> Figure:
    with serving("cede.cli") as service:
        durable = service.rate(CLIENTS, SINGLES, "/requests", BODY, 1)
    with serving("benchmarks.without_commit") as service:
        floor = service.rate(CLIENTS, SINGLES, "/requests", BODY, 1)
    return Figure(
        "single create and grant, 32 clients, over the same route with the commit left out",
        durable / floor,
        least=0.5,
        detail=f"{durable:,.0f} over {floor:,.0f} a second",
    )


FIGURES = [bulk, single]
