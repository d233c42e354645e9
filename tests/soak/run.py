"""One soak from its start to its account."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cede import Client
from cede.client.http import API
from tests.agent.cluster import BLUE, TEAM, alive
from tests.client.serving import START_SECONDS, eventually
from tests.soak.account import Account
from tests.soak.agents import Agent, can_unshare
from tests.soak.faults import Faults
from tests.soak.load import POOL, Load, until_answered
from tests.soak.servers import Servers
from tests.support import postgres

HEARTBEAT = 0.8
LEASE = 5.0
GRACE = 10.0
GPUS = 2  # of one node


@dataclass(frozen=True)
class Plan:
    stops: int
    kills: int
    agents: int = 4
    seed: int = 0
    seconds: float = 3600.0  # after which what is not done is a problem
    steps: int = 160
    pause: float = 0.05
    postgres: bool = False
    home: Path | None = None  # kept; else a temporary one, kept if something is wrong


@dataclass
class Result:
    account: Account
    figures: dict[str, Any]
    home: Path

    def story(self) -> str:
        lines = [f"  {name:<12} {value}" for name, value in self.figures.items()]
        kinds = [f"  {count} {kind}" for kind, count in self.account.kinds().most_common()]
        wrong = ["", "wrong:", *kinds, "", *self.account.problems] if kinds else ["nothing wrong"]
        return "\n".join([*lines, *wrong])


def soak(plan: Plan) -> Result:
    """Run it; everything that was started is gone afterwards."""
    home = plan.home or Path(tempfile.mkdtemp(prefix="cede-soak-"))
    home.mkdir(parents=True, exist_ok=True)
    with database(plan.postgres) as url, _fleet(plan, home, url) as (servers, agents):
        result = _run(plan, home, servers, agents)
    if plan.home is None and not result.account.problems:
        shutil.rmtree(home, ignore_errors=True)
    return result


@contextmanager
def database(on_postgres: bool) -> Iterator[str | None]:
    """A new database of PostgreSQL; None for SQLite, which needs nothing."""
    if not on_postgres:
        yield None
        return
    with (
        postgres.running_server(postgres.find_binaries()) as server,
        postgres.fresh_database(server) as url,
    ):
        yield url.render_as_string(hide_password=False)


@contextmanager
def _fleet(plan: Plan, home: Path, url: str | None) -> Iterator[tuple[Servers, list[Agent]]]:
    agents = agents_of(home, plan.agents)
    servers = Servers(home, HEARTBEAT, () if url is None else (url, url))
    try:
        with Client(servers.url, servers.token) as client:
            set_up(client, agents, [servers.url] * len(agents))
        yield servers, agents
    finally:
        for each in agents:
            each.stop()
        servers.stop()


def agents_of(home: Path, count: int) -> list[Agent]:
    """Agents that have not joined yet: the first half shares a checkpoint folder."""
    apart = can_unshare()
    if not apart:
        print("MOUNT NAMESPACES ARE NOT ALLOWED HERE: folders differ by path instead", flush=True)
    shared = (count + 1) // 2
    folders = [home / "folders" / ("all" if n <= shared else f"n{n}") for n in range(1, count + 1)]
    return [Agent(home, f"n{n}", each, apart=apart) for n, each in enumerate(folders, 1)]


def set_up(client: Client, agents: list[Agent], urls: list[str]) -> None:
    """The pool of all agents, each of which reaches its server at an address of its own."""
    settings = {"grace": GRACE, "node_lease": LEASE}
    client.pools.create(POOL, nodes={"pool": "soak"}, settings=settings)
    token = client.tokens.create("join", "join")["token"]
    for each, url in zip(agents, urls, strict=True):
        each.join(url, token, GPUS)

    def ready() -> bool:
        states = {each["name"]: each["state"] for each in client.nodes.list()}
        return all(states.get(each.name) == "ready" for each in agents)

    eventually(ready, START_SECONDS)
    gpus = GPUS * len(agents)
    own = {"reserved": {"gpu": gpus}, "limit": {"gpu": gpus}}
    client.policies.attach(POOL, TEAM, component_type="team", priority=10)
    client.policies.attach(POOL, BLUE, component_type="team", priority=20, **own)


def _run(plan: Plan, home: Path, servers: Servers, agents: list[Agent]) -> Result:
    (home / "locks").mkdir()
    begun = time.monotonic()
    dice = random.Random(plan.seed)
    with Client(servers.url, servers.token) as client:
        nodes = [each.name for each in agents]
        load = Load(client, home, nodes, GPUS * len(agents), plan.steps, plan.pause, dice)
        load.deadline = begun + plan.seconds
        faults = Faults(
            agents,
            servers,
            plan.kills,
            part=lambda: min(1.0, (load.stops + 1) / plan.stops),
            dice=random.Random(plan.seed + 1),
        )
        killer = threading.Thread(target=faults.run, name="faults")
        killer.start()
        try:
            load.run(plan.stops)
        finally:
            faults.end()
            killer.join()
        servers.wait(START_SECONDS)
        for each in agents:
            each.revive()
        load.settle()
        account = Account().of(load.programs, home / "locks")
        account.problems += [f"blue: {each}" for each in load.failed_blues]
        if load.live():
            account.problems.append(f"not done: {len(load.live())} requests {load.live()[:5]}")
        else:
            account.problems += left_behind(client, home, agents, load.deadline)
        keep_evidence(client, home / "suspects", account, agents, load.deadline)
    kills = {" ".join(kind): count for kind, count in sorted(faults.done.items())}
    figures = {
        "seed": plan.seed,
        "database": "PostgreSQL, 2 servers" if plan.postgres else "SQLite, 1 server",
        "stops": load.stops,
        "withdrawn": load.withdrawn,
        "kills": f"{sum(kills.values())} {kills}",
        "requests": f"{len(load.programs)} and {load.blue_count} of blue",
        "attempts": account.attempts,
        "saves": account.saves,
        "resumes": f"{account.resumes}, {account.moved} starts on another node",
        "steps": f"{account.steps}, {account.repeated} of them repeated",
        "seconds": round(time.monotonic() - begun),
    }
    return Result(account, figures, home)


def keep_evidence(
    client: Client, folder: Path, account: Account, agents: list[Agent], deadline: float
) -> None:
    """What the server and the nodes know about each request that something is wrong with."""
    for each in account.suspects:
        wanted = {"request_id": each.id, "limit": 500}

        def ask(id: str = each.id, wanted: dict[str, Any] = wanted) -> list[Any]:
            events = client.http.call("GET", f"{API}/events", params=wanted)["items"]
            return [client.requests.get(id), *events]

        folder.mkdir(exist_ok=True)
        found = [json.dumps(one) for one in until_answered(ask, deadline)]
        for path in [path for agent in agents for path in agent.outputs(each.id)]:
            found += [f"{path}:", *path.read_text(errors="replace").splitlines()[-3:]]
        (folder / each.record.name).write_text("\n".join(found) + "\n")


def left_behind(client: Client, home: Path, agents: list[Agent], deadline: float) -> Iterator[str]:
    """Units and processes that nobody gave back."""

    def held() -> dict[str, Any]:
        nodes = until_answered(lambda: list(client.nodes.list()), deadline)
        return {each["name"]: each["held"] for each in nodes if each["held"]}

    if left := held():
        yield f"left behind: units {left}"
    for agent in agents:
        for pid, request in agent.supervisors().items():
            yield f"left behind: supervisor {pid} of {request} on {agent.name}"
    marker = str(home / "records").encode()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes()
        except OSError:
            continue
        if marker in command and alive(int(path.parent.name)):
            yield f"left behind: process {path.parent.name}"
