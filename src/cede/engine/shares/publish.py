"""The publication of a pool's fair shares: computed at most once a period, and used by every pass
until the next.

Shares couple every element of a pool, so a pass does not wait for them. They also tell which
elements are below their share, and since when: a starving waiter may take.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any, NamedTuple

from cede.engine.fair.curve import Vector, smaller
from cede.engine.fair.groups import Due, Line
from cede.engine.fair.groups import lines as lines_of
from cede.engine.fair.guarantees import as_share
from cede.engine.fair.settings import FairSettings, inherit
from cede.engine.fair.shares import Solver
from cede.engine.fair.status import (
    Situation,
    Starvation,
    Starving,
    Status,
    satisfaction,
    starve,
    status_of,
)
from cede.engine.fair.tree import (
    NO_INTEGRAL,
    ROOT,
    Element,
    Integral,
    IntegralType,
    Kind,
    Mode,
    Options,
    Tree,
)
from cede.engine.ledger.account import staying, staying_in
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.ledger.task_groups import Claim, Published
from cede.engine.state.state import State
from cede.engine.state.timers import Key
from cede.model.amounts import add_to
from cede.model.plan import Grant, Plan, Preemption
from cede.model.request import Request
from cede.model.settings import Settings

# When to look again at a node whose heartbeat is late, and at saved-up volumes.
_SOON = 1_000


class Judged(NamedTuple):
    """A request as it was published, and what that was made of: its element, its fair share, its
    settings, whether it has a task that waits, and the share of the smallest. Most are the same
    from one publication to the next.
    """

    element: Element
    fair: Vector
    settings: FairSettings
    can_start: bool
    smallest: Vector
    claim: Claim
    satisfaction: float
    parts: tuple[Vector, Vector, Vector]
    is_below: bool

    def still(self, element: Element, fair: Vector, *rest: object) -> bool:
        """Whether it was made of the same."""
        return self.element is element and self.fair is fair and self[2:5] == rest


@dataclass(slots=True)
class Standings:
    """The last computation of one pool. `seen` are the requests as its solver knows them; `demands`
    computes the same with nothing held, where that decides. `judged`: the requests as published.
    """

    solver: Solver
    demands: Solver | None
    policies: tuple[Element, ...]
    totals: Mapping[str, float]
    options: Options
    seen: dict[str, Element] = field(default_factory=dict)
    judged: dict[str, Judged] = field(default_factory=dict)


def refresh(state: State, due: list[Key]) -> bool:
    """Publish fair shares anew where something changed and the period is over; whether any were."""
    changed = False
    woken = {entity_id for kind, entity_id in due if kind == "pool"}
    for pool_id in sorted({*state.dirty, *woken}):
        ledger = state.ledgers.get(pool_id)
        if ledger is not None and ledger.starves:
            changed |= _refresh(state, ledger)
    return changed


def _refresh(state: State, ledger: PoolLedger) -> bool:
    pool = ledger.pool
    later = _next_publication(state, ledger)
    if ledger.published.shares and state.now < later and not state.eager:
        state.wake(pool.id, later)
        return False
    before = ledger.published
    _solve(state, ledger)
    known: Standings = state.solvers[pool.id]
    known.judged = _judge(state, ledger, known)
    starving = _starvation(state, ledger, known)
    moved = starving != state.starving.get(pool.id)
    state.starving[pool.id] = starving
    state.published_at[pool.id] = state.now
    published = _published(state, ledger, known)
    if published != before:
        state.publish(pool.id, published)
        moved = True
    state.wake(pool.id, _next_look(state, ledger, starving))
    if moved:
        state.dirty[pool.id] = None
    return moved


def _next_publication(state: State, ledger: PoolLedger) -> int:
    """The instant from which on shares may be published again."""
    at = state.published_at.get(ledger.pool.id)
    return state.now if at is None else at + ledger.pool.settings.fair_share_update_period


def _solve(state: State, ledger: PoolLedger) -> None:
    """Tell the pool's solver of every change since it was last asked, and let it settle."""
    policies = tuple(_policies(ledger))
    totals = {key: float(ledger.pool.capacity[key]) for key in sorted(ledger.pool.capacity)}
    known: Standings | None = state.solvers.get(ledger.pool.id)
    requests = _requests(state, ledger, {} if known is None else known.seen)
    options = _options(ledger.pool.settings, totals)
    asked = (policies, totals, options)
    # The solver's own volumes may belong to a state that was only tried.
    volumes = state.volumes.get(ledger.pool.id, {})
    if known is None or (known.policies, known.totals, known.options) != asked:
        solver = Solver(Tree(totals, (*policies, *requests.values()), volumes), options)
        demands = None
        if ledger.balance is not None:
            idle = map(_idle, requests.values())
            demands = Solver(Tree(totals, (*policies, *idle), volumes), options)
        known = Standings(solver, demands, policies, totals, options, requests)
        state.solvers[ledger.pool.id] = known
    else:
        solver = known.solver
        _tell(known, requests)
        solver.volumes = volumes
    solver.settle((state.now - state.published_at.get(ledger.pool.id, state.now)) / 1000)
    state.volumes[ledger.pool.id] = solver.volumes
    if known.demands is not None:
        known.demands.volumes = solver.volumes
        known.demands.settle()


def policies_if_fair(state: State, ledger: PoolLedger) -> tuple[Published, dict[str, Starvation]]:
    """The shares and the starvation that the policies of a pool would have if it shared fairly;
    without requests.
    """
    totals = {key: float(ledger.pool.capacity[key]) for key in sorted(ledger.pool.capacity)}
    elements = (*_policies(ledger), *_requests(state, ledger, {}).values())
    volumes = state.volumes.get(ledger.pool.id, {})
    solver = Solver(Tree(totals, elements, volumes), _options(ledger.pool.settings, totals))
    before, starving = state.starving.get(ledger.pool.id, {}), {}
    for policy_id in ledger.policies:
        share, settings = solver.share(policy_id), settings_for(ledger, policy_id)
        situation = Situation(share.total, share.demand, share.usage, is_request=False)
        is_below = settings.enable_policy_starvation and _is_below(situation, settings)
        clock = before.get(policy_id, Starvation())
        starving[policy_id] = starve(clock, is_below, state.now, settings)
    return _published_policies(ledger, solver), starving


def _idle(element: Element) -> Element:
    """The same request, holding nothing."""
    return replace(element, usage={})


def _tell(known: Standings, requests: dict[str, Element]) -> None:
    """Tell a solver which requests have changed."""
    for element_id in [each for each in known.seen if each not in requests]:
        known.solver.drop(element_id)
        if known.demands is not None:
            known.demands.drop(element_id)
    for element_id, element in requests.items():
        before = known.seen.get(element_id)
        if before is element:
            continue
        known.solver.put(element)
        # A grant changes nothing here: waited-for amounts become held, and are wanted as before.
        if known.demands is not None and (before is None or _idle(before) != _idle(element)):
            known.demands.put(_idle(element))
    known.seen = requests


def _options(settings: Settings, totals: Mapping[str, float]) -> Options:
    return Options(
        main=main_key(totals), gang_steps=settings.gang_steps, improved=settings.improved_fit_factor
    )


def main_key(keys: Collection[str]) -> str:
    """The key that decides where others do not: GPUs if the pool has any."""
    return "gpu" if "gpu" in keys else next(iter(keys), "")


def _policies(ledger: PoolLedger) -> Iterator[Element]:
    for policy in sorted(ledger.policies.values(), key=lambda each: (each.name, each.id)):
        yield Element(
            id=policy.id,
            kind=Kind.POLICY,
            parent=policy.parent_id or ROOT,
            weight=policy.weight,
            mode=Mode(policy.mode),
            guarantee=dict(policy.reserved),
            limit=dict(policy.limit),
            integral=_integral(policy.integral),
        )


def _integral(given: Mapping[str, Any]) -> Integral:
    """A guarantee over time from a policy's field."""
    if not given:
        return NO_INTEGRAL
    return Integral(
        type=IntegralType(given["guarantee_type"]),
        flow=given.get("resource_flow", {}),
        burst=given.get("burst_guarantee_resources", {}),
        multiplier=given.get("relaxed_share_multiplier_limit", NO_INTEGRAL.multiplier),
        accepts_free_volume=given.get("can_accept_free_volume", True),
        spreads_free_volume=given.get("should_distribute_free_volume_among_children", False),
    )


def _requests(state: State, ledger: PoolLedger, known: Mapping[str, Element]) -> dict[str, Element]:
    """The requests of the pool, each as one element with all its tasks: its usage and its demand.
    The known element if it is the same.
    """
    usage: dict[str, dict[str, int]] = {}
    demand: dict[str, dict[str, int]] = {}
    first: dict[str, tuple[Request, str]] = {}
    for holding in ledger.holdings.values():
        owner = holding.id if holding.earmark else state.allocations[holding.id].request_id
        task_group = _count(state.requests[owner], holding.policy_id, first)
        if not holding.leaving:  # leaving holders no longer count as used
            add_to(usage.setdefault(task_group, {}), holding.amounts)
        add_to(demand.setdefault(task_group, {}), holding.amounts)
    for key, queue in ledger.queues.items():
        for request_id in queue:
            task_group = _count(state.requests[request_id], key.policy_id, first)
            add_to(demand.setdefault(task_group, {}), queue.demand(request_id))
    found: dict[str, Element] = {}
    for task_group, (request, policy_id) in sorted(first.items(), key=lambda each: each[1][0].age):
        wants, uses = demand.get(task_group, {}), usage.get(task_group, {})
        terms = request.terms
        asked = (policy_id, wants, uses, terms.weight, terms.limit, request.index)
        before = known.get(task_group)
        if before is not None and _asked(before) == asked:
            found[task_group] = before
            continue
        found[task_group] = Element(
            id=task_group,
            parent=policy_id,
            demand=wants,
            usage=uses,
            weight=terms.weight,
            limit=terms.limit,
            gang=request.shape is not None and request.shape.tasks > 1,
            submitted=request.index,
        )
    return found


# What may change of the element of a request; whether it is a gang does not.
_asked = attrgetter("parent", "demand", "usage", "weight", "limit", "submitted")


def _count(request: Request, policy_id: str, first: dict[str, tuple[Request, str]]) -> str:
    task_group = request.part_of or request.id
    if task_group not in first or request.age < first[task_group][0].age:
        first[task_group] = (request, policy_id)
    return task_group


def _judge(state: State, ledger: PoolLedger, known: Standings) -> dict[str, Judged]:
    """Judge each request by its share; the last judgement holds if all that it was made of is the
    same.
    """
    solver, smallest = known.solver, _smallest(state, ledger)
    totals = {key: float(ledger.pool.capacity[key]) for key in solver.keys}
    waiting = {
        state.requests[each].part_of or each for queue in ledger.queues.values() for each in queue
    }
    found: dict[str, Judged] = {}
    for task_group, element in known.seen.items():
        settings = settings_for(ledger, element.parent, state.requests.get(task_group))
        can_start, small = task_group in waiting, smallest.get(task_group, ())
        before, fair = known.judged.get(task_group), solver.fair_share(task_group)
        if before is not None and before.still(element, fair, settings, can_start, small):
            found[task_group] = before
            continue
        share = solver.share(task_group)
        situation = Situation(
            share.total, share.demand, share.usage, can_start=can_start, smallest=small
        )
        found[task_group] = Judged(
            *(element, fair, settings, can_start, small),
            Claim(Due(share.total, share.demand, totals), settings, small),
            satisfaction(share.total, share.demand, share.usage),
            (share.strong, share.integral, share.weighed),
            _is_below(situation, settings),
        )
    return found


def _published(state: State, ledger: PoolLedger, known: Standings) -> Published:
    """The shares, dues and satisfaction of all policies and requests."""
    policies = _published_policies(ledger, known.solver)
    shares, dues = policies.shares, policies.dues
    ratios, parts, claims = dict(policies.satisfaction), dict(policies.parts), {}
    for task_group, each in known.judged.items():
        ratios[task_group], parts[task_group] = each.satisfaction, each.parts
        claims[task_group] = each.claim
    lines: dict[str, tuple[Line, Line]] = {}
    if ledger.balance is not None:
        lines = {pid: lines_of(dues[pid], settings_for(ledger, pid)) for pid in ledger.policies}
    return Published(shares, dues, ratios, claims, lines, _entitled(state, ledger), parts)


def _published_policies(ledger: PoolLedger, solver: Solver) -> Published:
    """The shares, dues and satisfaction of the policies alone."""
    shares, dues, ratios, parts = {}, {}, {}, {}
    totals = {key: float(ledger.pool.capacity[key]) for key in solver.keys}
    for policy_id in ledger.policies:
        share = solver.share(policy_id)
        shares[policy_id] = {
            key: part * ledger.pool.capacity[key]
            for key, part in zip(solver.keys, share.total, strict=True)
        }
        parts[policy_id] = (share.strong, share.integral, share.weighed)
        dues[policy_id] = Due(share.total, share.demand, totals)
        ratios[policy_id] = satisfaction(share.total, share.demand, share.usage)
    return Published(shares, dues, ratios, parts=parts)


def _entitled(state: State, ledger: PoolLedger) -> dict[str, dict[str, float]]:
    """The amounts that demands alone give each element of the balance that has a demand."""
    known: Standings = state.solvers[ledger.pool.id]
    if ledger.balance is None or known.demands is None:
        return {}
    solver, found = known.demands, dict[str, dict[str, float]]()

    def add(element: str, share: Vector) -> None:
        amounts = found.setdefault(element, dict.fromkeys(solver.keys, 0.0))
        for key, part in zip(solver.keys, share, strict=True):
            amounts[key] += part * ledger.pool.capacity[key]

    for policy_id in ledger.policies:
        share = solver.share(policy_id)
        if any(share.demand):
            add(policy_id, share.total)
    for task_group, element in known.seen.items():
        own = ledger.balance.paths[element.parent][-1]
        if own != element.parent:  # requests beside policies below
            add(own, solver.fair_share(task_group))
    return found


# Starvation -----------------------------------------------------------------------------------


def _smallest(state: State, ledger: PoolLedger) -> dict[str, Vector]:
    """The least of each key that one more task of a task group takes, as shares, where that
    decides.
    """
    if not ledger.pool.settings.enable_absolute_fair_share_starvation_tolerance:
        return {}
    totals = {key: float(ledger.pool.capacity[key]) for key in sorted(ledger.pool.capacity)}
    found: dict[str, Vector] = {}
    for queue in ledger.queues.values():
        for request_id in queue:
            task_group = state.requests[request_id].part_of or request_id
            wants = as_share(queue.demand(request_id), totals)
            found[task_group] = smaller(found.get(task_group, wants), wants)
    return found


def _starvation(state: State, ledger: PoolLedger, known: Standings) -> dict[str, Starvation]:
    """The elements below their share, and since when."""
    before = state.starving.get(ledger.pool.id, {})
    found = {}
    for policy_id in ledger.policies:
        settings = settings_for(ledger, policy_id)
        if settings.enable_policy_starvation:
            share = known.solver.share(policy_id)
            situation = Situation(share.total, share.demand, share.usage, is_request=False)
            if _is_below(situation, settings):
                clock = before.get(policy_id, Starvation())
                found[policy_id] = starve(clock, True, state.now, settings)
    for task_group, each in known.judged.items():
        if each.is_below:
            clock = before.get(task_group, Starvation())
            found[task_group] = starve(clock, True, state.now, each.settings)
    return found


def fair_settings(settings: Settings) -> FairSettings:
    return FairSettings(
        **{each.name: getattr(settings, each.name) for each in fields(FairSettings)}
    )


def settings_for(
    ledger: PoolLedger, policy_id: str, request: Request | None = None
) -> FairSettings:
    """The settings of a policy, or of one of its requests, inherited from above."""
    known: FairSettings | None = ledger.fair_settings.get(policy_id)
    if known is None:
        known = fair_settings(ledger.pool.settings)
        for each in reversed(ledger.chains[policy_id]):
            known = inherit(known, ledger.policies[each].settings, Kind.POLICY)
        ledger.fair_settings[policy_id] = known
    if request is None or not request.terms.settings:
        return known
    return inherit(known, request.terms.settings, Kind.REQUEST)


def _settings_of(state: State, ledger: PoolLedger, element_id: str) -> FairSettings:
    if element_id in ledger.policies:
        return settings_for(ledger, element_id)
    element: Element = state.solvers[ledger.pool.id].seen[element_id]
    return settings_for(ledger, element.parent, state.requests.get(element_id))


def _next_look(state: State, ledger: PoolLedger, starving: Mapping[str, Starvation]) -> int | None:
    """The next instant at which an element starves more, or a node may take again."""
    instants = []
    for element_id, each in starving.items():
        if each.since is None:
            continue
        settings = _settings_of(state, ledger, element_id)
        if each.status is Starving.NON_STARVING:
            instants.append(each.since + settings.fair_share_starvation_timeout + 1)
        elif each.status is Starving.STARVING and settings.enable_aggressive_starvation:
            instants.append(each.since + settings.fair_share_aggressive_starvation_timeout + 1)
    if any(each.status is not Starving.NON_STARVING for each in starving.values()):
        instants += _stages(state, ledger)
    if any(policy.integral for policy in ledger.policies.values()) and any(ledger.queues.values()):
        instants.append(state.now + _SOON)  # saved-up volumes are used up while nothing happens
    return min((each for each in instants if each > state.now), default=None)


def _stages(state: State, ledger: PoolLedger) -> Iterator[int]:
    """The instants at which the nodes that took last may take again."""
    backoff = ledger.pool.settings.preemptive_scheduling_backoff
    for node_id, last in state.staged.items():
        if ledger.inventory is not None and node_id in ledger.inventory.spots:
            node, heard = state.nodes[node_id], state.beats.get(node_id, 0)
            rested = last + backoff
            if heard <= last:  # no heartbeat since
                rested = max(rested, heard + node.heartbeat, state.now + _SOON)
            yield rested


def hunger(state: State, ledger: PoolLedger, request: Request, policy_id: str) -> Starving:
    """How much a waiter starves: the most of itself, its policy and those above, without elements
    that were given enough since shares were last computed.
    """
    known = state.starving.get(ledger.pool.id)
    if not known:
        return Starving.NON_STARVING
    above = _hunger_of(state, ledger, known, policy_id)
    own_id = request.part_of or request.id
    own = known.get(own_id)
    if own is None or own.status.degree <= above.degree:
        return above
    return own.status if _still_below(state, ledger, own_id, policy_id) else above


def _hunger_of(
    state: State, ledger: PoolLedger, known: Mapping[str, Starvation], policy_id: str
) -> Starving:
    """The same of a policy and those above it; asked for each of its waiters, so kept until the
    clocks or the ledger change.
    """
    found: Starving
    of, version, found = ledger.hunger.get(policy_id, (None, -1, Starving.NON_STARVING))
    if of is not known or version != ledger.version:
        found = Starving.NON_STARVING
        for each in ledger.chains[policy_id]:
            starves = known.get(each)
            if (
                starves is not None
                and starves.status.degree > found.degree
                and _still_below(state, ledger, each, policy_id)
            ):
                found = starves.status
        ledger.hunger[policy_id] = (known, ledger.version, found)
    return found


def hungriest(state: State, ledger: PoolLedger) -> Starving:
    """The most that any element of a pool starves, even one that was given enough meanwhile."""
    known = state.starving.get(ledger.pool.id, {})
    found = {each.status for each in known.values()}
    return max(found, key=lambda each: each.degree, default=Starving.NON_STARVING)


def set_clocks(state: State, plan: Plan) -> None:
    """Stop the clocks of elements that this pass gave enough, and look at those that it took from.

    Shares are computed again only when something else changes. Until then a clock that ran on would
    count time without need, and one that did not begin would miss time.
    """
    took = (each.pool_id for each in plan.decisions if isinstance(each, Preemption))
    for pool_id in dict.fromkeys(took):
        if (ledger := state.ledgers[pool_id]).starves:
            state.wake_by(pool_id, _next_publication(state, ledger))
    for pool_id, request in _served(state, plan):
        for policy in state.policies_of(request.subject):
            if not (known := state.starving.get(policy.pool_id)):
                continue
            ledger = state.ledgers[policy.pool_id]
            path = (request.part_of or request.id, *ledger.chains[policy.id])
            running = [each for each in path if each in known]
            if policy.pool_id != pool_id:  # it waits there no more, so the need may be less
                if running:
                    state.wake_by(policy.pool_id, _next_publication(state, ledger))
                continue
            done = [each for each in running if not _still_below(state, ledger, each, policy.id)]
            if done:  # a new map, so that undo restores the old one
                state.starving[pool_id] = {a: b for a, b in known.items() if a not in done}


def _served(state: State, plan: Plan) -> Iterator[tuple[str, Request]]:
    """The requests that were granted or promised something, and in which pool."""
    for each in plan.decisions:
        if isinstance(each, Grant):
            yield each.pool_id, state.requests[each.request_id]
    for pool_id, promised in plan.promised.items():
        owners = state.ledgers[pool_id].earmarks
        yield from ((pool_id, state.requests[each]) for each in promised if each in owners)


def _still_below(state: State, ledger: PoolLedger, element_id: str, policy_id: str) -> bool:
    """Whether what an element holds and was promised is still below its published share.

    The solver is not asked, because it may have been told of a state that was only tried.
    """
    smallest: Vector = ()
    if element_id in ledger.policies:
        stays = staying(ledger, element_id)
        due, settings = ledger.published.dues[element_id], settings_for(ledger, element_id)
    else:
        stays = staying_in(ledger, element_id)
        due = ledger.published.claims[element_id].due
        smallest = ledger.published.claims[element_id].smallest
        settings = settings_for(ledger, policy_id, state.requests.get(element_id))
    usage = as_share(stays, due.totals)
    is_request = element_id not in ledger.policies
    situation = Situation(due.fair, due.demand, usage, is_request=is_request, smallest=smallest)
    return _is_below(situation, settings)


def _is_below(situation: Situation, settings: FairSettings) -> bool:
    return status_of(situation, settings) is Status.BELOW_FAIR_SHARE
