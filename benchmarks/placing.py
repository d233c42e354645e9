"""Placing what waits where classes decide: ten times the jobs on ten times the nodes, at once."""

from __future__ import annotations

import gc
from functools import partial
from time import process_time
from typing import Any

from benchmarks.report import Figure, in_a_process
from cede.engine import commands, edits, fleet
from cede.engine.decide import decide
from cede.engine.state import State
from cede.model import bounds
from cede.model.parting import Checkpoint, Farewell
from cede.model.plan import Grant
from cede.model.shape import Shape
from cede.model.subject import Subject
from cede.model.terms import parse_terms

TIMES = 5
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
        owner = f"team{number % TEAMS}" if number % 2 else "nobody"
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
        _submit(state, number)
    return state


def _submit(state: State, number: int) -> None:
    gpus, tasks = KINDS[number % len(KINDS)]
    commands.submit(
        state,
        commands.Submission(
            f"request-{number}",
            Subject("team", f"team{number % TEAMS}"),
            {"gpu": gpus * tasks},
            shape=Shape({"gpu": gpus}, tasks),
            walltime=WALLTIMES[number % len(WALLTIMES)],
            farewell=Farewell(Checkpoint.AUTO),
            terms=parse_terms(preemption_class=CLASSES[number % len(CLASSES)]),
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


def placing() -> Figure:
    return _compared("by class", at_home=False)


def placing_at_home() -> Figure:
    return _compared("by class and home", at_home=True)


FIGURES = [placing]
