"""One way through a world: small numbers that stand for what happens next, whatever may."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from cede.engine.state.state import State

from .draw import KINDS, draw
from .steps import events, happen, settle
from .world import World


@dataclass
class Walk:
    world: World
    state: State = field(init=False)
    arrived: int = 0
    lost: bool = False
    anybody_gives_up: bool = False  # also who holds, or is on its way out

    def __post_init__(self) -> None:
        self.state = self.world.state()
        settle(self.state)

    def go(self, steps: Iterable[int]) -> None:
        for step in steps:
            may = list(events(self.world, self.state, self.arrived, self.lost))
            if self.anybody_gives_up:
                alive = [each.id for each in self.state.requests.values() if not each.ended]
                may += [("gives up", each, False) for each in alive]
            if not may:
                return
            kind, who, _ = may[step % len(may)]
            happen(self.world, self.state, kind, who)
            settle(self.state)
            self.arrived += kind == "arrives"
            self.lost = self.lost or kind == "is lost"


def walk(kind: str, seed: int) -> Walk:
    return Walk(draw(KINDS[kind] + seed))
