"""That `why` tells a waiter what the pass met, and is no second decider.

The check watches what granting compared its waiters with, finds the first bound that each waiter
exceeds by a loop of its own, and compares the reason that the waiter is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

from cede.engine.explain import why as explain
from cede.engine.ledger.account import Allowance, Bound, Room
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.ledger.queue import QueueKey
from cede.engine.queue.bounds import bounds_of
from cede.engine.queue.cursor import Stream
from cede.engine.state.state import State
from cede.engine.steps import grant
from cede.model.policy import Policy
from cede.model.reason import Code
from cede.model.request import Request

from .checks import Broken

# The bounds that a reason may stand for; every other reason says why too little is free.
BOUNDS: dict[Code, tuple[Bound | None, ...]] = {
    Code.RETRY_DELAY: (Bound.DELAY,),
    Code.TENANT_NODES: (Bound.TENANT,),
    Code.REQUEST_LIMIT: (Bound.TASK_GROUP,),
    Code.OWN_LIMIT: (Bound.OWN_LIMIT,),
    Code.OWN_RESERVED: (Bound.OWN_RESERVE,),
    Code.LIMIT_ABOVE: (Bound.LIMIT_ABOVE,),
    Code.ON_ITS_WAY: (Bound.OWN_PROMISE,),
    Code.EARMARKED: (Bound.PROMISED,),
    Code.WITHHELD: (Bound.WITHHELD, Bound.PLACEMENT),
    Code.CHECKPOINT_ELSEWHERE: (Bound.PLACEMENT,),
    Code.NODES_CLAIMED: (Bound.PLACEMENT, Bound.FREE),
    Code.NOT_LENT: (Bound.PLACEMENT, Bound.FREE),
    Code.HELD_OUTSIDE: (Bound.PLACEMENT, Bound.FREE),
    Code.NO_NODE: (Bound.PLACEMENT, Bound.FREE),
    # Where price decides these also say why nobody is stopped for a place.
    Code.TOO_DEAR: (Bound.FREE, Bound.PLACEMENT),
    Code.WAITS_FIRST: (Bound.FREE, Bound.PLACEMENT),
    Code.NOT_EXHAUSTIVE: (Bound.FREE, Bound.PLACEMENT),
    Code.NEXT: (None,),
}


@dataclass
class Watch:
    """What granting compared the waiters of each stream with, when it last did."""

    met: dict[tuple[str, QueueKey, int], tuple[int, list[Allowance] | None]] = field(
        default_factory=dict
    )
    compared: int = 0  # reasons that were compared with what a pass met
    kinds: set[Bound | None] = field(default_factory=set)

    @contextmanager
    def watching(self) -> Iterator[None]:
        real = grant._Pool._room
        seen: list[list[Allowance]] = []

        def bounds(state: State, ledger: PoolLedger, stream: Stream) -> list[Allowance]:
            found = bounds_of(state, ledger, stream)
            seen.append([each._replace(left=each.left and {**each.left}) for each in found])
            return found

        def room(pool: grant._Pool, stream: Stream) -> Room | None:
            seen.clear()
            found = real(pool, stream)
            at = (pool.ledger.pool.id, stream.key, stream.rights)
            self.met[at] = (pool.ledger.version, seen[0] if seen else None)
            return found

        with patch.object(grant, "bounds_of", bounds), patch.object(grant._Pool, "_room", room):
            yield

    def check(self, state: State) -> None:
        """Every waiter is told the bound that kept it out."""
        for request in list(state.waiting()):
            for policy in state.places(request.id):
                self._check(state, request, policy)

    def _check(self, state: State, request: Request, policy: Policy) -> None:
        ledger = state.ledgers[policy.pool_id]
        key = ledger.queue_of(policy.id, request)
        if request.id not in ledger.queues.get(key, ()):
            return  # it is promised its capacity, or its delay is not over
        demand = ledger.queues[key].demand(request.id)
        reason = explain.reason_in(state, request, policy)
        met: Bound | None = None
        for stream in ledger.streams[key]:
            version, bounds = self.met[policy.pool_id, key, stream.rights]
            if bounds is None or version != ledger.version:  # without numbers, or with old ones
                bounds = bounds_of(state, ledger, stream, placed=bounds is not None)
            room = {each.bound: each.left for each in bounds}
            met = next((b for b, _, left in bounds if _exceeds(b, demand, left)), None)
            covered = room.get(Bound.SHARE)
            if covered is not None and all(n <= covered.get(k, n) for k, n in demand.items()):
                break
        if reason.code is Code.TENANT_NODES or request.id in ledger.withheld:
            return  # what passed it over is no bound of its stream
        self.compared += 1
        self.kinds.add(met)
        if met not in BOUNDS.get(reason.code, (Bound.FREE,)):
            raise Broken(f"L10 {request.id} met {met}, and is told {reason}")


def _exceeds(bound: Bound, demand: object, left: dict[str, int] | None) -> bool:
    assert isinstance(demand, dict)
    if bound is Bound.SHARE:
        return False
    return left is None or any(n > left.get(key, n) for key, n in demand.items())
