"""Placing what waits where classes decide: ten times the jobs on ten times the nodes, at once; and
ten times the waiters of a full pool, after a release.
"""

from __future__ import annotations

import gc
from functools import partial
from statistics import quantiles
from time import process_time
from typing import Any

from benchmarks.report import Figure, in_a_process
from cede.engine.admin import edits, fleet
from cede.engine.decide import decide
from cede.engine.lifecycle import commands
from cede.engine.state.state import State
from cede.model import bounds
from cede.model.plan import Grant
from cede.model.shape import Shape
from cede.model.stopping import Checkpoint, StopPolicy
from cede.model.subject import Subject
from cede.model.terms import parse_terms

TIMES = 5
FULL = 200
RELEASES = 40
TEAMS = 20
GPUS = 4
NOW = 1_000
# What is asked for: GPUs a task, and tasks; each in three classes, some with an end.
KINDS = [(1, 1), (2, 1), (4, 1), (4, 2), (2, 4)]
CLASSES = (2, 4, 7)
WALLTIMES = (None, bounds.HOUR, 4 * bounds.HOUR)


def waiting(jobs: int, nodes: int, at_home: bool) -> State:
    """Idle nodes and so many that wait; with `at_home` half of the nodes are somebody's."""
    state = State()
    for number in range(nodes):
        owner = f"team{number // 2 % TEAMS}" if number % 2 else "nobody"
        fleet.register(
            state,
            id=f"node-{number:05}",
            name=f"node-{number:05}",
            amounts={"gpu": GPUS},
            labels={"pool": "gpus", "home": owner},
            heartbeat=bounds.HEARTBEAT_MAX,
            now=0,
        )
    edits.create_pool(state, id="pool", name="pool", preset="classes", nodes={"pool": "gpus"})
    for number in range(TEAMS):
        home: dict[str, Any] = {"home": {"home": f"team{number}"}} if at_home else {}
        subject = Subject("team", f"team{number}")
        edits.attach_policy(state, id=f"policy{number}", pool_id="pool", subject=subject, **home)
    for number in range(jobs):
        rank = CLASSES[number % len(CLASSES)]
        _submit(state, number, KINDS[number % len(KINDS)], rank, WALLTIMES[number % len(WALLTIMES)])
    return state


def _submit(
    state: State, number: int, kind: tuple[int, int], rank: int, walltime: int | None
) -> None:
    gpus, tasks = kind
    commands.submit(
        state,
        commands.Submission(
            f"request-{number}",
            Subject("team", f"team{number % TEAMS}"),
            {"gpu": gpus * tasks},
            shape=Shape({"gpu": gpus}, tasks),
            walltime=walltime,
            stop_policy=StopPolicy(Checkpoint.AUTO),
            terms=parse_terms(preemption_class=rank),
            lease=None,
        ),
        NOW,
    )


def pass_seconds(jobs: int, nodes: int, at_home: bool) -> float:
    """One pass that places all of them: the fastest of some, free of neighbours."""
    took = []
    for _ in range(TIMES):
        state = waiting(jobs, nodes, at_home)
        gc.collect()
        gc.disable()
        started = process_time()
        plan = decide(state, NOW)
        took.append(process_time() - started)
        gc.enable()
        granted = sum(isinstance(each, Grant) for each in plan.decisions)
        assert granted == jobs, f"{granted} of {jobs} were placed"
    return min(took)


def _compared(name: str, at_home: bool) -> Figure:
    few = in_a_process(partial(pass_seconds, 100, 1_000, at_home))
    many = in_a_process(partial(pass_seconds, 1_000, 10_000, at_home))
    return Figure(
        f"placing 1,000 jobs on 10,000 nodes over 100 on 1,000, {name}",
        many / few,
        most=15,
        detail=f"{many * 1e3:.0f} ms over {few * 1e3:.1f} ms",
    )


def release_seconds(waiters: int) -> float:
    """A pass after a release in a full pool with homes, in which some of those behind a blocked
    head may start: the lower quartile of some, free of neighbours.
    """
    state = waiting(0, FULL, at_home=True)
    for number in range(FULL):
        hours = 2 + number % 7
        _submit(state, number, (GPUS, 1), rank=7, walltime=hours * bounds.HOUR)
    assert len(decide(state, NOW).decisions) == FULL
    for number in range(FULL, FULL + waiters):
        walltime = WALLTIMES[number % len(WALLTIMES)]
        _submit(state, number, KINDS[number % len(KINDS)], rank=4, walltime=walltime)
    assert not decide(state, NOW).decisions
    gc.collect()
    gc.disable()
    took = []
    for number in range(0, FULL, FULL // RELEASES):
        commands.release(state, f"request-{number}", NOW)
        started = process_time()
        decide(state, NOW)
        took.append(process_time() - started)
        state.drain()
    gc.enable()
    return quantiles(took, n=4)[0]


def released_behind_a_head() -> Figure:
    few = in_a_process(partial(release_seconds, 1_000))
    many = in_a_process(partial(release_seconds, 10_000))
    return Figure(
        f"pass after a release, 10,000 waiters over 1,000 ({FULL} nodes, by class and home)",
        many / few,
        most=2,
        detail=f"{many * 1e3:.1f} ms over {few * 1e3:.1f} ms",
    )


def placing() -> Figure:
    return _compared("by class", at_home=False)


def placing_at_home() -> Figure:
    return _compared("by class and home", at_home=True)


FIGURES = [placing, placing_at_home, released_behind_a_head]
