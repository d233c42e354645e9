"""Searches with one bug each, to show that the comparison with brute force finds such bugs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from cede.engine.victims import candidates, cheapest, subsets
from cede.engine.victims.candidates import Candidate, Gathering
from cede.engine.victims.subsets import Best, Subsets


@contextmanager
def only_greed() -> Iterator[None]:
    """The cheapest first, and those not needed go back: no other set is weighed."""
    with patch.object(Subsets, "search", lambda self, most: True):
        yield


@contextmanager
def only_pairs() -> Iterator[None]:
    search = Subsets.search
    with patch.object(Subsets, "search", lambda self, most: search(self, min(most, 2))):
        yield


@contextmanager
def any_rank_is_alike() -> Iterator[None]:
    """Of each group only the cheapest are kept, whatever their rank."""
    group = Gathering._group
    with patch.object(Gathering, "_group", lambda self, each: group(self, each._replace(rank=0))):
        yield


@contextmanager
def any_policy_is_alike() -> Iterator[None]:
    """Holders that a limit counts are not told from those that it does not."""
    group = Gathering._group

    def first(self: Any, each: Candidate) -> Any:
        known = self._by_kind.setdefault("known", {})
        look = (each.rank, each.holding.footprint, *self._read(each.holding))
        if look not in known:
            known[look] = group(self, each)
        return known[look]

    with patch.object(Gathering, "_group", first):
        yield


@contextmanager
def any_amount_is_alike() -> Iterator[None]:
    with patch.object(Gathering, "_read", lambda self, holding: ()):
        yield


@contextmanager
def savings_do_not_count() -> Iterator[None]:
    """Of equally dear ones in a group the newest goes, though another is cheaper to save."""
    with patch.object(candidates, "order", lambda each: (each.price, each.tie)):
        yield


@contextmanager
def only_cost_counts() -> Iterator[None]:
    """Of sets that cost the same the first one stays."""
    offer = Best.offer

    def cheaper(self: Any, victims: Sequence[Candidate]) -> None:
        if self.scale.worth(victims)[0] < self.worth[0]:
            offer(self, victims)

    with patch.object(Best, "offer", cheaper):
        yield


@contextmanager
def neighbours_are_strangers() -> Iterator[None]:
    """Who alone makes no room is thought to make none with another on its node."""
    make = subsets._Branch.__init__
    with patch.object(
        subsets._Branch, "__init__", lambda self, group, scale, _: make(self, group, scale, 0)
    ):
        yield


@contextmanager
def too_few_of_a_group() -> Iterator[None]:
    make = Gathering.__init__

    def fewer(self: Any, goals: Any, most: int, probes: int) -> None:
        make(self, goals, max(most - 1, 1), probes)

    with patch.object(Gathering, "__init__", fewer):
        yield


@contextmanager
def nobody_goes_back() -> Iterator[None]:
    """Whoever was taken on the way stays taken."""
    with patch.object(cheapest._Search, "_needed", lambda self, taken: taken):
        yield


@contextmanager
def greed_is_not_tried() -> Iterator[None]:
    with patch.object(cheapest._Search, "_greedy", lambda self, candidates: None):
        yield


Mutant = Callable[[], Any]
OF_THE_EXACT_SEARCH: list[Mutant] = [
    only_greed,
    only_pairs,
    any_rank_is_alike,
    any_policy_is_alike,
    any_amount_is_alike,
    savings_do_not_count,
    only_cost_counts,
    neighbours_are_strangers,
    too_few_of_a_group,
]
BEYOND: list[Mutant] = [nobody_goes_back, greed_is_not_tried]
