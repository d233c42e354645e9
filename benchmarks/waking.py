"""What clients that wait cost the server, and how soon one of them hears of its grant.

Each waiter is one connection with one renewal that the server holds back. The callers are one
process with bare sockets, so that the server is what is measured: its processor time while nobody
is granted anything, and the time from the commit of a release to the answer of the waiter whose
turn it is, while all the others wait.
"""

from __future__ import annotations

import json
import resource
import select
import socket
from statistics import quantiles
from time import perf_counter, sleep
from urllib.parse import urlsplit

from benchmarks.heartbeats import TICKS
from benchmarks.report import Figure
from benchmarks.service import Service, serving

WAITERS = 10_000
TOKENS = 20
IDLE_SECONDS = 15.0
GRANTS = 100
BULK = 500
TEAM = {"component": "waits", "component_type": "team", "pool": "few", "resources": {"gpu": 1}}


def waiting_clients() -> Figure:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        # Three eighths of what the descriptor limit allows are connections of people.
        with serving("cede.cli") as service:
            load, delays, waiters = _measured(service, min(WAITERS, hard * 3 // 8 - 300))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    ninety_five = quantiles(delays, n=20)[-1]
    return Figure(
        f"processor time of a server with {waiters} clients that wait, of one core",
        load,
        most=0.1,
        detail=f"grant to answer: median {sorted(delays)[len(delays) // 2]:.0f} ms, "
        f"p95 {ninety_five:.0f} ms over {len(delays)} grants",
    )


def _measured(service: Service, number: int) -> tuple[float, list[float], int]:
    call = service.connect()
    call("/pools", {"name": "few", "capacity": {"gpu": 1}})
    policy = {"pool": "few", "component": "waits", "component_type": "team", "priority": 1}
    call("/policies", policy)
    body = {"name": "bench", "role": "operator"}
    tokens = [call("/tokens", body | {"name": f"b{each}"})["token"] for each in range(TOKENS)]
    holder = call("/requests", TEAM)["id"]
    ids: list[str] = []
    while len(ids) < number:
        many = call("/requests/bulk", {"requests": [TEAM] * min(BULK, number - len(ids))})
        ids += [each["request"]["id"] for each in many["items"]]  # type: ignore[attr-defined]
        sleep(0.2)
    sockets = {
        each: asking(service.address, each, tokens[at % TOKENS]) for at, each in enumerate(ids)
    }
    sleep(2.0)  # until the last of them is held back
    before = _used(service.pid)
    sleep(IDLE_SECONDS)
    load = (_used(service.pid) - before) / IDLE_SECONDS
    call = service.connect()  # the first one was silent for so long that the server closed it
    delays = []
    for each in ids[:GRANTS]:
        call(f"/requests/{holder}/release", {"attempt": 1})
        granted = perf_counter()
        _answered(sockets[each])
        delays.append(1000 * (perf_counter() - granted))
        holder = each
    for line in sockets.values():
        line.close()
    return load, delays, len(ids)


def asking(address: str, request_id: str, token: object) -> socket.socket:
    """A connection on which a waiter's renewal is held back."""
    body = json.dumps({"wait": 50}).encode()
    head = (
        f"POST /api/v1/requests/{request_id}/renew HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    at = urlsplit(f"http://{address}")
    line = socket.create_connection((at.hostname, at.port or 80), 60)
    line.sendall(head.encode() + body)
    sleep(0.001)  # in step with what a server takes
    return line


def _answered(line: socket.socket) -> None:
    """Wait for the answer: that the request is granted."""
    poll = select.poll()
    poll.register(line, select.POLLIN)
    assert poll.poll(60_000), "no answer"
    answer = line.recv(1 << 16)
    while b"}" not in answer:  # the head comes first
        answer += line.recv(1 << 16)
    assert b" 200 " in answer[:20] and b'"allocated"' in answer, answer


def _used(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


FIGURES = [waiting_clients]
