"""The engine alone: how a pass grows with what waits, and what a waiter weighs."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from statistics import quantiles
from time import process_time

from benchmarks.report import Figure, in_a_process
from cede.engine.admin import edits
from cede.engine.decide import decide
from cede.engine.lifecycle import commands
from cede.engine.state.state import State
from cede.model.plan import Grant, Plan, Preemption
from cede.model.subject import Subject

POLICIES = 50
HOLDERS = 200
PASSES = 100


def shared_pool(waiters: int, shapes: int = 1) -> tuple[State, int]:
    """A full pool of fifty policies, all of one priority, and so many waiters of so many shapes."""
    state = State()
    capacity = {"gpu": HOLDERS, "memory_mb": 10**9}
    edits.create_pool(state, id="pool", name="pool", capacity=capacity)
    for number in range(POLICIES):
        edits.attach_policy(
            state,
            id=f"policy{number}",
            pool_id="pool",
            subject=Subject("team", f"team{number}"),
            reserved={"gpu": HOLDERS // POLICIES},
        )
    submit_more(state, range(HOLDERS), shapes)
    return state, submit_more(state, range(HOLDERS, HOLDERS + waiters), shapes)


def submit_more(state: State, numbers: range, shapes: int = 1) -> int:
    """Submit these requests and let a pass look at them; the instant after it."""
    for number in numbers:
        amounts = {"gpu": 1, "memory_mb": 1 + number % shapes, "step_run": 1}
        team = Subject("team", f"team{number % POLICIES}")
        submission = commands.Submission(f"request-{number}", team, amounts, lease=None)
        commands.submit(state, submission, 1_000 + number)
    now = 1_000 + numbers.stop
    decide(state, now)
    state.drain()
    return now


def pass_seconds(waiters: int, shapes: int = 1) -> float:
    """A pass after a release that starts one waiter: the lower quartile, free of neighbours."""
    state, now = shared_pool(waiters, shapes)
    holders = [each.request_id for each in state.allocations.values()][:PASSES]
    seconds, plans = _passes_after(state, holders, now)
    for plan in plans:
        assert [type(each) for each in plan.decisions] == [Grant], plan
    return seconds


def _passes_after(state: State, holders: list[str], now: int) -> tuple[float, list[Plan]]:
    """The lower quartile of the passes after the end of each of these, and the passes' plans."""
    gc.collect()
    gc.disable()
    took, plans = [], []
    for request_id in holders:
        now += 1
        commands.release(state, request_id, now)
        started = process_time()
        plans.append(decide(state, now))
        took.append(process_time() - started)
        state.drain()
    gc.enable()
    return quantiles(took, n=4)[0], plans


def waiters() -> Figure:
    few, many = pass_seconds(1_000), pass_seconds(100_000)
    return Figure(
        "pass after a release, 100,000 waiters over 1,000 (50 policies)",
        many / few,
        most=2,
        detail=f"{many * 1e3:.2f} ms over {few * 1e3:.2f} ms",
    )


def shapes() -> Figure:
    few, many = pass_seconds(10_000, shapes=10), pass_seconds(10_000, shapes=10_000)
    return Figure(
        "pass after a release, 10,000 distinct shapes over 10",
        many / few,
        most=5,
        detail=f"{many * 1e3:.2f} ms over {few * 1e3:.2f} ms",
    )


def _resident() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _memory() -> tuple[int, int]:
    state, _ = shared_pool(10_000)
    small = _resident()
    submit_more(state, range(HOLDERS + 10_000, HOLDERS + 110_000))
    return small, _resident()


def memory() -> Figure:
    small, large = in_a_process(_memory)
    each = (large - small) / 100_000
    return Figure(
        "memory a waiter, from 10,000 to 110,000",
        each / 1024,
        most=2,
        unit=" KiB",
        detail=f"{small / 2**20:.0f} MiB to {large / 2**20:.0f} MiB",
    )


CROWD = 4_000


def _crowd(borrowers: bool) -> tuple[State, int, float]:
    """Two teams, each with half of the pool reserved; the first may fill all of it before."""
    state = State()
    edits.create_pool(state, id="pool", name="pool", capacity={"gpu": CROWD})
    red, blue = Subject("team", "red"), Subject("team", "blue")
    edits.attach_policy(state, id="red", pool_id="pool", subject=red)
    edits.attach_policy(state, id="blue", pool_id="pool", subject=blue, reserved={"gpu": CROWD})
    now = 1_000
    for team in (red, blue) if borrowers else (blue,):
        for number in range(CROWD):
            submission = commands.Submission(
                f"{team.name}-{number}", team, {"gpu": 1, "step_run": 1}, lease=None
            )
            commands.submit(state, submission, now + number)
        now += CROWD
        if team is red:
            decide(state, now)
            state.drain()
    gc.collect()
    started = process_time()
    plan = decide(state, now)
    took = process_time() - started
    kinds = {type(each) for each in plan.decisions}
    assert kinds == {Preemption if borrowers else Grant} and len(plan.decisions) == CROWD
    return state, now, took


def reclaim() -> Figure:
    """The fastest of three each, in turn, so that both are disturbed alike."""
    taken, granted = zip(*((_crowd(True)[2], _crowd(False)[2]) for _ in range(3)), strict=True)
    taking, granting = min(taken), min(granted)
    return Figure(
        "deciding 4,000 reclaims over granting 4,000 on an empty pool",
        taking / granting,
        most=4.5,
        detail=f"{taking * 1e3:.0f} ms over {granting * 1e3:.0f} ms",
    )


def _amid(stopping: int) -> float:
    """A pass after somebody ended, while so many are on their way out: the lower quartile."""
    state = State()
    edits.create_pool(state, id="pool", name="pool", capacity={"gpu": stopping + PASSES})
    red, blue = Subject("team", "red"), Subject("team", "blue")
    edits.attach_policy(state, id="red", pool_id="pool", subject=red)
    edits.attach_policy(state, id="blue", pool_id="pool", subject=blue, reserved={"gpu": stopping})
    now = 1_000
    for team, wanted in ((red, stopping + PASSES), (blue, stopping)):
        for number in range(wanted):
            demand = {"gpu": 1, "step_run": 1}
            submission = commands.Submission(f"{team.name}-{number}", team, demand, lease=None)
            commands.submit(state, submission, now + number)
        now += wanted
        decide(state, now)
        state.drain()
    stay = [each.request_id for each in state.allocations.values() if not each.leaving]
    assert len(stay) == PASSES
    return _passes_after(state, stay, now)[0]


def stopping() -> Figure:
    few, many = _amid(200), _amid(CROWD)
    return Figure(
        "pass after an end, 4,000 on their way out over 200",
        many / few,
        most=3,
        detail=f"{many * 1e3:.2f} ms over {few * 1e3:.2f} ms",
    )


def _taking_amid(leaving: int) -> float:
    """A pass that stops one holder, while so many are on their way out: the lower quartile."""
    state, now, _ = _crowd(borrowers=False)
    edits.update_policy(state, "blue", reserved={"gpu": 0})
    red = Subject("team", "red")
    edits.update_policy(state, "red", reserved={"gpu": leaving + PASSES})
    took: list[float] = []

    def submit(number: int) -> None:
        submission = commands.Submission(
            f"red-{number}", red, {"gpu": 1, "step_run": 1}, lease=None
        )
        commands.submit(state, submission, now)

    for number in range(leaving):
        submit(number)
    decide(state, now)
    state.drain()
    gc.collect()
    gc.disable()
    for number in range(leaving, leaving + PASSES):
        now += 1
        submit(number)
        started = process_time()
        plan = decide(state, now)
        took.append(process_time() - started)
        assert [type(each) for each in plan.decisions] == [Preemption], plan
        first = next(each for each in state.allocations.values() if each.leaving)
        commands.release(state, first.request_id, now, outcome="stopped")
        decide(state, now)
        state.drain()
    gc.enable()
    return quantiles(took, n=4)[0]


def taking() -> Figure:
    few, many = _taking_amid(10), _taking_amid(400)
    return Figure(
        "pass that stops one, 400 on their way out over 10",
        many / few,
        most=1.5,
        detail=f"{many * 1e3:.2f} ms over {few * 1e3:.2f} ms",
    )


FIGURES = [waiters, shapes, memory, reclaim, stopping, taking]
