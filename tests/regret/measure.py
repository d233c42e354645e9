"""What a pool regrets once it is at rest: whom it stopped for nothing, whom it granted and stopped
in one pass, whom it promised something that did not come.

A victim was stopped for nothing if it runs again at rest. On nodes it may come back elsewhere:
there it was, if all that was promised at the end of its pass fits beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from cede.engine.decide import decide
from cede.engine.state.state import State
from cede.model.plan import Plan
from cede.sim import plan
from cede.snapshot.reader import load
from tests.worlds.regret_checks import wasted

from .pools import draw

STARVED = 1.5  # seconds, after which who is below a fair share starves


@dataclass(frozen=True, slots=True)
class Regret:
    """By id, in one pool; `loops` if it never comes to rest."""

    victims: int = 0
    for_nothing: tuple[str, ...] = ()
    in_one_pass: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    loops: bool = False

    @property
    def none(self) -> bool:
        return not (self.for_nothing or self.in_one_pass or self.left_out or self.loops)


def measure(kind: str, seed: int) -> Regret:
    return of_snapshot(draw(kind, seed))


def of_snapshot(snapshot: dict[str, Any]) -> Regret:
    """Run a snapshot to rest, and look back."""
    state = load(snapshot)
    in_vain: dict[str, None] = {}

    def judged(state: State, now: int) -> Plan:
        made = decide(state, now)
        if state.nodes:
            in_vain.update(dict.fromkeys(wasted(state, made)))
        return made

    with patch.object(plan, "decide", judged):
        result = plan.on_until_rest(state, STARVED)
    if not result["at_rest"]:
        return Regret(loops=True)
    running = {each.request_id for each in state.allocations.values() if each.live}
    victims, beneficiaries, both = {}, {}, {}
    for one in result["passes"]:
        taken = [each for each in one["decisions"] if each["do"] == "preempt"]
        stopped = {each for taking in taken for each in taking["victims"]}
        granted = {each["request"] for each in one["decisions"] if each["do"] == "grant"}
        victims |= dict.fromkeys(stopped)
        beneficiaries |= {t["beneficiary"]: None for t in taken if t["beneficiary"] is not None}
        both |= dict.fromkeys(stopped & granted)
    return Regret(
        len(victims),
        tuple(in_vain) if state.nodes else tuple(sorted(running & victims.keys())),
        tuple(sorted(both)),
        tuple(sorted(beneficiaries.keys() - running)),
    )
