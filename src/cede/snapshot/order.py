"""The order in which what stands in a snapshot came about: holdings, promises, what was saved."""

from __future__ import annotations

from cede.model.allocation import Allocation
from cede.model.request import Earmark
from cede.model.stopping import Saved

# Its number in the snapshot if it has one, its instant, and what it is: a holding, or of a request
# its promise or its checkpoint.
Placed = tuple[int | None, int, Allocation | tuple[str, Earmark | Saved]]


def insert(order: list[Placed], placed: Placed) -> None:
    """Behind everything older: by number, and by the instant where one of the two has none."""
    given, instant, _ = placed
    later = (
        place
        for place, (number, at, _) in enumerate(order)
        if (at > instant if number is None or given is None else number > given)
    )
    order.insert(next(later, len(order)), placed)
