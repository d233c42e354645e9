"""A pass asks no waiter for victims that no waiter like it could have."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from cede.engine.admin import edits
from cede.engine.decide import decide
from cede.engine.lifecycle import commands
from cede.engine.state.state import State
from cede.engine.steps.preempt import Taking
from cede.model.subject import Subject

RED, BLUE = Subject("team", "red"), Subject("team", "blue")
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
