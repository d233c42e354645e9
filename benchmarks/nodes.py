"""The engine on pools of nodes: what one change costs, however many nodes and waiters there are."""

from __future__ import annotations

import gc
from collections.abc import Callable
from statistics import quantiles
from time import perf_counter

from benchmarks.report import Figure
from cede.engine.admin import edits, fleet
from cede.engine.decide import decide
from cede.engine.lifecycle import commands
from cede.engine.state.state import State
from cede.model import bounds
from cede.model.plan import Grant
from cede.model.shape import Shape
from cede.model.subject import Subject

POLICIES = 50
GPUS = 8
PASSES = 100
# What is asked for: GPUs a task, and tasks. All kinds are mixed among holders and waiters.
KINDS = [(1, 1), (2, 1), (4, 1), (8, 1), (8, 2), (4, 4), (1, 8)]


def full_nodes(nodes: int, waiters: int) -> tuple[State, int]:
    """Nodes full of work of every kind, and so many waiters."""
    state = State()
    # The pool comes last: one edit instead of one for every node.
    devices = [str(each) for each in range(GPUS)]
    for number in range(nodes):
        fleet.register(
            state,
            id=f"node-{number:05}",
            name=f"node-{number:05}",
            amounts={"gpu": GPUS, "mcpu": 64_000, "memory_mb": 512_000},
            devices={"gpu": devices},
            labels={"pool": "gpus"},
            group=f"rack-{number // 32}",
            heartbeat=bounds.HEARTBEAT_MAX,  # nobody falls silent meanwhile
            now=0,
        )
    edits.create_pool(state, id="pool", name="pool", nodes={"pool": "gpus"})
    for number in range(POLICIES):
        edits.attach_policy(
            state,
            id=f"policy{number}",
            pool_id="pool",
            subject=Subject("team", f"team{number}"),
            reserved={"gpu": 1},  # everybody has it, so nobody takes
        )
    held = number = 0
    while held < nodes * GPUS:
        held += submit(state, number)
        number += 1
    decide(state, 1_000 + number)
    for each in range(number, number + waiters):
        submit(state, each)
    now = 1_000 + number + waiters
    decide(state, now)
    state.drain()
    return state, now


def submit(state: State, number: int) -> int:
    """One request; how many GPUs it asks for."""
    gpus, tasks = KINDS[number % len(KINDS)]
    each = {"gpu": gpus, "mcpu": gpus * 4_000, "memory_mb": gpus * 32_000}
    commands.submit(
        state,
        commands.Submission(
            f"request-{number}",
            Subject("team", f"team{number % POLICIES}"),
            {key: amount * tasks for key, amount in each.items()},
            shape=Shape(each, tasks),
            lease=None,
        ),
        1_000 + number,
    )
    return gpus * tasks


def pass_seconds(nodes: int, waiters: int, change: Callable[[State, str, int], None]) -> float:
    """A pass after one change: the lower quartile, free of neighbours."""
    state, now = full_nodes(nodes, waiters)
    holders = [each.request_id for each in state.allocations.values()][:PASSES]
    gc.collect()
    gc.disable()
    took, grants = [], 0
    for request_id in holders:
        now += 1
        change(state, request_id, now)
        started = perf_counter()
        plan = decide(state, now)
        took.append(perf_counter() - started)
        grants += sum(isinstance(each, Grant) for each in plan.decisions)
        state.drain()
    gc.enable()
    assert grants >= PASSES // 2, grants
    return quantiles(took, n=4)[0]


def _release(state: State, request_id: str, now: int) -> None:
    commands.release(state, request_id, now)


def nodes() -> Figure:
    few, many = pass_seconds(1_000, 1_000, _release), pass_seconds(10_000, 100_000, _release)
    return Figure(
        "pass after a release, 10,000 nodes and 100,000 waiters over 1,000 and 1,000",
        many / few,
        most=3,
        detail=f"{many * 1e3:.2f} ms over {few * 1e3:.2f} ms",
    )


FIGURES = [nodes]
