"""The service over HTTP: what a durable create and grant costs beside the bare database and beside
nothing.

The server is a process of its own on loopback, with SQLite and the settings that users get.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from http.client import HTTPConnection
from itertools import cycle, islice
from pathlib import Path
from time import perf_counter
from urllib.parse import urlsplit

import yaml

from benchmarks.load import Load, Result, call_bytes
from benchmarks.report import Figure
from tests.support.sources import HERE, Source, of_commit

BEFORE = "a57e475"
ROUNDS = 3
LIVE = 1_000
BULK = 50
BULK_CALLS = 400
BULK_CLIENTS = 4
CALLS = 2_000
CLIENTS = 32
TOKENS = 31
BODY = {
    "component": "bench",
    "component_type": "team",
    "resources": {"gpu": 1},
    "labels": {"pipeline": "bench", "run": "one", "step": "train"},
}


class Service:
    """A running server and what is needed to call it."""

    def __init__(
        self, data: Path, url: str, tokens: Sequence[str], pid: int, body: object = BODY
    ) -> None:
        self.database = data / "cede.db"
        self.pid = pid
        self.address = urlsplit(url).netloc
        self.tokens = list(tokens)
        self.body = body  # of a submission
        self.headers = {"Authorization": f"Bearer {tokens[0]}", "Content-Type": "application/json"}

    @property
    def place(self) -> tuple[str, int]:
        host, _, port = self.address.rpartition(":")
        return host, int(port)

    def load(self, connections: int) -> Load:
        return Load(self.place, connections, self.pid)

    def calls(self, method: str, path: str, body: object | None = None) -> Iterator[bytes]:
        """The same call without end, by many tokens in turn: no budget of theirs is a bound."""
        return cycle([call_bytes(method, path, token, body) for token in self.tokens])

    def submissions(self) -> Iterator[bytes]:
        return self.calls("POST", "/api/v1/requests", self.body)

    def open(self) -> HTTPConnection:
        return HTTPConnection(self.address, timeout=60)

    def get(self, path: str) -> dict[str, object]:
        with closing(self.open()) as connection:
            connection.request("GET", path, headers=self.headers)
            return _answer(connection)

    def connect(
        self, connection: HTTPConnection | None = None
    ) -> Callable[[str, object], dict[str, object]]:
        connection = connection or self.open()

        def call(path: str, body: object) -> dict[str, object]:
            connection.request("POST", f"/api/v1{path}", json.dumps(body), self.headers)
            return _answer(connection)

        return call

    def prepare(self) -> None:
        call = self.connect()
        call("/pools", {"name": "bench", "capacity": {"gpu": 10_000_000}})
        policy = {"pool": "bench", "component": "bench", "component_type": "team", "priority": 1}
        call("/policies", policy)
        for number in range(TOKENS):
            made = call("/tokens", {"name": f"bench-{number}", "role": "operator"})
            self.tokens.append(str(made["token"]))


def _answer(connection: HTTPConnection) -> dict[str, object]:
    response = connection.getresponse()
    answer: dict[str, object] = json.loads(response.read())
    assert response.status < 300, (response.status, answer)
    return answer


@contextmanager
def serving(module: str, source: Source = HERE) -> Iterator[Service]:
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
        environ = {**os.environ, **source.variables()}
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ)
        try:
            assert server.stdout is not None
            url = next(line.split()[-1] for line in server.stdout if "serving on" in line)
            config = yaml.safe_load((data / "client.yaml").read_text())
            service = Service(data, url, [config["token"]], server.pid)
            service.prepare()
            yield service
        finally:
            server.terminate()
            server.wait(30)


def bulk() -> Figure:
    body = {"requests": [BODY] * BULK}
    with serving("cede.cli") as service:
        with closing(service.load(BULK_CLIENTS)) as load:
            calls = service.calls("POST", "/api/v1/requests/bulk", body)
            load.run(islice(calls, BULK_CALLS // 4))  # warm
            done = load.run(islice(calls, BULK_CALLS))
        ours = done.rate * BULK
        floor = _bare_rate(service.database)
    return Figure(
        "durable bulk create and grant over HTTP (50 a call) over a bare sqlite3 loop",
        ours / floor,
        least=0.45,
        detail=f"{ours:,.0f} over {floor:,.0f} a second; {done}",
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


def single_rate() -> Figure:
    here, before, _ = _singles()
    return Figure(
        f"single create and grant, {CLIENTS} connections, over those of {BEFORE}",
        here.rate / before.rate,
        least=3.0,
        detail=f"{here} | before {before}",
    )


def single_cost() -> Figure:
    here, before, _ = _singles()
    return Figure(
        f"single create and grant: server's processor time of a call, over that of {BEFORE}",
        here.cost / before.cost,
        most=0.34,
        detail=f"{here.cost:,.0f} us over {before.cost:,.0f} us",
    )


def single() -> Figure:
    here, _, floor = _singles()
    return Figure(
        f"single create and grant, {CLIENTS} connections, over the same route without the commit",
        here.rate / floor.rate,
        least=0.7,
        detail=f"{here} | without {floor}",
    )


@cache
def _singles() -> tuple[Result, Result, Result]:
    """This tree, the one before, and this one without commits: all three up at once, in turns, the
    best turn of each.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cede-before-")))
        servers = [
            stack.enter_context(serving("cede.cli")),
            stack.enter_context(serving("cede.cli", of_commit(BEFORE, folder))),
            stack.enter_context(serving("benchmarks.without_commit")),
        ]
        turns = [
            [turn(each, "POST", "/api/v1/requests", BODY) for each in servers]
            for _ in range(ROUNDS)
        ]
    here, before, floor = (min(one, key=lambda turn: turn.cost) for one in zip(*turns, strict=True))
    return here, before, floor


def turn(
    service: Service, method: str, path: str, body: object | None = None, number: int = CALLS
) -> Result:
    with closing(service.load(CLIENTS)) as load:
        calls = service.calls(method, path, body)
        load.run(islice(calls, CLIENTS))  # each connection's first call is its dearest
        return load.run(islice(calls, number))


FIGURES = [bulk, single_rate, single_cost, single]
