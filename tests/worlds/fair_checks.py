"""What must hold where shares are fair, said once more without the engine's own bookkeeping.

Published shares and the clocks of starvation are taken as they are; who is below its share, who is
safe and who may take from whom is worked out here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import combinations
from typing import Any

from cede.engine.audit import audit
from cede.engine.fair.settings import FairSettings
from cede.engine.fair.status import Situation, Starving, Status, status_of
from cede.engine.rights.standing import IN_SHARE
from cede.engine.state.state import State
from cede.model.allocation import Allocation
from cede.model.amounts import Amounts, total
from cede.model.lifecycle import AllocationState
from cede.model.policy import Policy
from cede.model.pool import Pool
from cede.model.request import Request
from cede.model.settings import Share

from .checks import (
    Broken,
    above,
    band_then,
    below,
    both,
    claims,
    earmark_standing,
    gives_way,
    limits_ok,
    own_room_ok,
    promised,
    rights_then,
    room_for,
    standing,
    usage,
)
from .fair_rule import Rule
from .tried import comes_to_nothing

# When each node last took for a starving waiter.
Took = dict[str, int]


class Fairness:
    """One pool as it is now: rights, bands and safety of everybody, each worked out once."""

    def __init__(self, state: State, pool: Pool, took: Took) -> None:
        self.state, self.pool, self.took = state, pool, took
        self.rights = audit.rights(audit.Alive(state), pool)
        self.bands = audit.bands_in(audit.Alive(state), pool)
        self.safe = set(_safe(state, pool))
        self.rule = Rule(state, pool) if audit.fair_alone(state, pool) else None

    # Who starves -------------------------------------------------------------------------------

    def hunger(self, waiter: Request, policy: Policy) -> Starving:
        """The most of what it, its policy and those above it starve; nobody who has enough now."""
        known = self.state.starving.get(self.pool.id, {})
        found = [Starving.NON_STARVING]
        task_group = waiter.part_of or waiter.id
        if task_group in known and self._is_below(task_group, policy, [policy.id], task_group):
            found.append(known[task_group].status)
        for each in above(self.state, policy):
            ids = [every.id for every in below(self.state, each)]
            if each.id in known and self._is_below(each.id, each, ids):
                found.append(known[each.id].status)
        return max(found, key=list(Starving).index)

    def _is_below(
        self, element: str, policy: Policy, policies: list[str], task_group: str = ""
    ) -> bool:
        keys = list(self.pool.capacity)
        held, wanted = self.held(policies, task_group), self._waiting(policies, task_group)
        leaving = self.held(policies, task_group, leaving=True)
        published = self.state.ledgers[self.pool.id].published
        if task_group:
            due = published.claims[task_group].due
            fair = dict(zip(due.totals, due.fair, strict=True))
        else:
            fair = {key: published.shares[element][key] / self.pool.capacity[key] for key in keys}
        situation = Situation(
            tuple(fair[key] for key in keys),
            self._parts(total([held, leaving, wanted])),
            self._parts(held),
            is_request=bool(task_group),
        )
        name = "fair_share_starvation_tolerance"
        tolerance = said(self.state, policy, name)
        if task_group:
            mine = [r for r in self.state.requests.values() if (r.part_of or r.id) == task_group]
            tolerance = min([tolerance, *(r.terms.settings.get(name, 1) for r in mine)])
        settings = FairSettings(fair_share_starvation_tolerance=tolerance)
        return status_of(situation, settings) is Status.BELOW_FAIR_SHARE

    def held(self, policies: list[str], task_group: str = "", leaving: bool = False) -> Amounts:
        """What these policies, or one task group of them, hold or were promised; or what leaves."""
        found = [
            each.amounts
            for each in self.state.allocations.values()
            if each.live
            and each.policy_id in policies
            and each.leaving is leaving
            and task_group in ("", _task_group(self.state.requests[each.request_id]))
        ]
        if not leaving:
            found += [
                each.amounts
                for each in self.state.waiting()
                if each.earmark is not None
                and each.earmark.policy_id in policies
                and task_group in ("", _task_group(each))
            ]
        return self.pool.metered(total(found))

    def _waiting(self, policies: list[str], task_group: str) -> Amounts:
        found = [
            each.amounts
            for each in self.state.waiting()
            if each.earmark is None
            and any(place.id in policies for place in self.state.places(each.id))
            and task_group in ("", _task_group(each))
        ]
        return self.pool.metered(total(found))

    def _parts(self, amounts: Amounts) -> tuple[float, ...]:
        return tuple(amounts.get(key, 0) / most for key, most in self.pool.capacity.items())

    # Who may be stopped ------------------------------------------------------------------------

    def victims(self, waiter: Request, policy: Policy, gone: Iterable[str]) -> list[str]:
        """Everybody whom a waiter may stop that will be what it is once `gone` have gone."""
        rights = rights_then(self.state, waiter, policy, gone)
        mine = standing(self.state, policy, rights)
        hungry = self.hunger(waiter, policy)
        if hungry is Starving.NON_STARVING:
            return []
        band = band_then(self.state, waiter, policy)
        return [
            each.id
            for each in self.state.allocations.values()
            if self.stoppable(each)
            and self.is_open(each)
            and not self.forbidden(each, waiter, policy, mine, band, hungry)
        ]

    def stoppable(self, allocation: Allocation) -> bool:
        """Whether anybody may stop it at all."""
        return (
            allocation.live
            and allocation.pool_id == self.pool.id
            and allocation.preemptible
            and not allocation.leaving
            and allocation.state is not AllocationState.LOST
            and allocation.id not in self.safe
        )

    def forbidden(
        self,
        victim: Allocation,
        waiter: Request,
        policy: Policy,
        mine: tuple[int, int],
        band: int,
        hungry: Starving,
    ) -> str:
        """Why this waiter may not stop this holder; nothing if it may."""
        holder = self.state.policies[victim.policy_id]
        rights, safety = self.rights[victim.id], self.bands.get(victim.id, 0)
        aggressive = hungry is Starving.AGGRESSIVELY_STARVING and said(
            self.state, holder, "allow_aggressive_preemption"
        )
        if holder.id == policy.id:
            if not waiter.preemptible:
                return ""
            if not safety < band:
                return f"S7 {waiter.id} takes {victim.id}, as safe as itself"
            middle = safety == 1
        else:
            theirs = standing(self.state, holder, rights)
            if not theirs < mine:
                return f"S7 {waiter.id} {mine} takes {victim.id} {theirs}"
            middle = rights == IN_SHARE - 1
        if middle and not aggressive:
            return f"S6 {waiter.id} takes {victim.id}, which is within its share"
        return ""

    def is_open(self, allocation: Allocation) -> bool:
        """Whether every node of a holder was heard of since it last took, and not too soon."""
        backoff = self.pool.settings.preemptive_scheduling_backoff
        return all(
            self.state.beats[member.node_id] > last and self.state.now >= last + backoff
            for member in allocation.members
            if (last := self.took.get(member.node_id)) is not None
        )

    def fair_set(
        self, waiter: Request, policy: Policy, legal: list[str], mine: tuple[int, int]
    ) -> list[str]:
        """The fewest of these that make room for the waiter and may be taken together, if any."""
        for size in range(1, len(legal) + 1):
            for chosen in combinations(legal, size):
                if not self.is_enough(waiter, policy, chosen, mine):
                    continue
                if not self.is_needed(waiter, policy, chosen, mine):
                    continue
                if self.rule is not None and self.rule.unfair(waiter, policy, chosen):
                    continue
                if not comes_to_nothing(self.state, waiter.id, chosen):
                    return list(chosen)
        return []

    def is_needed(
        self, waiter: Request, policy: Policy, chosen: Collection[str], mine: tuple[int, int]
    ) -> bool:
        """Whether nobody of these could be spared."""
        rest = ([other for other in chosen if other != each] for each in chosen)
        return not any(self.is_enough(waiter, policy, each, mine) for each in rest)

    # Who rests ---------------------------------------------------------------------------------

    def is_enough(
        self, waiter: Request, policy: Policy, taken: Iterable[str], mine: tuple[int, int]
    ) -> bool:
        """Whether a waiter would fit with these gone, beside promises that it may not cut."""
        gone = set(taken)
        allocations = self.state.allocations.values()
        stays = usage(
            self.state, self.pool.id, (a for a in allocations if not a.leaving and a.id not in gone)
        )
        uncut = [
            each
            for each in self.state.waiting()
            if each.earmark is not None
            and each.earmark.pool_id == self.pool.id
            and earmark_standing(self.state, each) >= mine
            and not gives_way(self.state, each, waiter, policy)
        ]
        beside = both(stays, promised(self.state, self.pool.id, uncut))
        return limits_ok(self.state, waiter, policy, gone, "promised", uncut) and room_for(
            self.state, waiter, self.pool, beside
        )


def said(state: State, policy: Policy, name: str) -> Any:
    """A setting as it holds for a policy: its own, or the nearest one's above it, or the pool's."""
    for each in above(state, policy):
        if name in each.settings:
            return each.settings[name]
    return getattr(state.pools[policy.pool_id].settings, name)


def fair_pools(state: State) -> Iterator[Pool]:
    return (each for each in state.pools.values() if each.settings.share is Share.FAIR_SHARE)


def _task_group(request: Request) -> str:
    return request.part_of or request.id


def _safe(state: State, pool: Pool) -> Iterator[str]:
    """Allocations within what their owner may use without fear, whatever its share is."""
    for task_group, members in audit.task_groups_in(audit.Alive(state), pool).items():
        mine = [each for each in state.requests.values() if _task_group(each) == task_group]
        held = [a.policy_id for r in mine if (a := state.allocation_of(r.id)) is not None]
        if not held:
            continue
        threshold = said(state, state.policies[held[0]], "non_preemptible_resource_usage_threshold")
        before: Amounts = {}
        for each in members:
            if threshold and all(before.get(key, 0) < most for key, most in threshold.items()):
                yield each.id
            before = total([before, {key: int(n) for key, n in each.amounts.items()}])


# Checks ----------------------------------------------------------------------------------------


def check_fair_taking(
    state: State, waiter: Request, policy: Policy, victims: list[str], took: Took
) -> None:
    """S6 and S7 for one preemption of a starving waiter, judged just before it is carried out."""
    pool = state.pools[policy.pool_id]
    if pool.settings.share is not Share.FAIR_SHARE:
        return
    now = Fairness(state, pool, took)
    hungry = now.hunger(waiter, policy)
    if hungry is Starving.NON_STARVING:
        raise Broken(f"S7 {waiter.id} does not starve and takes {victims}")
    mine = standing(state, policy, rights_then(state, waiter, policy, set(victims)))
    band = band_then(state, waiter, policy)
    if now.rule is not None and (why := now.rule.unfair(waiter, policy, victims)):
        raise Broken(why)
    for victim_id in victims:
        victim = state.allocations[victim_id]
        if not now.stoppable(victim):
            raise Broken(f"S6 {victim_id} may not be stopped")
        if why := now.forbidden(victim, waiter, policy, mine, band, hungry):
            raise Broken(why)
        if not now.is_open(victim):
            raise Broken(f"S6 {waiter.id} takes {victim_id} on a node that has just taken")


def check_fair_state(state: State, took: Took) -> None:
    """Nobody who starves rests while others could be made to yield (L3)."""
    for pool in fair_pools(state):
        now = Fairness(state, pool, took)
        _check_limits(now)
        for waiter in list(state.waiting()):
            if waiter.earmark is None:
                for policy in state.places(waiter.id):
                    _check_rests(now, waiter, policy)


def _check_limits(now: Fairness) -> None:
    """S2 for task groups: all tasks together hold and were promised at most what they may."""
    for request in now.state.requests.values():
        limit = request.terms.limit
        if limit and request.id == _task_group(request):
            everywhere = [each.id for each in now.state.policies.values()]
            task_group = _task_group(request)
            held = total(now.held(everywhere, task_group, leaving=each) for each in (False, True))
            for key, most in limit.items():
                if held.get(key, 0) > most:
                    raise Broken(f"S2 {task_group} holds {held[key]} {key} of its {most}")


def _check_rests(now: Fairness, waiter: Request, policy: Policy) -> None:
    state, pool = now.state, now.pool
    if now.hunger(waiter, policy) is Starving.NON_STARVING:
        return
    if not own_room_ok(state, waiter, policy) or claims(state, pool.id):
        return
    mine = standing(state, policy, rights_then(state, waiter, policy))
    legal = now.victims(waiter, policy, ())
    if not legal or not now.is_enough(waiter, policy, legal, mine):
        return
    if found := now.fair_set(waiter, policy, legal, mine):
        raise Broken(f"L3 {waiter.id} starves, could take {found}, and waits")
