"""Reads over HTTP: what pools, one request and a page of requests cost beside the cheapest answer
that the server has, and how that grows with what is alive. Twenty submissions a second go on
meanwhile, so that no answer is kept for long; what they cost by themselves is measured first and
taken off, because it is no part of a read: the fewer reads a second, the more of it each would pay.
`benchmarks.scale.history` asks the same of a server with a million ended requests.
"""

from __future__ import annotations

import threading
import time
from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import NamedTuple, Self

from benchmarks.load import Result, processor_seconds
from benchmarks.report import Figure
from benchmarks.service import CLIENTS, ROUNDS, Service, serving

FEW, MANY = 1_000, 20_000
BULK = 500
HEALTH = "health"
CALLS = 3_000
CHANGES_EVERY = 0.05  # seconds
ALONE = 3.0  # seconds for which changes are measured without reads


class Read(NamedTuple):
    """What reads took by themselves, and microseconds of each with the submissions beside it."""

    alone: Result
    charged: float

    @property
    def cost(self) -> float:
        return max(self.alone.cost, 1.0)  # a few calls may take less than a tick of the counter

    def __str__(self) -> str:
        return f"{self.alone}; {self.charged:,.0f} us with the submissions"


def reads() -> list[Figure]:
    with serving("cede.cli") as service:
        request = _submit(service, FEW)
        few = best(service, paths_to(request))
        _submit(service, MANY - FEW)
        many = best(service, paths_to(request))
    with_few, with_many = f"{FEW:,} alive", f"{MANY:,} alive"
    return beside_health(few, with_few) + growth(few, with_few, many, with_many)


def paths_to(request: str) -> dict[str, str]:
    """The reads that have bounds, and the one beside which they are measured."""
    return {
        HEALTH: "/healthz",
        "pools": "/api/v1/pools",
        "one request": f"/api/v1/requests/{request}",
        "first page of requests": "/api/v1/requests",
    }


def beside_health(found: dict[str, Read], with_: str) -> list[Figure]:
    """Each read beside the cheapest one."""
    return [
        Figure(
            f"GET of {name}: calls a core second over those of {HEALTH}, {with_}",
            found[HEALTH].cost / read.cost,
            least=0.4,
            detail=f"{read} | {HEALTH} {found[HEALTH]}",
        )
        for name, read in found.items()
        if name != HEALTH
    ]


def growth(
    few: dict[str, Read], with_few: str, many: dict[str, Read], with_many: str
) -> list[Figure]:
    """Each read beside itself where there is less."""
    return [
        Figure(
            f"GET of {name}: cost with {with_many} over {with_few}",
            read.cost / few[name].cost,
            most=1.5,
            detail=str(read),
        )
        for name, read in many.items()
        if name != HEALTH
    ]


def best(service: Service, paths: dict[str, str], number: int = CALLS) -> dict[str, Read]:
    """Of several rounds: other programs on the machine make calls dearer, never cheaper."""
    change = min(_cost_of_a_change(service) for _ in range(ROUNDS))
    turns = [
        {name: _measured(service, path, change, number) for name, path in paths.items()}
        for _ in range(ROUNDS)
    ]
    return {name: min((turn[name] for turn in turns), key=lambda one: one.cost) for name in paths}


def _submit(service: Service, many: int) -> str:
    call, last = service.connect(), ""
    for _ in range(0, many, BULK):
        answer = call("/requests/bulk", {"requests": [service.body] * BULK})
        items = answer["items"]
        assert isinstance(items, list)
        last = items[-1]["request"]["id"]
    return last


def _cost_of_a_change(service: Service) -> float:
    """Seconds of the server's processors, when nothing else goes on."""
    with _Changes(service) as changes:
        made, used = changes.made, processor_seconds(service.pid)
        time.sleep(ALONE)
        return (processor_seconds(service.pid) - used) / (changes.made - made)


def _measured(service: Service, path: str, change: float, number: int) -> Read:
    calls = service.calls("GET", path)
    with _Changes(service) as changes, closing(service.load(CLIENTS)) as load:
        load.run(islice(calls, number // 10))  # warm
        made = changes.made
        found = load.run(islice(calls, number))
        alone = found.server - change * (changes.made - made)
        return Read(replace(found, server=alone), found.cost)


class _Changes:
    """Submissions as long as it is open, and how many were `made`."""

    def __init__(self, service: Service) -> None:
        self.made = 0
        self._service = service
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._submit)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _submit(self) -> None:
        with closing(self._service.open()) as connection:
            call = self._service.connect(connection)
            while not self._over.wait(CHANGES_EVERY):
                call("/requests", self._service.body)
                self.made += 1


FIGURES = [reads]
