"""Visit every reachable state of a world; find circles of preemption and broken promises."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from cede.engine import commands, endings, farewells, fleet, preempt
from cede.engine.decide import decide
from cede.engine.fair.status import Starving
from cede.engine.share import Holding
from cede.engine.state import State
from cede.model.allocation import Allocation
from cede.model.lifecycle import AllocationState
from cede.model.node import NodeState, Out
from cede.model.parting import Checkpoint, Farewell
from cede.model.request import PLAIN, Preemptions, Request, Retry
from cede.model.subject import Subject

from .checks import Broken, check_state, check_taking
from .world import World

NOW = 1_000
Canon = tuple[Any, ...]
# (what happens, to whom, whether the world is left alone meanwhile)
Event = tuple[str, str, bool]


@dataclass
class Search:
    """One world's search. `story` is how the present state came about."""

    world: World
    most: int
    seen: set[Canon] = field(default_factory=set)
    quiet: dict[Canon, list[Canon]] = field(default_factory=dict)
    story: list[str] = field(default_factory=list)
    judge: bool = True

    def run(self, judge: bool = True) -> int:
        """The number of states visited; raises `Broken` with the story of what went wrong.

        Without `judge` only circles are looked for.
        """
        self.judge = judge
        state = self.world.state()
        usual = sys.getrecursionlimit()
        sys.setrecursionlimit(20_000)  # a path through a world is as deep as it is long
        try:
            with checked_takings() if judge else nullcontext():
                _settle(state)
                self._visit(state, 0, False)
        except Broken as broken:
            raise Broken(
                f"world {self.world.seed}: {broken}\n  " + "\n  ".join(self.story)
            ) from None
        finally:
            sys.setrecursionlimit(usual)
        self._find_circle()
        return len(self.seen)

    def _visit(self, state: State, arrived: int, lost: bool) -> Canon:
        here = _canon(state, arrived, lost)
        if here in self.seen or len(self.seen) >= self.most:
            return here
        self.seen.add(here)
        if self.judge:
            check_state(state)
        for kind, who, quiet in list(self._events(state, arrived, lost)):
            with state.what_if():
                self.story.append(f"{kind} {who}")
                self._happen(state, kind, who)
                _settle(state)
                there = self._visit(state, arrived + (kind == "arrives"), lost or kind == "is lost")
                self.story.pop()
            if quiet:
                self.quiet.setdefault(here, []).append(there)
        return here

    def _events(self, state: State, arrived: int, lost: bool) -> Iterator[Event]:
        world = self.world
        if arrived < len(world.asks):
            yield ("arrives", world.asks[arrived].id, False)
        for allocation in list(state.allocations.values()):
            if not allocation.live:
                continue
            if allocation.leaving:
                if world.tells and not allocation.told:
                    yield ("is told", allocation.request_id, True)
                if allocation.state is AllocationState.CHECKPOINTING:
                    yield ("saves", allocation.request_id, True)
                else:
                    yield ("stops", allocation.request_id, True)
                if world.loses and not lost:
                    yield ("is lost", allocation.request_id, False)
            elif world.completes and allocation.state is not AllocationState.LOST:
                yield ("is done", allocation.request_id, False)
            elif allocation.state is AllocationState.GRANTED and self._saves(allocation):
                yield ("begins", allocation.request_id, True)
        if world.preset == "fair_share" and any(_impatient(state)):
            yield ("time passes for", "everybody", True)
        if world.drains:
            for node in list(state.nodes.values()):
                if node.state is NodeState.READY and not any(
                    other.out is Out.DRAIN for other in state.nodes.values()
                ):
                    yield ("drains", node.id, False)
                elif node.state is NodeState.DRAINED:
                    yield ("comes back", node.id, False)
        if world.cancels or world.tells:
            for request in list(state.waiting()):
                if request.earmark is not None:
                    yield ("gives up", request.id, False)

    def _saves(self, allocation: Allocation) -> bool:
        return any(each.id == allocation.request_id and each.saves for each in self.world.asks)

    def _happen(self, state: State, kind: str, who: str) -> None:
        if kind == "time passes for":
            decide(state, state.now + 15_000)
        elif kind == "arrives":
            ask = next(each for each in self.world.asks if each.id == who)
            submission = commands.Submission(
                id=ask.id,
                subject=Subject("team", ask.team),
                amounts=ask.amounts,
                preemptible=ask.preemptible,
                walltime=ask.walltime,
                shape=ask.shape,
                farewell=Farewell(Checkpoint.AUTO) if ask.saves else PLAIN,
                retry=Retry(preemptions=Preemptions.FREE),
                lease=None,
            )
            commands.submit(state, submission, max(NOW, state.now))
        elif kind == "stops":
            commands.renew(state, who, max(NOW, state.now))
            commands.release(state, who, max(NOW, state.now), outcome="stopped")
        elif kind == "is told":
            commands.renew(state, who, max(NOW, state.now))
        elif kind == "begins":
            commands.renew(state, who, max(NOW, state.now), running=True)
        elif kind == "saves":
            saved = commands.Said("saved", checkpoint="1")
            held = state.allocation_of(who)
            assert held is not None
            for task in range(len(held.members)):
                current = state.allocation_of(who)
                assert current is not None
                hint = 0 if current.parting is None else current.parting.hint
                farewells.save(state, current, task, saved.checkpoint, 0, hint=hint)
        elif kind == "drains":
            fleet.drain(state, who, max(NOW, state.now))
        elif kind == "comes back":
            fleet.undrain(state, who, max(NOW, state.now))
        elif kind == "is done":
            commands.release(state, who, max(NOW, state.now), outcome="done")
        elif kind == "gives up":
            commands.cancel(state, who, max(NOW, state.now), actor="its owner")
        else:
            allocation = state.allocation_of(who)
            assert allocation is not None
            endings.lose(state, allocation)

    def _find_circle(self) -> None:
        """L1: left alone, the world comes to rest: victims stopping never lead back."""
        done: set[Canon] = set()
        for start in self.quiet:
            path: dict[Canon, None] = {}
            stack: list[tuple[Canon, Iterator[Canon]]] = [(start, iter(self.quiet.get(start, ())))]
            path[start] = None
            while stack:
                here, onward = stack[-1]
                there = next(onward, None)
                if there is None:
                    stack.pop()
                    path.pop(here)
                    done.add(here)
                elif there in path:
                    raise Broken(
                        f"world {self.world.seed}: L1 preemption goes in a circle: {there}"
                    )
                elif there not in done:
                    path[there] = None
                    stack.append((there, iter(self.quiet.get(there, ()))))


def _settle(state: State) -> None:
    """One pass, which must end at rest."""
    if decide(state, max(NOW, state.now)).again:
        raise Broken("L1 a pass does not come to an end")


def _impatient(state: State) -> Iterator[str]:
    """Who would starve more with time."""
    for pool_id, starving in state.starving.items():
        settings = state.pools[pool_id].settings
        for element_id, each in starving.items():
            most = (
                Starving.AGGRESSIVELY_STARVING
                if settings.enable_aggressive_starvation
                else Starving.STARVING
            )
            if each.status is not most:
                yield element_id


def _canon(state: State, arrived: int, lost: bool) -> Canon:
    """A state without its counters: orders and relations only."""
    places = [
        (
            a.index,
            a.request_id,
            a.pool_id,
            str(a.state),
            a.told,
            a.taken_for or "",
            a.footprint,
            a.parting is not None and a.parting.saved,
        )
        for a in state.allocations.values()
        if a.live
    ]
    places += [
        (r.earmark.index, r.id, r.earmark.pool_id, "earmark", False, "", r.earmark.footprint, False)
        for r in state.waiting()
        if r.earmark is not None
    ]
    waiting = [(r.id, r.bypassed, r.withhold is not None) for r in state.waiting()]
    out = tuple(sorted((n.id, str(n.state)) for n in state.nodes.values() if not n.usable))
    held = tuple(each[1:] for each in sorted(places))
    hungry = tuple(
        sorted(
            (each, str(known.status)) for s in state.starving.values() for each, known in s.items()
        )
    )
    return (arrived, lost, held, tuple(sorted(waiting)), out, hungry)


class checked_takings:
    """While this is open, every preemption is judged just before it is carried out."""

    def __enter__(self) -> None:
        self._real = preempt.Taking._preempt
        real = self._real

        def judged(
            taking: preempt.Taking,
            waiter: Request,
            offer: preempt.Offer,
            victims: list[Holding],
            cost: float,
        ) -> None:
            check_taking(taking.state, waiter, offer.policy, [each.id for each in victims])
            real(taking, waiter, offer, victims, cost)

        preempt.Taking._preempt = judged  # type: ignore[method-assign]

    def __exit__(self, *_: object) -> None:
        preempt.Taking._preempt = self._real  # type: ignore[method-assign]
