"""S16: states change only along the edges of the lifecycle tables."""

from __future__ import annotations

from typing import Any

from cede.model.allocation import Allocation
from cede.model.lifecycle import ALLOCATION_MOVES, REQUEST_MOVES
from cede.model.node import NODE_MOVES, Node
from cede.model.request import Request


def check_move(old: Any, new: Any) -> None:
    """S16: every change of state is an edge of the lifecycle tables."""
    if type(new) is Request and old.status is not new.status:
        assert new.status in REQUEST_MOVES[old.status], (old.status, new.status)
    if type(new) is Allocation and old.state is not new.state:
        assert new.state in ALLOCATION_MOVES[old.state], (old.state, new.state)
    if type(new) is Node and old.state is not new.state:
        assert new.state in NODE_MOVES[old.state], (old.state, new.state)
