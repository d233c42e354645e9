"""What may happen next in a world, and how it happens."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

from cede.engine.admin import fleet
from cede.engine.decide import decide
from cede.engine.fair.status import Starvation, Starving
from cede.engine.lifecycle import commands, endings, stopping
from cede.engine.shares.publish import settings_for
from cede.engine.state.state import State
from cede.model.allocation import Allocation
from cede.model.lifecycle import AllocationState
from cede.model.node import NodeState, Out
from cede.model.request import PLAIN, Preemptions, Retry
from cede.model.settings import Price
from cede.model.stopping import Checkpoint, StopPolicy
from cede.model.subject import Subject
from cede.model.terms import parse_terms

from . import claim_checks
from .world import Ask, World

NOW = 1_000
STEP = 15_000  # one step of time: longer than starving takes, half as long as aggressively starving
OLD = 5  # steps after which nothing more comes of getting older: all walltimes are over

# (what happens, to whom, whether the world is left alone meanwhile)
Event = tuple[str, str, bool]


def now(state: State) -> int:
    return max(NOW, state.now)


def events(world: World, state: State, arrived: int, lost: bool) -> Iterator[Event]:
    if arrived < len(world.asks):
        yield ("arrives", world.asks[arrived].id, False)
    for allocation in list(state.allocations.values()):
        if allocation.live:
            yield from _of_holder(world, allocation, lost)
    if world.preset == "fair_share" or world.ages:
        yield from _of_time(state)
    if world.drains:
        for node in list(state.nodes.values()):
            if node.state is NodeState.READY and not any(
                other.out is Out.DRAIN for other in state.nodes.values()
            ):
                yield ("drains", node.id, False)
            elif node.state is NodeState.DRAINED:
                yield ("comes back", node.id, False)
    if world.claims:
        yield from _of_claims(state)
    if world.cancels or world.tells:
        for request in list(state.waiting()):
            if request.earmark is not None:
                yield ("gives up", request.id, False)


def _of_claims(state: State) -> Iterator[Event]:
    """One node at a time."""
    claimed = [each.id for each in state.nodes.values() if each.claimed_by]
    for node_id in claimed or list(state.nodes):
        yield ("is unclaimed:" if claimed else "is claimed:", node_id, False)


def _of_holder(world: World, allocation: Allocation, lost: bool) -> Iterator[Event]:
    who = allocation.request_id
    if allocation.leaving:
        if world.tells and not allocation.told:
            yield ("is told", who, True)
        if allocation.state is AllocationState.CHECKPOINTING:
            yield ("saves", who, True)
        else:
            yield ("stops", who, True)
        if world.loses and not lost:
            yield ("is lost", who, False)
    elif world.completes and allocation.state is not AllocationState.LOST:
        yield ("is done", who, False)
    elif allocation.state is AllocationState.GRANTED and _ask_of(world, who).saves:
        yield ("begins", who, True)


def _of_time(state: State) -> Iterator[Event]:
    closed = list(stages(state))
    # Whoever is asked to stop does so in time.
    ends = [a.deadline for a in state.allocations.values() if a.live and a.deadline is not None]
    is_early = now(state) + STEP < min(ends, default=inf)
    moves = any(clock[2] is not None for clock in clocks(state)) or any(ages(state))
    if is_early and (closed or moves):
        yield ("time passes for", "everybody", True)
    if any(not heard for _, heard, _ in closed):
        yield ("is heard of", "every node", True)


def _ask_of(world: World, request_id: str) -> Ask:
    return next(each for each in world.asks if request_id in each.ids)


def happen(world: World, state: State, kind: str, who: str) -> None:
    if kind == "time passes for":
        _pass_time(state, STEP)
    elif kind == "is heard of":
        _pass_time(state, 1)
        state.dirty.update(dict.fromkeys(state.pools))
    elif kind == "arrives":
        _arrive(state, next(each for each in world.asks if each.id == who))
    elif kind == "stops":
        commands.renew(state, who, now(state))
        commands.release(state, who, now(state), outcome="stopped")
    elif kind == "is told":
        commands.renew(state, who, now(state))
    elif kind == "begins":
        commands.renew(state, who, now(state), running=True)
    elif kind == "saves":
        _save(state, who)
    elif kind == "drains":
        fleet.drain(state, who, now(state))
    elif kind == "comes back":
        fleet.undrain(state, who, now(state))
    elif kind == "is claimed:":
        claim_checks.claim(state, who, now(state))
    elif kind == "is unclaimed:":
        claim_checks.unclaim(state, who, now(state))
    elif kind == "is done":
        commands.release(state, who, now(state), outcome="done")
    elif kind == "gives up":
        commands.cancel(state, who, now(state), actor="its owner")
    else:
        allocation = state.allocation_of(who)
        assert allocation is not None
        endings.lose(state, allocation)


def _pass_time(state: State, long: int) -> None:
    """Every node is heard of at its end, so none falls silent. What was granted has begun."""
    then = now(state) + long
    for held in list(state.allocations.values()):
        if held.state is AllocationState.GRANTED and age_of(state, held) is not None:
            commands.renew(state, held.request_id, now(state), running=True)
    for node_id in state.nodes:
        fleet.heard(state, node_id, then)
    state.now = then


def _arrive(state: State, ask: Ask) -> None:
    ids = ask.ids
    for each in ids:
        submission = commands.Submission(
            id=each,
            subject=Subject("team", ask.team),
            amounts=ask.amounts,
            preemptible=ask.preemptible,
            walltime=ask.walltime,
            shape=ask.shape,
            stop_policy=StopPolicy(Checkpoint.AUTO) if ask.saves else PLAIN,
            retry=Retry(preemptions=Preemptions.FREE),
            lease=None,
            terms=parse_terms(limit=ask.limit or None, settings=ask.settings or None, **ask.terms),
            part_of=ids[0] if len(ids) > 1 else None,
            owner=ask.owner,
        )
        commands.submit(state, submission, now(state))


def _save(state: State, who: str) -> None:
    saved = commands.Said("saved", checkpoint="1")
    held = state.allocation_of(who)
    assert held is not None
    for task in range(max(len(held.members), 1)):
        current = state.allocation_of(who)
        assert current is not None
        hint = 0 if current.stop_progress is None else current.stop_progress.hint
        stopping.save(state, current, task, saved.checkpoint, 0, hint=hint)


# Time ------------------------------------------------------------------------------------------


def clocks(state: State) -> Iterator[tuple[str, str, int | None]]:
    """How everybody starves who is below its share; and for how many steps, if more time would
    make it worse.
    """
    for pool_id, starving in state.starving.items():
        for element_id, each in starving.items():
            steps = None if _is_worst(state, pool_id, element_id, each) else _steps(state, each)
            yield element_id, str(each.status), steps


def _is_worst(state: State, pool_id: str, element_id: str, each: Starvation) -> bool:
    ledger = state.ledgers[pool_id]
    policy_id, request = element_id, state.requests.get(element_id)
    if request is not None:
        policies = state.policies_of(request.subject)
        policy_id = next(each.id for each in policies if each.pool_id == pool_id)
    settings = settings_for(ledger, policy_id, request)
    if settings.enable_aggressive_starvation:
        return each.status is Starving.AGGRESSIVELY_STARVING
    return each.status is not Starving.NON_STARVING


def _steps(state: State, each: Starvation) -> int:
    assert each.since is not None
    return (state.now - each.since) // STEP


def stages(state: State) -> Iterator[tuple[str, bool, int]]:
    """Nodes that may not take again yet: whether they were heard of since they did, and when."""
    for node_id, last in state.staged.items():
        pool_id = state.nodes[node_id].pool_id
        assert pool_id is not None
        backoff = state.pools[pool_id].settings.preemptive_scheduling_backoff
        heard = state.beats[node_id] > last
        if not heard or state.now < last + backoff:
            yield node_id, heard, (state.now - last) // STEP


def ages(state: State) -> Iterator[bool]:
    """Of every holder, whether one more step of time makes a difference to it."""
    for each in state.allocations.values():
        if each.live and not each.leaving and (age := age_of(state, each)) is not None:
            yield age < OLD


def age_of(state: State, allocation: Allocation) -> int | None:
    """For how many steps somebody holds, as far as that matters: where its walltime runs, or what
    it loses counts.
    """
    priced = state.pools[allocation.pool_id].settings.price is Price.CHECKPOINT
    if allocation.walltime is None and not priced:
        return None
    since = allocation.allocated_at if allocation.started_at is None else allocation.started_at
    return min((state.now - since) // STEP, OLD)


def settle(state: State) -> Any:
    """One pass, and what it decided."""
    return decide(state, now(state))
