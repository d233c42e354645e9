"""That a pass kept without a rehearsal, as the order of standing alone says enough, has nothing to
regret: each is rehearsed all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

from cede.engine import decide
from cede.engine.state.state import State
from cede.engine.steps import rehearsal
from cede.model.plan import Barred, Plan, Refused

from .checks import Broken


@dataclass
class Kept:
    """How many passes needed no rehearsal, and how many did."""

    without: int = 0
    rehearsed: int = 0


@contextmanager
def checked_rehearsals() -> Iterator[Kept]:
    """A context in which every pass that could be rehearsed is."""
    kept, real, follows = Kept(), decide.regrets, rehearsal._follows_order

    def checked(state: State, plan: Plan, then: rehearsal.Decide) -> dict[Barred, Refused]:
        in_order: list[bool] = []

        def never(state: State, plan: Plan) -> bool:
            in_order.append(follows(state, plan))
            return False

        with patch.object(rehearsal, "_follows_order", never):
            found = real(state, plan, then)
        if True not in in_order:
            kept.rehearsed += len(in_order)
            return found
        kept.without += 1
        if found:
            raise Broken(f"a pass was kept without a rehearsal, which finds {found}")
        return {}

    with patch.object(decide, "regrets", checked):
        yield kept
