"""A pass asks no waiter for victims that no waiter like it could have."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from cede.engine.admin import edits
from cede.engine.decide import decide
from cede.engine.fair.status import Starving
from cede.engine.lifecycle import commands
from cede.engine.state.state import State
from cede.engine.steps import preempt
from cede.engine.steps.preempt import Taking
from cede.model.subject import Subject

RED, BLUE, GREEN = (Subject("team", name) for name in ("red", "blue", "green"))
WAITERS = 50


@pytest.mark.parametrize("reserved", [{}, {"gpu": 1}], ids=["nothing reserved", "reserve full"])
def test_waiters_who_may_stop_nobody_are_passed_over_together(reserved: dict[str, int]) -> None:
    state = State()
    edits.create_pool(state, id="few", name="few", capacity={"gpu": 2})
    edits.attach_policy(state, id="red", pool_id="few", subject=RED, reserved=reserved)
    edits.attach_policy(state, id="blue", pool_id="few", subject=BLUE, reserved=reserved)
    for number in range(WAITERS):
        for subject in (RED, BLUE):
            name = f"{subject.name}{number}"
            given = commands.Submission(id=name, subject=subject, amounts={"gpu": 1})
            commands.submit(state, given, 0)
    decide(state, 0)
    with patch.object(Taking, "_serve", autospec=True, side_effect=Taking._serve) as served:
        commands.release(state, "red0", 1, outcome="done")
        decide(state, 1)
    assert served.call_count <= 4  # one of each policy, in the rounds of a pass


# Above the time-out after which who is below a fair share starves aggressively, if it may.
LONG = 3_600_000


@pytest.mark.parametrize("aggressive", [False, True], ids=["starving", "aggressively starving"])
def test_waiters_that_starve_alike_are_asked_once(aggressive: bool) -> None:
    """Each has a share of 2.67 GPUs; red and blue hold 3, of which the third is the last within it,
    and green 2. Green starves, and no holding is open to it.
    """
    state = State()
    settings = {
        "enable_aggressive_starvation": aggressive,
        "allow_aggressive_preemption": False,
    }
    edits.create_pool(
        state, id="few", name="few", preset="fair_share", capacity={"gpu": 8}, settings=settings
    )
    teams = {RED: 3, BLUE: 3, GREEN: 2}
    for team, holds in teams.items():
        edits.attach_policy(state, id=team.name, pool_id="few", subject=team)
        _submit_some(state, team, range(holds))
    decide(state, 0)
    for team, holds in teams.items():
        _submit_some(state, team, range(holds, holds + WAITERS), gpus=(1, 2))
    decide(state, 0)
    decide(state, LONG)
    decide(state, 2 * LONG)
    starving = {each.status for each in state.starving["few"].values()}
    assert (Starving.AGGRESSIVELY_STARVING in starving) is aggressive
    with patch.object(preempt, "find_victims", side_effect=preempt.find_victims) as searched:
        _submit_some(state, GREEN, range(WAITERS, WAITERS + 3))
        decide(state, 3 * LONG)
    demands = 2 * len(teams)
    assert searched.call_count <= (demands if aggressive else 0)


def _submit_some(state: State, team: Subject, numbers: range, gpus: tuple[int, ...] = (1,)) -> None:
    for number in numbers:
        amounts = {"gpu": gpus[number % len(gpus)]}
        given = commands.Submission(f"{team.name}{number}", team, amounts, lease=None)
        commands.submit(state, given, 0)
