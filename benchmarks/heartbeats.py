"""Heartbeats of many nodes beside bare calls of the same server, by what each costs its processor.

Rates on a wall clock would measure the callers too, which share the machine; the processor time of
the server's own process does not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from time import sleep
from typing import Any

from benchmarks.report import Figure
from benchmarks.service import Service, serving

NODES = 64
CLIENTS = 4
CALLS = 4_000
TICKS = os.sysconf("SC_CLK_TCK")

Call = Callable[[], None]


def heartbeats() -> Figure:
    with serving("cede.cli") as service:
        nodes = [_Node(service, f"node-{number}") for number in range(NODES)]
        bare = max(_per_core(service, [_bare(service) for _ in range(CLIENTS)]) for _ in range(2))
        beats = max(_per_core(service, _beats(service, nodes)) for _ in range(2))
    return Figure(
        "heartbeats per second and core over bare GET /healthz of the same server",
        beats / bare,
        least=0.3,
        detail=f"{beats:,.0f} over {bare:,.0f}",
    )


class _Node:
    """A registered node, and the heartbeat that finds nothing new for it."""

    def __init__(self, service: Service, name: str) -> None:
        join = service.connect()("/tokens", {"name": "join", "role": "join", "uses": 1})["token"]
        what = {"protocol": 1, "name": name, "boot": name, "amounts": {"gpu": 8}}
        made = _post(service.open(), "/agent/register", join, what)
        self.token = made["token"]
        beat = {"protocol": 1, "boot": name, "epoch": made["epoch"], "wait": 0}
        answer = _post(service.open(), "/agent/heartbeat", self.token, beat)
        seen = {"index": answer["index"], "seen": answer["version"]}
        self.body = json.dumps(beat | seen)


def _post(connection: HTTPConnection, path: str, token: object, body: object) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request("POST", f"/api/v1{path}", json.dumps(body), headers)
    response = connection.getresponse()
    answer: dict[str, Any] = json.loads(response.read())
    assert response.status == 200, answer
    return answer


def _bare(service: Service) -> Call:
    connection, headers = service.open(), service.headers

    def call() -> None:
        connection.request("GET", "/healthz", headers=headers)
        response = connection.getresponse()
        response.read()
        if response.status == HTTPStatus.TOO_MANY_REQUESTS:  # a fast machine meets that bound
            sleep(int(response.headers["Retry-After"]))
            call()
        else:
            assert response.status == HTTPStatus.OK

    return call


def _beats(service: Service, nodes: list[_Node]) -> list[Call]:
    return [_beat(service, nodes[number::CLIENTS]) for number in range(CLIENTS)]


def _beat(service: Service, nodes: list[_Node]) -> Call:
    connection = service.open()
    turn = 0

    def call() -> None:
        nonlocal turn
        node = nodes[turn % len(nodes)]
        turn += 1
        headers = {"Authorization": f"Bearer {node.token}", "Content-Type": "application/json"}
        connection.request("POST", "/api/v1/agent/heartbeat", node.body, headers)
        response = connection.getresponse()
        response.read()
        assert response.status == 200

    return call


def _per_core(service: Service, calls: list[Call]) -> float:
    """Calls for each second of the server's processor time."""

    def many(call: Call) -> None:
        for _ in range(CALLS // len(calls)):
            call()

    with ThreadPoolExecutor(len(calls)) as pool:
        list(pool.map(lambda call: call(), calls))
        before = _processor_seconds(service.pid)
        list(pool.map(many, calls))
        return CALLS / (_processor_seconds(service.pid) - before)


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


FIGURES = [heartbeats]
