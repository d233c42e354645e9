"""Fair shares: the whole computation, how it grows, the update after one change, and a pass amid
waiters that starve.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import cycle
from random import Random
from statistics import mean, median
from time import process_time

from benchmarks.report import Figure, in_a_process
from cede.engine.admin import edits
from cede.engine.decide import decide
from cede.engine.fair.shares import Solver, compute
from cede.engine.fair.tree import Element, Kind, Mode, Options, Tree
from cede.engine.lifecycle import commands
from cede.engine.state.state import State
from cede.model import bounds
from cede.model.subject import Subject

OPTIONS = Options(main="gpu")
CHANGES = 60
TEAMS = 20
LONG = bounds.HOUR  # whoever is below its share for so long starves


def generated_tree(policies: int, requests: int, seed: int = 4) -> Tree:
    """Departments, their teams and groups in these; twice as much is wanted as there is.

    Requests are spread unevenly: a third of the leaves have most of them, as in real trees.
    """
    dice = Random(seed)
    totals = {"gpu": 8 * requests, "mcpu": 128_000 * requests, "memory_mb": 1_000_000 * requests}
    departments = [f"department{number}" for number in range(max(1, policies // 30))]
    teams = [f"team{number}" for number in range(policies // 3)]
    groups = [f"group{number}" for number in range(policies - len(departments) - len(teams))]
    elements = []
    for ids, above, most in (
        (departments, [""], 0.6),
        (teams, departments, 0.4),
        (groups, teams, 0.0),
    ):
        each = totals["gpu"] * most / len(ids)
        for element_id in ids:
            elements.append(
                Element(
                    element_id,
                    Kind.POLICY,
                    parent=dice.choice(above),
                    weight=dice.choice((1, 1, 2, 5)),
                    mode=Mode.FIFO if ids is groups and dice.random() < 0.2 else Mode.FAIR_SHARE,
                    guarantee={"gpu": int(dice.random() * each)} if dice.random() < 0.5 else {},
                    limit={"gpu": int(totals["gpu"] * 0.2)} if dice.random() < 0.1 else {},
                )
            )
    busy = groups[: len(groups) // 3]
    for number in range(requests):
        gpu = dice.choice((1, 2, 4, 8, 16, 64))
        demand = {
            "gpu": gpu,
            "mcpu": gpu * dice.randrange(4_000, 32_000),
            "memory_mb": gpu * 90_000,
        }
        running = dice.choice((0, 0, 0.25, 0.5, 1))
        elements.append(
            Element(
                f"request{number}",
                parent=dice.choice(busy if dice.random() < 0.7 else groups),
                demand=demand,
                usage={key: int(amount * running) for key, amount in demand.items()},
                submitted=number,
            )
        )
    return Tree(totals, tuple(elements))


def seconds(call: Callable[[], object], times: int) -> list[float]:
    took = []
    gc.collect()
    gc.disable()
    for _ in range(times):
        start = process_time()
        call()
        took.append(process_time() - start)
    gc.enable()
    return took


def whole_seconds(policies: int, requests: int, times: int) -> float:
    """The fastest, free of neighbours."""
    tree = generated_tree(policies, requests)
    return min(seconds(lambda: compute(tree, OPTIONS), times))


def growth() -> tuple[float, float]:
    return whole_seconds(566, 743, 7), whole_seconds(5_660, 7_430, 3)


def changes(tree: Tree, seed: int = 5) -> Iterator[Element]:
    """One request after another starts a part of what it wants, wants more, or ends a part."""
    dice = Random(seed)
    requests = [each for each in tree.elements if each.kind is Kind.REQUEST]
    for at in cycle(range(len(requests))):
        request = dice.choice(requests) if at % 2 else requests[at]
        more = dice.choice((0.5, 0.75, 1.25, 2))
        usage = {key: int(amount * dice.random()) for key, amount in request.demand.items()}
        demand = {key: int(amount * more) + usage[key] for key, amount in request.demand.items()}
        yield replace(request, demand=demand, usage=usage)


def read_all(tree: Tree) -> int:
    """The bare loop: it reads every element's amounts once and adds up what they want."""
    wanted = 0
    for element in tree.elements:
        demand = element.demand
        for key in tree.totals:
            wanted += demand.get(key, 0)
    return wanted


def update() -> tuple[float, float, float, float]:
    tree = generated_tree(1_000, 10_000)
    known = {each.id: each for each in tree.elements}
    solver = Solver(tree, OPTIONS)
    edits = changes(tree)
    touched = []

    def change() -> None:
        element = next(edits)
        known[element.id] = element
        solver.put(element)
        touched.append(len(solver.settle()))

    took = mean(seconds(change, CHANGES))
    loop = mean(seconds(lambda: read_all(tree), 30))
    full = mean(seconds(lambda: compute(tree, OPTIONS), 1))
    whole = compute(Tree(tree.totals, tuple(known.values())), OPTIONS)
    for element_id, share in whole.elements.items():
        for exact, kept in zip(share.total, solver.fair_share(element_id), strict=True):
            assert abs(exact - kept) <= 1e-6, element_id
    return took, loop, full, mean(touched)


def fair_shares_grow_gently() -> Figure:
    small, large = in_a_process(growth)
    detail = (
        f"{1e3 * small:.0f} ms for 566 policies and 743 requests, {1e3 * large:.0f} for ten times"
    )
    return Figure("fair shares of ten times the tree over once", large / small, 13, detail=detail)


def fair_shares_are_updated_cheaply() -> Figure:
    took, loop, full, touched = in_a_process(update)
    detail = (
        f"{1e3 * took:.1f} ms after one change over {1e3 * loop:.2f} ms of a bare loop; all of it "
        f"{1e3 * full:.0f} ms; {touched:.0f} shares of 11,000 change on average"
    )
    return Figure("update of 1,000 policies and 10,000 requests", took / loop, 20, detail=detail)


def full_pool(gpus: int) -> tuple[State, int]:
    """A full pool of twenty teams that hold and want equal parts, once all of them starve."""
    state, now = State(), 1_000
    edits.create_pool(state, id="pool", name="pool", preset="fair_share", capacity={"gpu": gpus})
    for number in range(2 * TEAMS):
        subject = Subject("team", f"team{number}")
        edits.attach_policy(state, id=f"policy{number}", pool_id="pool", subject=subject)
    for number in range(2 * gpus):
        if number == gpus:  # those before hold, the others wait
            decide(state, now)
        _submit_one(state, number, number % TEAMS, now)
    decide(state, now)
    now += LONG
    decide(state, now)
    state.drain()
    return state, now


def _submit_one(state: State, number: int, team: int, now: int) -> None:
    subject = Subject("team", f"team{team}")
    submission = commands.Submission(f"request{number}", subject, {"gpu": 1}, lease=None)
    commands.submit(state, submission, now)


def starving_seconds(gpus: int) -> float:
    """A pass, with the shares that it publishes, after a team that holds nothing came."""
    state, now = full_pool(gpus)
    took = []
    gc.collect()
    gc.disable()
    for number in range(TEAMS):
        now += LONG
        _submit_one(state, 2 * gpus + number, TEAMS + number, now)
        start = process_time()
        decide(state, now)
        took.append(process_time() - start)
        state.drain()
    gc.enable()
    return median(took)


def starving_growth() -> tuple[float, float]:
    return starving_seconds(200), starving_seconds(2_000)


def starving_waiters_are_not_asked_one_by_one() -> Figure:
    few, many = in_a_process(starving_growth)
    detail = f"{1e3 * many:.1f} ms for 2,000 holders and 2,000 waiters, {1e3 * few:.1f} for 200"
    return Figure(
        "pass among ten times the starving waiters over once", many / few, 20, detail=detail
    )


FIGURES = [
    fair_shares_grow_gently,
    fair_shares_are_updated_cheaply,
    starving_waiters_are_not_asked_one_by_one,
]
