"""A busy, realistic pool: three clusters, a tree of teams, lending, waiting, preemption, a drain.

Tests of the page and the screenshots look at this one world.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from cede.model import bounds
from tests.api.conftest import Server, made
from tests.api.machines import API, Machine

NAUGHTY = "<img src=x onerror=\"document.title='owned'\">"
NODES, GPUS = 8, 8
TEAMS = ("vision", "language", "speech", "robotics", "evaluation")
_JOBS = {
    "vision": ("train segmenter", "sweep augmentations", "render synthetic set"),
    "language": ("pretrain 7B", "finetune chat", "tokenize crawl"),
    "speech": ("train vocoder", "align corpora"),
    "robotics": ("simulate grasps", "train policy"),
    "evaluation": ("nightly benchmark", "human preference"),
}
# The world has no agents that send heartbeats, so a node is silent only after half an hour.
QUIET = bounds.HEARTBEAT_MAX


@dataclass
class Busy:
    server: Server
    machines: list[Machine]
    requests: dict[str, list[dict[str, Any]]]
    waiting: list[dict[str, Any]]
    running: list[dict[str, Any]]


def policy(server: Server, name: str, **fields: Any) -> dict[str, Any]:
    return server.policy(name, "h100", **fields)


def submit(server: Server, team: str, gpu: int, job: str, **fields: Any) -> dict[str, Any]:
    body = {
        "component": team,
        "component_type": "team",
        "resources": {"gpu": gpu},
        "labels": {"job": job},
        "work": {"argv": ["python", "train.py", "--job", job]},
        **fields,
    }
    return made(server["operator"].post(f"{API}/requests", json=body))


def build(server: Server, written: str = NAUGHTY) -> Busy:
    """Fill a fresh server; `written` is what people wrote in some of its fields."""
    context = server.app.state.cede
    context.config = replace(context.config, heartbeat=QUIET)
    made(
        server["admin"].post(
            f"{API}/pools",
            json={
                "name": "h100",
                "nodes": {"gpu": "h100"},
                "description": "64 H100 in two racks; lends what teams do not use",
            },
        )
    )
    server.pool("a10", 16, description=written)
    machines = [
        Machine(
            server,
            f"h100-{rack}{number}",
            GPUS,
            labels={"gpu": "h100", "rack": rack, "note": written},
            group=f"rack-{rack}",
        )
        for rack in "ab"
        for number in range(1, NODES // 2 + 1)
    ]
    policy(server, "research", reserved={"gpu": 40}, limit={"gpu": 64}, priority=10)
    for name, reserved, priority in (
        ("vision", 16, 10),
        ("language", 16, 20),
        ("speech", 8, 10),
    ):
        policy(server, name, parent="research", reserved={"gpu": reserved}, priority=priority)
    policy(server, "robotics", reserved={"gpu": 16}, limit={"gpu": 32}, priority=10)
    policy(server, "evaluation", reserved={"gpu": 8}, limit={"gpu": 16}, priority=5)
    for name in ("vision", "evaluation"):
        server.policy(name, "a10", reserved={"gpu": 8}, priority=10)
    server.policy("red", "a10", priority=1, name=written)
    requests: dict[str, list[dict[str, Any]]] = {}

    def ask(team: str, gpu: int, number: int = 0, **fields: Any) -> None:
        jobs = _JOBS[team]
        job = jobs[number % len(jobs)]
        requests.setdefault(team, []).append(submit(server, team, gpu, job, **fields))

    # Language borrows what robotics and evaluation do not use; then the owners come back.
    for number, gpu in enumerate((8, 8, 8, 4, 4)):
        ask("language", gpu, number)
    for number, gpu in enumerate((8, 4, 2, 2)):
        ask("vision", gpu, number)
    for number, gpu in enumerate((4, 2, 2)):
        ask("speech", gpu, number)
    for machine in machines:
        for order in machine.beat()["orders"]:
            machine.tell(order, "started")
    ask("robotics", 8)
    ask("robotics", 4, 1)
    for number, gpu in enumerate((8, 4, 4, 2, 8, 16)):
        ask("language", gpu, number)
    for number, gpu in enumerate((4, 8, 2)):
        ask("evaluation", gpu, number)
    naughty = {"argv": ["python", written], "env": {"NOTE": written}, "directory": f"/{written}"}
    labels = {"job": written, "project": written}
    ask("vision", 4, 2, labels=labels, comment=written, tenant=written[:60], work=naughty)
    made(server["red"].post(f"{API}/requests", json={"resources": {"gpu": 2}, "comment": written}))
    reason = "fan 3 is loud" + (f" {NAUGHTY}" if written == NAUGHTY else "")
    made(server["operator"].post(f"{API}/nodes/h100-b4/drain", json={"reason": reason}))
    found = {
        status: made(
            server["operator"].get(
                f"{API}/requests?limit=500&" + "&".join(f"status={s}" for s in statuses)
            )
        )["items"]
        for status, statuses in {
            "waiting": ("queued", "suspended"),
            "running": ("allocated", "preempting"),
        }.items()
    }
    return Busy(server, machines, requests, found["waiting"], found["running"])
