"""One storm from its start to its account.

Programs on nodes and their stops are those of a soak. Beside them callers hold units of a counted
pool, edit policies, make tokens and try what they may not do. Servers and agents are killed and
frozen, and every link between two of them loses what goes through it for a while.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from sqlalchemy.engine import make_url

from cede import Client
from cede.client.errors import Unauthorized
from tests.agent.relay import Relay
from tests.client.serving import START_SECONDS
from tests.soak.account import Account
from tests.soak.agents import Agent
from tests.soak.faults import Faults, Link
from tests.soak.load import Load, until_answered
from tests.soak.run import (
    GPUS,
    HEARTBEAT,
    Result,
    agents_of,
    database,
    keep_evidence,
    left_behind,
    set_up,
)
from tests.soak.servers import Servers
from tests.storm.books import Books, compare, complaints, over_capacity
from tests.storm.callers import CALLERS, CAPACITY, COUNTED, OTHERS, Caller

SETTLE_SECONDS = 1200.0  # in which everything ends once nothing is hurt any more
ENDED = ("released", "cancelled", "failed", "preempted", "rejected")


@dataclass(frozen=True)
class Plan:
    seconds: float = 3600.0
    every: float = 5.0  # seconds from one fault to the next
    agents: int = 4
    callers: int = 6
    seed: int = 0
    steps: int = 160
    postgres: bool = False
    home: Path | None = None  # kept; else a temporary one, kept if something is wrong


def storm(plan: Plan) -> Result:
    """Run it; everything that was started is gone afterwards."""
    home = plan.home or Path(tempfile.mkdtemp(prefix="cede-storm-"))
    (home / "locks").mkdir(parents=True, exist_ok=True)
    agents = agents_of(home, plan.agents)
    with database(plan.postgres) as url, ExitStack() as stack:
        links = [] if url is None else [_database_link(url, agents) for _ in range(2)]
        servers = Servers(home, HEARTBEAT, [_through(link, url or "") for link in links])
        stack.callback(servers.stop)
        for each in agents:
            links.append(Link(Relay(servers.port), [each]))
            stack.callback(each.stop)
        for link in links:
            stack.callback(link.relay.close)
        result = _run(plan, home, servers, agents, links)
    if plan.home is None and not result.account.problems:
        shutil.rmtree(home, ignore_errors=True)
    return result


def _database_link(url: str, agents: list[Agent]) -> Link:
    """While it loses, the server behind it cannot lead; all agents may be silent."""
    return Link(Relay(make_url(url).port or 0), agents)


def _through(link: Link, url: str) -> str:
    return make_url(url).set(port=link.relay.port).render_as_string(hide_password=False)


def _run(
    plan: Plan, home: Path, servers: Servers, agents: list[Agent], links: list[Link]
) -> Result:
    begun = time.monotonic()
    books, over = Books(), threading.Event()
    with Client(servers.url, servers.token) as client:
        set_up(client, agents, [each.relay.url for each in links[-len(agents) :]])
        callers = _callers(plan, client, servers, books, over)
        dice = random.Random(plan.seed)
        nodes = [each.name for each in agents]
        load = Load(client, home, nodes, GPUS * len(agents), plan.steps, 0.05, dice)
        load.until = begun + plan.seconds
        load.deadline = load.until + SETTLE_SECONDS
        faults = Faults(
            agents,
            servers,
            int(plan.seconds / plan.every),
            part=lambda: min(1.0, (time.monotonic() - begun) / plan.seconds),
            dice=random.Random(plan.seed + 1),
            links=links,
        )
        threads = [threading.Thread(target=faults.run, name="faults")]
        for each in callers:
            each.deadline = load.deadline
            threads.append(threading.Thread(target=each.run, name=each.team))
        for thread in threads:
            thread.start()
        try:
            load.run(10**9)
        finally:
            faults.end()
            threads[0].join()
            over.set()
        servers.wait(START_SECONDS)
        for agent in agents:
            agent.revive()
        for thread in threads[1:]:
            thread.join()
        load.settle()
        account = Account().of(load.programs, home / "locks")
        account.problems += [f"blue: {each}" for each in load.failed_blues]
        account.problems += books.problems
        account.problems += over_capacity(books.held, CAPACITY)
        account.problems += _compared(client, servers, books, load.deadline)
        for each in servers.all:
            account.problems += complaints(each.log.read_text(errors="replace"))
        if load.live():
            account.problems.append(f"stuck: {len(load.live())} requests {load.live()[:5]}")
        else:
            account.problems += left_behind(client, home, agents, load.deadline)
        keep_evidence(client, home / "suspects", account, agents, load.deadline)
    hurt = {" ".join(kind): count for kind, count in sorted(faults.done.items())}
    figures = {
        "seed": plan.seed,
        "database": "PostgreSQL, 2 servers" if plan.postgres else "SQLite, 1 server",
        "faults": f"{sum(hurt.values())} {hurt}",
        "answers": f"{sum(books.operations.values())} {dict(sorted(books.operations.items()))}",
        "programs": f"{len(load.programs)} and {load.blue_count} of blue",
        "starts": f"{account.attempts}, {account.resumes} of them resumed",
        "steps": f"{account.steps}, {account.repeated} of them repeated",
        "seconds": round(time.monotonic() - begun),
    }
    return Result(account, figures, home)


def _callers(
    plan: Plan, client: Client, servers: Servers, books: Books, over: threading.Event
) -> list[Caller]:
    """A counted pool in which one team asks for units; each thread has a policy that it edits."""
    client.pools.create(COUNTED, {"gpu": CAPACITY})
    names = [f"team-{n}" for n in range(plan.callers)]
    for name in (CALLERS, OTHERS, *names):
        client.policies.attach(COUNTED, name, component_type="team", priority=1)
    tokens = {
        team: client.tokens.create(team, "submitter", subjects=[f"team:{team}"])["token"]
        for team in (CALLERS, OTHERS)
    }
    return [
        Caller(
            servers.url,
            servers.token,
            tokens[CALLERS],
            tokens[OTHERS],
            name,
            books,
            random.Random(plan.seed * 1000 + number),
            over,
        )
        for number, name in enumerate(names)
    ]


def _compared(client: Client, servers: Servers, books: Books, deadline: float) -> Iterator[str]:
    """The servers' account against that of the callers, once everything has ended."""

    def listed() -> list[dict[str, Any]]:
        return list(client.requests.list(component=CALLERS, limit=500))

    there = until_answered(listed, deadline)
    while live := [each["id"] for each in there if each["status"] not in ENDED]:
        if time.monotonic() > deadline:
            yield f"stuck: {len(live)} requests of callers {live[:5]}"
            break
        time.sleep(1)
        there = until_answered(listed, deadline)
    by_key: dict[str, list[str]] = {}
    for each in there:
        by_key.setdefault(each["comment"], []).append(each["id"])
    yield from compare(books, by_key, {each["id"]: each["status"] for each in there})
    for policy, priority in books.priorities.items():
        kept = until_answered(partial(client.policies.get, policy), deadline)
        if kept["priority"] != priority:
            yield f"undone: priority {priority} of {policy} is {kept['priority']}"
    for token in books.revoked[-20:]:
        with Client(servers.url, token) as nobody:
            try:
                until_answered(nobody.whoami, deadline)
                yield "undone: a token was revoked, and works"
            except Unauthorized:
                pass
    chain = until_answered(client.audit.verify, inf)
    if not chain["ok"]:
        yield f"audit: {chain}"
