"""What a server with a whole site in it costs: to start, to hold, to hear of and to ask."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from threading import Thread
from time import perf_counter, process_time

from sqlalchemy import create_engine, text

from benchmarks.load import Result, processor_seconds
from benchmarks.scale.agents import Agents
from benchmarks.scale.filling import Keys, team_name
from benchmarks.service import Service
from cede.store import schema
from cede.store.digests import LAYOUTS

# What a start reads of each table: what is alive.
_LOADED = {
    "pools": "",
    "nodes": "",
    "policies": "",
    "requests": f" WHERE {schema.ACTIVE}",
    "allocations": " WHERE live = 1",
    "tokens": "",
}
CLIENTS = 8
BODY = {
    "component": team_name(0),
    "component_type": "team",
    "resources": {"slot": 1},
    "work": {"argv": ["true"]},
}
# Of nodes, in seconds.
PERIOD = 10.0


@dataclass(frozen=True, slots=True)
class Start:
    """From the start of the process until it serves: on the clock, and of a processor; and what the
    same rows take to be read alone.
    """

    seconds: float
    processor: float
    bare: float


@dataclass(frozen=True, slots=True)
class Heard:
    """Agents that have nothing to say: processors of the server and of the generator, answers a
    second, and how late they were, sorted.
    """

    server: float
    own: float
    rate: float
    late: list[float]

    def within(self, part: float) -> float:
        """Milliseconds."""
        late = self.late or [0.0]
        return 1e3 * late[min(int(part * len(late)), len(late) - 1)]


def bare_read(url: str) -> float:
    """Processor seconds of a loop that reads the rows of what is alive, with the same driver."""
    engine = create_engine(url)
    with engine.connect() as connection:
        cursor = connection.connection.driver_connection.cursor()  # type: ignore[union-attr]
        began = process_time()
        for name, alive in _LOADED.items():
            columns = ", ".join(f'"{each.name}"' for each in LAYOUTS[name].columns)
            cursor.execute(f"SELECT {columns} FROM {name}{alive}")
            while cursor.fetchmany(1_000):
                pass
        used = process_time() - began
    engine.dispose()
    return used


class Serving:
    """A running server on a database that was filled."""

    def __init__(self, service: Service, keys: Keys, start: Start) -> None:
        self.service = service
        self.pid = service.pid
        self.keys = keys
        self.start = start

    @property
    def memory(self) -> float:
        """MiB that the process holds."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        line = next(each for each in status.splitlines() if each.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def get(self, path: str, calls: int) -> Result:
        given = self.service.calls("GET", path)
        with closing(self.service.load(CLIENTS)) as load:
            load.run(islice(given, calls // 10))
            return load.run(islice(given, calls))

    def submit(self, calls: int) -> Result:
        with closing(self.service.load(CLIENTS)) as load:
            return load.run(islice(self.service.submissions(), calls))

    def heard(self, agents: Agents, seconds: float) -> Heard:
        """Its agents alone, once each has been told what it should have."""
        agents.serve(PERIOD)
        agents.late.clear()
        agents.answers = 0
        before, began = processor_seconds(self.pid), perf_counter()
        own = agents.serve(seconds)
        took = perf_counter() - began
        used = processor_seconds(self.pid) - before
        return Heard(used / took, own / took, agents.answers / took, sorted(agents.late))


@contextmanager
def beside(agents: Agents) -> Iterator[None]:
    """Agents that go on beside what is measured inside."""
    over = False

    def serve() -> None:
        while not over:
            agents.serve(0.5)

    thread = Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        over = True
        thread.join()


@contextmanager
def serving_site(url: str, data: Path, keys: Keys) -> Iterator[Serving]:
    """The same with the site's agents beside whatever is measured inside."""
    with (
        serving(url, data, keys) as server,
        closing(Agents(server.service.place, keys.agents, PERIOD)) as agents,
        beside(agents),
    ):
        yield server


@contextmanager
def serving(url: str, data: Path, keys: Keys) -> Iterator[Serving]:
    """Start a server on a database, and stop it."""
    bare = bare_read(url)
    command = [sys.executable, "-m", "cede.cli", "up", "--data", str(data), "--port", "0"]
    environ = {**os.environ, "CEDE_DATABASE": url}  # with its password: not for everybody to see
    # As when it is installed: what a start imports is compiled, of cede and of all others.
    imports = [sys.executable, "-c", "import cede.server.run, cede.server.api.app"]
    subprocess.run(imports, env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""}, check=True)
    began = perf_counter()
    server = subprocess.Popen(
        [*command, "--no-agent"], stdout=subprocess.PIPE, text=True, env=environ
    )
    try:
        assert server.stdout is not None
        line = next(line for line in server.stdout if "serving on" in line)
        start = Start(perf_counter() - began, processor_seconds(server.pid), bare)
        yield Serving(Service(data, line.split()[-1], keys.people, server.pid, BODY), keys, start)
    finally:
        server.terminate()
        server.wait(120)
        if server.stdout is not None:
            server.stdout.close()


def size_of(url: str) -> int:
    """Bytes that a database takes."""
    engine = create_engine(url)
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            pages = connection.execute(text("PRAGMA page_count")).scalar_one()
            found = pages * connection.execute(text("PRAGMA page_size")).scalar_one()
        else:
            found = connection.execute(
                text("SELECT pg_database_size(current_database())")
            ).scalar_one()
    engine.dispose()
    return int(found)
