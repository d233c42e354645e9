"""Trying something on the real state, which is there again afterwards in every part.

`State.undo` brings back what was changed. What the next pass has yet to look at is only ever added
to by commands and takings, so a mark need not know it; a whole pass empties it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cede.engine.state.state import State


class _Kept:
    """A state as it is now."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._mark = state.mark()
        self._dirty, self._unearmarked = dict(state.dirty), dict(state.unearmarked)
        self._ledger = {
            pool_id: (ledger.unchecked, ledger.fresh, ledger.scores)
            for pool_id, ledger in state.ledgers.items()
        }

    def restore(self) -> None:
        state = self._state
        state.undo(self._mark)
        state.dirty, state.unearmarked = self._dirty, self._unearmarked
        for pool_id, kept in self._ledger.items():
            ledger = state.ledgers[pool_id]
            ledger.unchecked, ledger.fresh, ledger.scores = kept


@contextmanager
def what_if(state: State) -> Iterator[None]:
    """Try something on the real state and leave no trace of it."""
    kept = _Kept(state)
    try:
        yield
    finally:
        kept.restore()


@contextmanager
def whole(state: State) -> Iterator[None]:
    """Whatever fails in here has changed nothing."""
    kept = _Kept(state)
    try:
        yield
    except BaseException:
        kept.restore()
        raise
