"""Weighs each set of candidates that could be the best, once.

Groups are sorted by the price of their first member. A set is built in that order, so each later
member costs at least as much as the next one, and a branch ends where it would cost more than the
best known set. Of one group only the first few are used. The gains of a candidate alone mostly show
whether it can complete a set, without trying it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from cede.engine.victims.candidates import Candidate, Group, Tie
from cede.engine.victims.goals import Goal, all_needed
from cede.model import bounds

# Of a set: its cost, highest rank, size and cost of saving; then its victims, to break ties.
Worth = tuple[float, int, int, int, tuple[Tie, ...]]

_MOVE = 10  # steps: counting a holder as gone takes as long as examining this many


class Scale:
    """Prices as whole numbers of one unit, so that sums are exact and equal ones compare equal."""

    def __init__(self, candidates: Iterable[Candidate], per_victim_cost: float) -> None:
        unit = per_victim_cost.as_integer_ratio()[1]
        for each in candidates:
            unit = max(unit, each.price.as_integer_ratio()[1])
            unit = max(unit, each.checkpoint.as_integer_ratio()[1])
        self._unit = unit  # the denominator of a float is a power of two
        self._per_victim = self._whole(per_victim_cost)

    def _whole(self, number: float) -> int:
        above, below = number.as_integer_ratio()
        return above * (self._unit // below)

    def cost(self, candidate: Candidate) -> int:
        """The cost that a candidate adds to a set."""
        return self._whole(candidate.price) + self._per_victim

    def checkpoint(self, candidate: Candidate) -> int:
        return self._whole(candidate.checkpoint)

    def worth(self, victims: Sequence[Candidate]) -> Worth:
        return (
            sum(map(self.cost, victims)),
            max(each.rank for each in victims),
            len(victims),
            sum(map(self.checkpoint, victims)),
            tuple(sorted(each.tie for each in victims)),
        )


class Best:
    """The best set so far, with goals that count some candidates as gone."""

    def __init__(self, goals: Sequence[Goal], scale: Scale) -> None:
        self.victims: tuple[Candidate, ...] | None = None
        self.worth: Worth = (inf, 0, 0, 0, ())
        self.scale = scale
        self._goals = goals
        self._may_bar = any(goal.by_policy for goal in goals)

    @property
    def met(self) -> bool:
        return all(goal.met for goal in self._goals)

    def move(self, candidate: Candidate, sign: int) -> None:
        """Count a candidate as gone (1), or as there again (-1)."""
        for goal in self._goals:
            goal.take_away(candidate.holding, sign)

    def wanted(self, candidate: Candidate) -> bool:
        return any(goal.wants(candidate.holding) for goal in self._goals) and not self.barred(
            candidate
        )

    def barred(self, candidate: Candidate) -> bool:
        return self._may_bar and any(goal.bars(candidate.holding) for goal in self._goals)

    def offer(self, victims: Sequence[Candidate]) -> None:
        """Keep a set that meets the goals if it is the best and each victim in it is needed."""
        worth = self.scale.worth(victims)
        if worth < self.worth and all_needed(self._goals, (each.holding for each in victims)):
            self.worth = worth
            self.victims = tuple(sorted(victims, key=lambda each: each.tie))

    def short(self) -> tuple[int, int]:
        """The first goal that is not met, and its missing amount."""
        for at, goal in enumerate(self._goals):
            if not goal.met:
                return at, goal.left
        raise AssertionError("asked only while something is missing")


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The victims so far: a branch of the search."""

    victims: tuple[Candidate, ...] = ()
    cost: int = 0
    rank: int = 0
    checkpoint: int = 0
    nodes: int = 0  # a bit for each


class _Branch:
    """A group with its members that are not in the current set."""

    __slots__ = ("gains", "least", "left", "nodes")

    def __init__(self, group: Group, scale: Scale, nodes: int) -> None:
        assert group.gains is not None, "only groups that were tried are searched"
        self.gains = group.gains
        self.nodes = nodes
        members = group.members[: bounds.VICTIMS_WEIGHED_MAX]
        self.left = [(each, scale.cost(each), scale.checkpoint(each)) for each in members[::-1]]
        self.least = self.left[-1][1]


class Subsets:
    """The search through all sets of a bounded size, for at most `steps` steps."""

    def __init__(self, best: Best, groups: Sequence[Group], steps: float) -> None:
        self._best = best
        self._steps = steps
        bits: dict[str, int] = {}
        for group in groups:
            for node_id, _ in group.footprint:
                bits.setdefault(node_id, 1 << len(bits))
        branches = [
            _Branch(group, best.scale, sum(bits[node_id] for node_id, _ in group.footprint))
            for group in groups
        ]
        self._branches = sorted(branches, key=lambda each: (each.least, -sum(each.gains)))
        self._reach = None if bits else _reach(self._branches)

    def search(self, most: int) -> bool:
        """Weigh sets of at most `most` victims; return whether all were weighed."""
        if not self._branches:
            return True
        deepest = min(most, bounds.VICTIMS_WEIGHED_MAX)
        self._grow(0, _Chosen(), deepest)
        # Sets larger than `deepest` were not, but all of them may cost more than the best.
        larger = (deepest + 1) * self._branches[0].least
        return self._steps >= 0 and (deepest == most or larger > self._best.worth[0])

    def _grow(self, start: int, chosen: _Chosen, slots: int) -> None:
        self._steps -= len(self._branches) - start
        if self._steps < 0:
            return
        best = self._best
        goal, missing = best.short()
        if slots == 1:
            self._finish(start, chosen, goal, missing)
            return
        for at in range(start, len(self._branches)):
            branch = self._branches[at]
            more = self._more(at, goal, missing)
            if self._steps < 0 or more > slots or self._is_worse(chosen, more, branch.least):
                return
            if not branch.left:
                continue
            candidate, cost, checkpoint = branch.left[-1]
            if chosen.cost + cost > best.worth[0] or best.barred(candidate):
                continue
            grown = _Chosen(
                (*chosen.victims, candidate),
                chosen.cost + cost,
                max(chosen.rank, candidate.rank),
                chosen.checkpoint + checkpoint,
                chosen.nodes | branch.nodes,
            )
            self._steps -= _MOVE
            best.move(candidate, 1)
            if best.met:
                best.offer(grown.victims)
            else:
                taken = branch.left.pop()
                self._grow(at, grown, slots - 1)
                branch.left.append(taken)
            best.move(candidate, -1)

    def _more(self, at: int, goal: int, missing: int) -> int:
        """The least number of further victims, from branch `at` on, that the goal takes."""
        if self._reach is None:
            return 1
        most = self._reach[at][goal]
        return -(-missing // most) if most else 1 << 62

    def _is_worse(self, chosen: _Chosen, more: int, least: int) -> bool:
        """Whether a set with `more` victims of at least this cost is worse than the best."""
        count = len(chosen.victims) + more
        worth = (chosen.cost + more * least, chosen.rank, count, chosen.checkpoint)
        return worth > self._best.worth[:4]

    def _finish(self, start: int, chosen: _Chosen, goal: int, missing: int) -> None:
        """Try the last victim of a set, without candidates that are not enough, or no better."""
        best = self._best
        count = len(chosen.victims) + 1
        for branch in self._branches[start:]:
            if chosen.cost + branch.least > best.worth[0]:
                return
            if branch.gains[goal] < missing and not branch.nodes & chosen.nodes:
                continue
            if not branch.left:
                continue
            candidate, cost, checkpoint = branch.left[-1]
            rank = max(chosen.rank, candidate.rank)
            worth = (chosen.cost + cost, rank, count, chosen.checkpoint + checkpoint)
            if worth > best.worth[:4]:
                continue
            best.move(candidate, 1)
            if best.met:
                best.offer((*chosen.victims, candidate))
            best.move(candidate, -1)


def _reach(branches: Sequence[_Branch]) -> list[list[int]]:
    """From each branch on, the largest gain of one victim for each goal; where no candidates share
    a node, it gains no more beside others.
    """
    found: list[list[int]] = []
    for branch in reversed(branches):
        found.append(list(map(max, branch.gains, found[-1] if found else branch.gains)))
    return found[::-1]
