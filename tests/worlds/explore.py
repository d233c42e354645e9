"""Visit every reachable state of a world; find circles of preemption and broken promises."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

from cede.engine.ledger.exchange import Part
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.rights.cover import Holding
from cede.engine.state.state import State
from cede.engine.state.trial import what_if
from cede.engine.steps import preempt, sparing
from cede.engine.victims.protection import Preemptor
from cede.model.allocation import Allocation
from cede.model.pool import Pool
from cede.model.request import Request
from cede.model.settings import Patience, Rank

from .canon import Canon, canon
from .checks import Broken, Promises, check_promises, check_state, check_taking, promises
from .class_checks import (
    Judged,
    check_class_promises,
    check_class_safety,
    class_promises,
    is_classed,
)
from .class_rest import check_class_state
from .fair_checks import Took, check_fair_state, check_fair_taking
from .regret_checks import check_in_stead, check_pass
from .rehearsal_checks import checked_rehearsals
from .steps import events, happen, settle
from .world import World

# Who starves longer, or is nearly done, may change who stands above whom.
TIME = ("time passes for", "is heard of")


@dataclass
class Search:
    """One world's search. `story` is how the present state came about."""

    world: World
    most: int
    seen: set[Canon] = field(default_factory=set)
    quiet: dict[Canon, list[Canon]] = field(default_factory=dict)
    story: list[str] = field(default_factory=list)
    judge: bool = True
    takings: checked_takings = field(default_factory=lambda: checked_takings())

    def run(self, judge: bool = True) -> int:
        """The number of states visited; raises `Broken` with the story of what went wrong.

        Without `judge` only circles are looked for.
        """
        self.judge = judge
        state = self.world.state()
        usual = sys.getrecursionlimit()
        sys.setrecursionlimit(20_000)  # a path through a world is as deep as it is long
        try:
            with self._judging() if judge else nullcontext():
                self._settle(state)
                self._visit(state, 0, False)
        except Broken as broken:
            raise Broken(
                f"world {self.world.seed}: {broken}\n  " + "\n  ".join(self.story)
            ) from None
        finally:
            sys.setrecursionlimit(usual)
        self._find_circle()
        return len(self.seen)

    def follow(self, story: list[str]) -> None:
        """Go one way only, and look at every state of it."""
        state = self.world.state()
        with self._judging():
            self._settle(state)
            for each in story:
                kind, _, who = each.rpartition(" ")
                happen(self.world, state, kind, who)
                self._settle(state)
                _check(state, self.takings.took)

    @contextmanager
    def _judging(self) -> Iterator[None]:
        with self.takings, checked_rehearsals():
            yield

    def _visit(self, state: State, arrived: int, lost: bool) -> Canon:
        here = canon(state, arrived, lost)
        if here in self.seen or len(self.seen) >= self.most:
            return here
        self.seen.add(here)
        if self.judge:
            _check(state, self.takings.took)
        for kind, who, quiet in list(events(self.world, state, arrived, lost)):
            with self._what_if(state):
                self.story.append(f"{kind} {who}")
                before = _promises(state) if self.judge and quiet else None
                happen(self.world, state, kind, who)
                self._settle(state)
                if before is not None and before.owners:
                    _check_promises(state, before, aged=kind in TIME or not _strict(state))
                there = self._visit(state, arrived + (kind == "arrives"), lost or kind == "is lost")
                self.story.pop()
            if quiet:
                self.quiet.setdefault(here, []).append(there)
        return here

    def _settle(self, state: State) -> None:
        """One pass, which must end at rest, and waste nothing."""
        self.takings.begin_pass()
        plan = settle(state)
        self.takings.end_pass(state)
        if plan.again:
            raise Broken("L1 a pass does not come to an end")
        if self.judge:
            check_pass(state, plan)

    @contextmanager
    def _what_if(self, state: State) -> Iterator[None]:
        """Also what is no part of a state: when nodes were heard of, and when they took."""
        beats, took = dict(state.beats), dict(self.takings.took)
        with what_if(state):
            yield
        state.beats, self.takings.took = beats, took

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


def _check(state: State, took: Took) -> None:
    if not (classed := _classed(state)):
        check_state(state)
        check_fair_state(state, took)
        return
    check_class_safety(state)
    for pool in classed:
        check_class_state(state, pool)


def _promises(state: State) -> Promises:
    classed = _classed(state)
    return class_promises(state, classed[0]) if classed else promises(state)


def _check_promises(state: State, before: Promises, *, aged: bool) -> None:
    if classed := _classed(state):
        check_class_promises(state, classed[0], before, aged=aged)
    else:
        check_promises(state, before, aged=aged)


def _strict(state: State) -> bool:
    """Whether nothing but what happens ends a promise. Somebody who may not take yet, is of a
    higher class of the same policy, or comes back to nodes, may be first where it stands higher.
    """
    return not state.nodes and all(
        each.settings.patience is Patience.NONE and each.settings.rank is not Rank.CLASS
        for each in state.pools.values()
    )


def _classed(state: State) -> list[Pool]:
    """Where classes or prices decide, a world has one pool."""
    return [each for each in state.pools.values() if is_classed(each)]


class checked_takings:
    """While this is open, every preemption is judged just before it is carried out. `took` is when
    nodes took, as seen from here.
    """

    def __init__(self) -> None:
        self.took: Took = {}
        self._of_this_pass: list[list[Allocation]] = []  # the victims of each taking

    def _took_by_now(self, state: State) -> Took:
        """The same with the takings of this pass, but for those that were taken back."""
        took = dict(self.took)
        for victims in self._of_this_pass:
            held = [state.allocations.get(each.id) for each in victims]
            if any(each is not None and each.leaving for each in held):
                took |= {m.node_id: state.now for each in victims for m in each.members}
        return took

    def begin_pass(self) -> None:
        self._of_this_pass.clear()  # what was only tried since the last one

    def end_pass(self, state: State) -> None:
        self.took = self._took_by_now(state)

    def __enter__(self) -> checked_takings:
        self._real = preempt.Taking._preempt
        real = self._real

        def judged(
            taking: preempt.Taking,
            waiter: Request,
            offer: preempt.Offer,
            victims: list[Holding],
            cost: float,
        ) -> bool:
            ids = [each.id for each in victims]
            if is_classed(offer.ledger.pool):
                one = Judged(taking.state, waiter, offer.policy, ids)
                if not real(taking, waiter, offer, victims, cost):
                    return False
                one.after()
                return True
            check_taking(taking.state, waiter, offer.policy, ids)
            state = taking.state
            check_fair_taking(state, waiter, offer.policy, ids, self._took_by_now(state))
            self._of_this_pass.append([state.allocations[each] for each in ids])
            return real(taking, waiter, offer, victims, cost)

        preempt.Taking._preempt = judged  # type: ignore[method-assign]
        self._stops = sparing._Sparing._stop
        stops = self._stops

        def judged_too(
            step: sparing._Sparing,
            ledger: PoolLedger,
            owner: Preemptor,
            others: list[Holding],
            share: tuple[Part, ...],
        ) -> None:
            policy = ledger.policies[owner.policy_id]
            check_in_stead(step.state, owner.request, policy, [each.id for each in others])
            stops(step, ledger, owner, others, share)

        sparing._Sparing._stop = judged_too  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        preempt.Taking._preempt = self._real  # type: ignore[method-assign]
        sparing._Sparing._stop = self._stops  # type: ignore[method-assign]
