"""Trying or asking something on the real state, which is the same in every part afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cede.engine.state.state import State


@contextmanager
def what_if(state: State) -> Iterator[None]:
    """Try something on the real state and leave no trace of it."""
    mark = state.mark()
    try:
        yield
    finally:
        state.undo(mark)


@contextmanager
def whole(state: State) -> Iterator[None]:
    """Whatever fails in here has changed nothing."""
    mark = state.mark()
    try:
        yield
    except BaseException:
        state.undo(mark)
        raise


@contextmanager
def as_of(state: State, now: int) -> Iterator[None]:
    """Ask something as of an instant; only a pass or a command moves the clock for good."""
    before, state.now = state.now, now
    try:
        yield
    finally:
        state.now = before
