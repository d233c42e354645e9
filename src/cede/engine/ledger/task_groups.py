"""The independent tasks of one request taken together: the holdings of a task group, and their
bands inside its policy.

A task group is a request, or all requests that were submitted as the independent tasks of one. Its
holdings stand in the order of their last start; its part of the fair share covers the front of that
order. The safety of a holding there is its band: 2 for non-preemptible, 1 for aggressively
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
from cede.model.amounts import Amounts, add_to, plus, take_from

SAFEST = 2
ABOVE_ALL = SAFEST + 1  # non-preemptible work goes before every band of its own policy
_BANDS = {Group.NON_PREEMPTIBLE: 2, Group.AGGRESSIVELY_PREEMPTIBLE: 1, Group.PREEMPTIBLE: 0}


@dataclass(frozen=True, slots=True)
class Claim:
    """The share of a task group as last published; `smallest` is the share of one more task."""

    due: Due
    settings: FairSettings
    smallest: Vector = ()


@dataclass(frozen=True, slots=True)
class Published:
    """The fair shares last computed: of policies in amounts and with their demands, of task groups
    as claims, and the satisfaction of both.
    """

    shares: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    dues: Mapping[str, Due] = field(default_factory=dict)
    satisfaction: Mapping[str, float] = field(default_factory=dict)
    claims: Mapping[str, Claim] = field(default_factory=dict)
    # Of policies: the cuts of their groups. Of elements of the balance: their entitlements.
    lines: Mapping[str, tuple[Line, Line]] = field(default_factory=dict)
    entitled: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    # Of every element: the parts of its share by guarantee, by volume and by weight.
    parts: Mapping[str, tuple[Vector, Vector, Vector]] = field(default_factory=dict)


UNPUBLISHED = Published()


class TaskGroups:
    """The holdings of every task group of a pool."""

    def __init__(self) -> None:
        self.used: dict[str, Amounts] = {}  # held or promised
        self.leaving: dict[str, dict[str, int]] = {}
        self._held: dict[str, dict[str, Holding]] = {}

    def hold(self, holding: Holding) -> None:
        if holding.task_group in self._held:
            self._held[holding.task_group][holding.id] = holding
            self.used[holding.task_group] = plus(self.used[holding.task_group], holding.amounts)
        else:  # nearly always
            self._held[holding.task_group] = {holding.id: holding}
            self.used[holding.task_group] = holding.amounts
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
        used = dict(self.used[holding.task_group])
        take_from(used, holding.amounts)
        self.used[holding.task_group] = used
        if holding.leaving:
            take_from(self.leaving[holding.task_group], holding.amounts)

    def replace(self, holding: Holding, old: Holding) -> None:
        """Replace a holding by one that differs in its band, or in leaving."""
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
        """The staying holdings of a task group, in the order of their last start."""
        held = self._held.get(task_group, {}).values()
        return sorted((each for each in held if not each.leaving), key=lambda each: each.index)

    def banded(self, task_group: str, claim: Claim | None) -> Iterator[Holding]:
        """The holdings of a task group with a changed band, with the new band."""
        for holding, band, safe in zip(*_judge(self.of(task_group), claim), strict=True):
            if (band, safe) != (holding.band, holding.safe):
                yield holding.judged(band, safe)

    def next_band(self, task_group: str, claim: Claim | None, amounts: Amounts) -> int:
        """The band of a task group's next task, once granted."""
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
    """For each holding whether the use before it is below the threshold that protects it at any
    share.
    """
    threshold = settings.non_preemptible_resource_usage_threshold
    before = dict.fromkeys(threshold, 0)
    for each in held:
        yield is_protected(before, threshold)
        add_to(before, each.amounts)


def claims_moved(old: Mapping[str, Claim], new: Mapping[str, Claim]) -> list[str]:
    """The task groups with a changed claim."""
    return [each for each in {**old, **new} if old.get(each) != new.get(each)]
