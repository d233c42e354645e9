"""Reads over HTTP: what pools, one request and a page of requests cost beside the cheapest answer
that the server has, and how that grows with what is alive. Twenty submissions a second go on
meanwhile, so that no answer is kept for long.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice

from benchmarks.load import Result
from benchmarks.report import Figure
from benchmarks.service import BODY, CLIENTS, ROUNDS, Service, serving

FEW, MANY = 1_000, 20_000
BULK = 500
HEALTH = "health"
CALLS = 3_000
CHANGES_EVERY = 0.05  # seconds


def reads() -> list[Figure]:
    with serving("cede.cli") as service:
        request = _submit(service, FEW)
        paths = {
            HEALTH: "/healthz",
            "pools": "/api/v1/pools",
            "one request": f"/api/v1/requests/{request}",
            "first page of requests": "/api/v1/requests",
        }
        few = _best(service, paths)
        _submit(service, MANY - FEW)
        many = _best(service, paths)
    found = []
    for name in list(paths)[1:]:
        found += [
            Figure(
                f"GET of {name}: calls a core second over those of {HEALTH}, {FEW:,} alive",
                few[HEALTH].cost / few[name].cost,
                least=0.4,
                detail=f"{few[name]} | {HEALTH} {few[HEALTH]}",
            ),
            Figure(
                f"GET of {name}: cost with {MANY:,} alive over {FEW:,}",
                many[name].cost / few[name].cost,
                most=1.5,
                detail=str(many[name]),
            ),
        ]
    return found


def _best(service: Service, paths: dict[str, str]) -> dict[str, Result]:
    """Of several rounds: other programs on the machine make calls dearer, never cheaper."""
    turns = [
        {name: _measured(service, path) for name, path in paths.items()} for _ in range(ROUNDS)
    ]
    return {name: min((turn[name] for turn in turns), key=lambda one: one.cost) for name in paths}


def _submit(service: Service, many: int) -> str:
    call, last = service.connect(), ""
    for _ in range(0, many, BULK):
        answer = call("/requests/bulk", {"requests": [BODY] * BULK})
        items = answer["items"]
        assert isinstance(items, list)
        last = items[-1]["request"]["id"]
    return last


def _measured(service: Service, path: str) -> Result:
    calls = service.calls("GET", path)
    with _changes(service), closing(service.load(CLIENTS)) as load:
        load.run(islice(calls, CALLS // 10))  # warm
        return load.run(islice(calls, CALLS))


@contextmanager
def _changes(service: Service) -> Iterator[None]:
    over = threading.Event()

    def submit() -> None:
        call = service.connect()
        while not over.wait(CHANGES_EVERY):
            call("/requests", BODY)

    thread = threading.Thread(target=submit)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


FIGURES = [reads]
