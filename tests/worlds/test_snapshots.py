"""Plans of snapshots nobody has seen: they never loop; every taking is legal and needed."""

from __future__ import annotations

import pytest

from cede.engine.audit import audit
from cede.engine.decide import decide
from cede.sim import plan
from cede.snapshot.reader import load
from cede.snapshot.writer import dump

from .explore import checked_takings
from .snapshots import draw_snapshot

SNAPSHOTS = [
    pytest.param(range(30), id="short"),
    pytest.param(range(30, 1_000), id="long", marks=pytest.mark.slow),
]

# Snapshots in which something was wrong once.
FOUND = [452, 1871, 2160, 2557]


def check(seed: int) -> None:
    snapshot = draw_snapshot(seed)
    with checked_takings():
        assert plan.run(snapshot)["at_rest"], seed
        rested = plan.run(snapshot, until_rest=True, horizon=[None, 50, 1_000][seed % 3])
    assert rested["at_rest"] and not rested["loop"], seed
    state, again = load(snapshot), load(dump(load(snapshot), 100_000))
    assert decide(state, state.now).decisions == decide(again, again.now).decisions, seed
    # A snapshot may start over a limit or a reserve, as after an edit; never over what is promised.
    assert not [each for each in audit.check(state) if each[:2] not in ("S2", "S5")], seed
    middle = load(dump(state, state.now))
    later = state.now + 1_000
    assert decide(state, later).decisions == decide(middle, later).decisions, seed


@pytest.mark.parametrize("seeds", SNAPSHOTS)
def test_plans_hold_on_snapshots_that_no_history_led_to(seeds: range) -> None:
    for seed in seeds:
        check(seed)


@pytest.mark.parametrize("seed", FOUND)
def test_snapshots_that_were_broken_once(seed: int) -> None:
    check(seed)
