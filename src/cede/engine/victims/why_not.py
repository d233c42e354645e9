"""Why a candidate is not a victim, for `why` and events; no decision uses it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from cede.engine.victims.candidates import Candidate
from cede.engine.victims.cheapest import Choice
from cede.engine.victims.goals import Goal


class WhyNot(StrEnum):
    """The reason why the search did not choose a candidate."""

    DOES_NOT_HELP = "does_not_help"  # it frees no missing amount where that is missing
    NOT_NEEDED = "not_needed"  # others are enough, and cost no more
    TOO_DEAR = "too_dear"  # the cheapest sufficient set costs the waiter's value, or more
    TOO_MANY = "too_many"  # it would take more victims than are allowed
    NOT_ENOUGH = "not_enough"  # all candidates together are not enough
    NOT_FOUND = "not_found"  # no set was found, and not all were tried


def reasons(
    candidates: Sequence[Candidate], goals: Sequence[Goal], choice: Choice
) -> list[WhyNot | None]:
    """For each candidate in turn the reason why it was not chosen; None for one that was.

    The goals are as before the search, and unchanged afterwards.
    """
    chosen = {each.holding.id for each in choice.victims or ()}
    otherwise = _otherwise(candidates, goals, choice)
    found: list[WhyNot | None] = []
    for candidate in candidates:
        if candidate.holding.id in chosen:
            found.append(None)
        elif any(goal.wants(candidate.holding) for goal in goals):
            found.append(otherwise)
        else:
            found.append(WhyNot.DOES_NOT_HELP)
    return found


def _otherwise(candidates: Iterable[Candidate], goals: Sequence[Goal], choice: Choice) -> WhyNot:
    """The reason for all candidates that would help and were not chosen."""
    if choice.victims is not None:
        return WhyNot.NOT_NEEDED
    if choice.best is not None:
        return WhyNot.TOO_DEAR
    if not _enough(candidates, goals):
        return WhyNot.NOT_ENOUGH
    return WhyNot.TOO_MANY if choice.exhaustive else WhyNot.NOT_FOUND


def _enough(candidates: Iterable[Candidate], goals: Sequence[Goal]) -> bool:
    """Whether all of these together meet the goals."""
    away = [each.holding for each in candidates]
    for goal in goals:
        for holding in away:
            goal.take_away(holding, 1)
    met = all(goal.met for goal in goals)
    for goal in goals:
        for holding in away:
            goal.take_away(holding, -1)
    return met
