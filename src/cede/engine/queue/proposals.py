"""Deferred acceptance: requests with places in several pools ask them one after another.

Each request proposes to its pools by policy priority; a pool keeps proposals in its own order as
they fit; a request that is not kept, or is displaced, proposes to its next pool. The rounds are
played on the real state and taken back until no request has a pool left to ask.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cede.engine.state.state import State
from cede.model.plan import Decision, Grant


@dataclass(slots=True)
class Proposals:
    """How far down its list of pools each request has come.

    A request that no pool has kept yet may ask one more pool with every round; one that is kept
    stays there until it is displaced, and goes on from there.
    """

    state: State
    pool_ids: list[str]
    round: int = 0
    kept: dict[str, str] = field(default_factory=dict)
    reached: dict[str, int] = field(default_factory=dict)  # of requests that were kept once
    _choices: dict[str, list[str]] = field(default_factory=dict)

    def barred(self, pool_id: str) -> _Barred:
        return _Barred(self, pool_id)

    def may_propose(self, request_id: str, pool_id: str) -> bool:
        choices = self._choices.get(request_id)
        if choices is None:
            places = self.state.places(request_id)
            choices = [each.pool_id for each in places if each.pool_id in self.pool_ids]
            self._choices[request_id] = choices
        return choices.index(pool_id) <= self.reached.get(request_id, self.round)

    def next_round(self, decisions: list[Decision]) -> bool:
        """Note which pool kept which request; whether a request may still ask another pool."""
        kept = {each.request_id: each.pool_id for each in decisions if isinstance(each, Grant)}
        for request_id in self.reached:
            if request_id not in kept:
                self.reached[request_id] += 1
        for request_id, pool_id in kept.items():
            if pool_id in (choices := self._choices.get(request_id, [])):
                self.reached[request_id] = choices.index(pool_id)
        self.round += 1
        changed, self.kept = kept != self.kept, kept
        most = max((len(choices) for choices in self._choices.values()), default=1)
        # Every request asks every pool at most once, so this ends; the bound is for our own
        # mistakes.
        return self.round < most or (changed and self.round <= 2 * len(self.pool_ids) + len(kept))


@dataclass(frozen=True, slots=True)
class _Barred:
    proposals: Proposals
    pool_id: str

    def __contains__(self, request_id: object) -> bool:
        return not self.proposals.may_propose(str(request_id), self.pool_id)
