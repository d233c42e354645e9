"""Requests as one, however many independent tasks they have: what a task group holds together, and
which of it is safe inside its policy.

A task group is a request, or all the requests that came as the independent tasks of one. Its
holdings stand in the order of their last start; its part of the fair share covers the front of that
order. How safe a holding is there is its band: 2 for non-preemptible, 1 for aggressively
preemptible, 0 for preemptible. Pools without fair shares have no bands, and no order between task
groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from cede.engine.fair.curve import Vector
from cede.engine.fair.groups import Due, Group, Held, Line, groups_of, is_protected
from cede.engine.fair.settings import FairSettings
from cede.engine.rights.cover import Holding
from cede.model.amounts import Amounts, add_to, take_from

SAFEST = 2
ABOVE_ALL = SAFEST + 1  # non-preemptible work goes before every band of its own policy
_BANDS = {Group.NON_PREEMPTIBLE: 2, Group.AGGRESSIVELY_PREEMPTIBLE: 1, Group.PREEMPTIBLE: 0}


@dataclass(frozen=True, slots=True)
class Claim:
    """What a task group is due, as last published; `smallest` is the share of one more task."""

    due: Due
    settings: FairSettings
    smallest: Vector = ()


@dataclass(frozen=True, slots=True)
class Published:
    """Fair shares as they were last computed: of policies in amounts and beside what they want, of
    task groups as claims, and how much of them is used.
    """

    shares: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    dues: Mapping[str, Due] = field(default_factory=dict)
    satisfaction: Mapping[str, float] = field(default_factory=dict)
    claims: Mapping[str, Claim] = field(default_factory=dict)
    # Of policies: where their groups end. Of elements of the balance: what demands alone give them.
    lines: Mapping[str, tuple[Line, Line]] = field(default_factory=dict)
    entitled: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    # Of every element: what of its share its guarantee gives, its volume adds, and comes by weight.
    parts: Mapping[str, tuple[Vector, Vector, Vector]] = field(default_factory=dict)


UNPUBLISHED = Published()


class TaskGroups:
    """What every task group of a pool holds."""

    def __init__(self) -> None:
        self.used: dict[str, dict[str, int]] = {}  # held or promised
        self.leaving: dict[str, dict[str, int]] = {}
        self._held: dict[str, dict[str, Holding]] = {}

    def hold(self, holding: Holding) -> None:
        self._held.setdefault(holding.task_group, {})[holding.id] = holding
        add_to(self.used.setdefault(holding.task_group, {}), holding.amounts)
        if holding.leaving:
            add_to(self.leaving.setdefault(holding.task_group, {}), holding.amounts)

    def let_go(self, holding: Holding) -> None:
        held = self._held[holding.task_group]
        del held[holding.id]
        if not held:
            del self._held[holding.task_group]
            del self.used[holding.task_group]
            self.leaving.pop(holding.task_group, None)
            return
        take_from(self.used[holding.task_group], holding.amounts)
        if holding.leaving:
            take_from(self.leaving[holding.task_group], holding.amounts)

    def replace(self, holding: Holding, old: Holding) -> None:
        """The same holding, with another band, or on its way out now, or no longer."""
        task_group = holding.task_group
        self._held[task_group][holding.id] = holding
        if old.leaving and not holding.leaving:
            take_from(self.leaving[task_group], holding.amounts)
        elif holding.leaving and not old.leaving:
            add_to(self.leaving.setdefault(task_group, {}), holding.amounts)

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __contains__(self, task_group: object) -> bool:
        return task_group in self._held

    def of(self, task_group: str) -> list[Holding]:
        """Its holdings that stay, in the order of their last start."""
        held = self._held.get(task_group, {}).values()
        return sorted((each for each in held if not each.leaving), key=lambda each: each.index)

    def banded(self, task_group: str, claim: Claim | None) -> Iterator[Holding]:
        """Its holdings whose band is another now, with that band."""
        for holding, band, safe in zip(*_judge(self.of(task_group), claim), strict=True):
            if (band, safe) != (holding.band, holding.safe):
                yield holding.judged(band, safe)

    def next_band(self, task_group: str, claim: Claim | None, amounts: Amounts) -> int:
        """The band of its next task, once granted."""
        return 0 if claim is None else _bands(self.of(task_group), claim, Held("", amounts))[-1]


def _judge(held: list[Holding], claim: Claim | None) -> tuple[list[Holding], list[int], list[bool]]:
    if claim is None:
        return held, [0] * len(held), [False] * len(held)
    bands = _bands(held, claim)
    return held, bands, list(_protected(held, claim.settings))


def _bands(held: Iterable[Holding], claim: Claim, *more: Held) -> list[int]:
    order = [Held(each.id, each.amounts) for each in held]
    return [_BANDS[each] for each in groups_of((*order, *more), claim.due, claim.settings)]


def _protected(held: list[Holding], settings: FairSettings) -> Iterator[bool]:
    """Whether each is within what its owner may use without fear, whatever its share is."""
    threshold = settings.non_preemptible_resource_usage_threshold
    before = dict.fromkeys(threshold, 0)
    for each in held:
        yield is_protected(before, threshold)
        add_to(before, each.amounts)


def claims_moved(old: Mapping[str, Claim], new: Mapping[str, Claim]) -> list[str]:
    """The task groups that are due something else than before."""
    return [each for each in {**old, **new} if old.get(each) != new.get(each)]
