"""What a pool regrets once it is at rest: whom it stopped for nothing, whom it granted and stopped
in one pass, whom it promised something that did not come.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cede.sim import plan
from cede.snapshot.reader import load

from .pools import draw

HORIZON = 3_600  # seconds: longer than anybody's patience


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
    return of_snapshot(draw(kind, seed), HORIZON if "fair" in kind else None)


def of_snapshot(snapshot: dict[str, Any], horizon: int | None = None) -> Regret:
    """Run a snapshot to rest, and look back."""
    state = load(snapshot)
    result = plan.on_until_rest(state, horizon)
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
        () if state.nodes else tuple(sorted(running & victims.keys())),
        tuple(sorted(both)),
        tuple(sorted(beneficiaries.keys() - running)),
    )
