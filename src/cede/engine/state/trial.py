"""Tries a change, or answers a question, on the real state, and restores every part of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cede.engine.state.state import State


@contextmanager
def what_if(state: State) -> Iterator[None]:
    """A context in which changes of the real state are tried and then undone."""
    mark = state.mark()
    try:
        yield
    finally:
        state.undo(mark)


@contextmanager
def whole(state: State) -> Iterator[None]:
    """A context that undoes all its changes if it fails."""
    mark = state.mark()
    try:
        yield
    except BaseException:
        state.undo(mark)
        raise


@contextmanager
def as_of(state: State, now: int) -> Iterator[None]:
    """A context with another instant as `now`; a pass or a command moves the clock for good."""
    before, state.now = state.now, now
    try:
        yield
    finally:
        state.now = before
