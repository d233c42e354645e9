"""The order in which a snapshot's holdings, promises and checkpoints came about."""

from __future__ import annotations

from cede.model.allocation import Allocation
from cede.model.request import Earmark
from cede.model.stopping import Saved

# Its number in the snapshot if it has one, its instant, and the thing: an allocation, or a
# request's id with its promise or checkpoint.
Placed = tuple[int | None, int, Allocation | tuple[str, Earmark | Saved]]


def insert(order: list[Placed], placed: Placed) -> None:
    """Insert behind everything older: by number, or by instant if one of the two has no number."""
    given, instant, _ = placed
    later = (
        place
        for place, (number, at, _) in enumerate(order)
        if (at > instant if number is None or given is None else number > given)
    )
    order.insert(next(later, len(order)), placed)
