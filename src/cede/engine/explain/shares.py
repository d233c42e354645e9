"""The shares of a pool: every policy and request with what it has and its fair share.

Fair shares are the last published ones, which decide; use and demand are as they are now. A pool
that decides by reserves is shown as it would stand under fair share: tried on the real state, and
taken back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields
from typing import Any

from cede.engine.admin import edits
from cede.engine.fair.curve import Vector
from cede.engine.fair.groups import Group
from cede.engine.fair.settings import FairSettings
from cede.engine.fair.shares import dominant_key
from cede.engine.fair.status import Situation, Starvation, Starving, Status, satisfaction, status_of
from cede.engine.fair.tree import Kind
from cede.engine.ledger.account import staying, staying_in
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.ledger.task_groups import Published
from cede.engine.rights.cover import Holding
from cede.engine.shares.prefix import BY_RIGHTS, GROUPS
from cede.engine.shares.publish import main_key, policies_if_fair, refresh, settings_for
from cede.engine.state.state import State
from cede.engine.state.trial import as_of, what_if
from cede.model.amounts import add_to
from cede.model.durations import seconds
from cede.model.policy import Policy
from cede.model.request import Request
from cede.model.settings import DURATIONS
from cede.model.settings import Share as SharedBy
from cede.model.subject import Subject

Groups = dict[Group, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Row:
    """One element and its standing. Shares are fractions of the pool's capacity, amounts are
    units.
    """

    id: str
    name: str
    kind: Kind
    subject: Subject
    depth: int
    parent: str | None  # the name of the parent policy
    weight: float
    mode: str | None  # of a policy: how the policies below it share
    guarantee: Mapping[str, int]
    limit: Mapping[str, int]
    usage: Mapping[str, int]
    demand: Mapping[str, int]
    fair_share: Mapping[str, float]
    strong_share: Mapping[str, float]
    integral_share: Mapping[str, float]
    weighed_share: Mapping[str, float]
    volume: Mapping[str, float]
    usage_share: Mapping[str, float]
    demand_share: Mapping[str, float]
    dominant: str
    satisfaction: float
    status: Status
    starvation: Starving
    settings: FairSettings
    below_since: int | None = None
    starving_since: int | None = None
    groups: Groups = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class View:
    """One pool. `in_force`: it decides by these shares."""

    pool: str
    share: str
    capacity: Mapping[str, int]
    in_force: bool
    rows: tuple[Row, ...]


def shares_of(state: State, ledger: PoolLedger, now: int) -> list[Row]:
    """Every element of a pool: policies, parents first, each followed by its requests."""
    return list(view_of(state, ledger.pool.id, now).rows)


def view_of(state: State, pool_id: str, now: int, *, requests: bool = True) -> View:
    """The view of a pool, with its requests or only its policies, which costs a fraction where many
    wait.
    """
    pool, ledger = state.pools[pool_id], state.ledgers[pool_id]
    fair = ledger.fair
    if not requests:
        with as_of(state, now):
            rows = tuple(_policies_alone(state, ledger).policies_alone())
    else:
        with nullcontext() if fair else _as_if_fair(state, pool_id, now):
            rows = tuple(_Rows(state, state.ledgers[pool_id]).all())
    return View(pool.name, str(pool.settings.share), dict(pool.capacity), fair, rows)


def _policies_alone(state: State, ledger: PoolLedger) -> _Rows:
    if ledger.fair:
        return _Rows(state, ledger)
    published, starving = policies_if_fair(state, ledger)
    return _Rows(state, ledger, published, starving)


@contextmanager
def _as_if_fair(state: State, pool_id: str, now: int) -> Iterator[None]:
    """The pool as it would stand if it shared fairly from now on."""
    known = state.solvers.pop(pool_id, None)
    with what_if(state):
        state.now = now
        edits.update_pool(state, pool_id, settings={"share": SharedBy.FAIR_SHARE})
        state.dirty = {pool_id: None}
        state.published_at.pop(pool_id, None)
        refresh(state, [])
        yield
    state.solvers.pop(pool_id, None)
    if known is not None:
        state.solvers[pool_id] = known


@dataclass(slots=True)
class _TaskGroup:
    """A request with all its tasks; `first` is the oldest that has not ended."""

    policy_id: str
    first: Request
    demand: dict[str, int] = field(default_factory=dict)
    waits: bool = False


class _Rows:
    """The rows of one pool, from the last published shares, or from those that are given."""

    def __init__(
        self,
        state: State,
        ledger: PoolLedger,
        published: Published | None = None,
        starving: Mapping[str, Starvation] | None = None,
    ) -> None:
        self.state, self.ledger = state, ledger
        self.published = ledger.published if published is None else published
        self.keys = tuple(sorted(ledger.pool.capacity))
        self.task_groups = _task_groups(state, ledger)
        self.starving = state.starving.get(ledger.pool.id, {}) if starving is None else starving
        self.volumes = state.volumes.get(ledger.pool.id, {})
        self.main = main_key(self.keys)
        self.demand: dict[str, dict[str, int]] = {each: {} for each in ledger.policies}
        self.requests: dict[str | None, list[str]] = {}
        for task_group_id, task_group in self.task_groups.items():
            self.requests.setdefault(task_group.policy_id, []).append(task_group_id)
            for policy_id in ledger.chains[task_group.policy_id]:
                add_to(self.demand[policy_id], task_group.demand)
        self.policies: dict[str | None, list[Policy]] = {}
        for policy in sorted(ledger.policies.values(), key=lambda each: (each.name, each.id)):
            self.policies.setdefault(policy.parent_id, []).append(policy)

    def all(self) -> Iterator[Row]:
        return self._below(None, 0)

    def policies_alone(self, parent: str | None = None, depth: int = 0) -> Iterator[Row]:
        """The policies in the same order, without groups of holdings."""
        for policy in self.policies.get(parent, ()):
            yield self._policy(policy, depth, dict.fromkeys(Group, ()))
            yield from self.policies_alone(policy.id, depth + 1)

    def _below(self, parent: str | None, depth: int) -> Iterator[Row]:
        """The rows below a policy, in order: its requests, then its policies with theirs."""
        for task_group_id in self.requests.get(parent, ()):
            yield self._request(task_group_id, self.task_groups[task_group_id], depth)
        for policy in self.policies.get(parent, ()):
            inner = list(self._below(policy.id, depth + 1))
            groups = _union(each.groups for each in inner if each.depth == depth + 1)
            if self.ledger.balance is not None:  # between policies its own share decides
                groups = _groups_below(self.ledger, policy.id)
            yield self._policy(policy, depth, groups)
            yield from inner

    def _policy(self, policy: Policy, depth: int, groups: Groups) -> Row:
        ledger = self.ledger
        stays = staying(ledger, policy.id)
        due = self.published.shares.get(policy.id, {})
        situation = Situation(
            tuple(_part(due.get(key, 0), ledger.pool.capacity[key]) for key in self.keys),
            self._parts(self.demand[policy.id]),
            self._parts(stays),
            is_request=False,
        )
        settings = settings_for(ledger, policy.id)
        return Row(
            id=policy.id,
            name=policy.name,
            kind=Kind.POLICY,
            subject=policy.subject,
            depth=depth,
            parent=None if policy.parent_id is None else ledger.policies[policy.parent_id].name,
            weight=policy.weight,
            mode=str(policy.mode),
            guarantee=dict(policy.reserved),
            limit=dict(policy.limit),
            usage=self._whole(stays),
            demand=self._whole(self.demand[policy.id]),
            fair_share=self._by_key(situation.fair),
            groups=groups,
            **self._standing(policy.id, situation, settings),
        )

    def _request(self, task_group_id: str, task_group: _TaskGroup, depth: int) -> Row:
        ledger = self.ledger
        stays = staying_in(ledger, task_group_id)
        claim = self.published.claims.get(task_group_id)
        situation = Situation(
            self._parts({}) if claim is None else claim.due.fair,
            self._parts(task_group.demand),
            self._parts(stays),
            can_start=task_group.waits,
            smallest=() if claim is None else claim.smallest,
        )
        settings = settings_for(ledger, task_group.policy_id, task_group.first)
        return Row(
            id=task_group_id,
            name=task_group_id,
            kind=Kind.REQUEST,
            subject=task_group.first.subject,
            depth=depth,
            parent=ledger.policies[task_group.policy_id].name,
            weight=task_group.first.terms.weight,
            mode=None,
            guarantee={},
            limit=dict(task_group.first.terms.limit),
            usage=self._whole(stays),
            demand=self._whole(task_group.demand),
            fair_share=self._by_key(situation.fair),
            groups=_groups(ledger.task_groups.of(task_group_id)),
            **self._standing(task_group_id, situation, settings),
        )

    def _standing(
        self, element_id: str, situation: Situation, settings: FairSettings
    ) -> dict[str, Any]:
        """The standing of an element against its due. An element that came after shares were last
        computed has no due yet, and its satisfaction is 0.
        """
        hunger: Starvation = self.starving.get(element_id, Starvation())
        fair, demand, usage = situation.fair, situation.demand, situation.usage
        known = element_id in self.published.satisfaction
        none = self._parts({})
        strong, by_volume, weighed = self.published.parts.get(element_id, (none,) * 3)
        saved = self.volumes.get(element_id)
        return {
            "strong_share": self._by_key(strong),
            "integral_share": self._by_key(by_volume),
            "weighed_share": self._by_key(weighed),
            "volume": {} if saved is None else dict(saved.saved),
            "usage_share": self._by_key(usage),
            "demand_share": self._by_key(demand),
            "dominant": dominant_key(self.keys, usage if any(usage) else demand, self.main),
            "satisfaction": satisfaction(fair, demand, usage) if known else 0,
            "status": status_of(situation, settings),
            "starvation": hunger.status,
            "below_since": hunger.since,
            "starving_since": _starving_since(hunger, settings),
            "settings": settings,
        }

    def _by_key(self, vector: Vector) -> dict[str, float]:
        return dict(zip(self.keys, vector, strict=True))

    def _parts(self, amounts: Mapping[str, int]) -> Vector:
        capacity = self.ledger.pool.capacity
        return tuple(_part(amounts.get(key, 0), capacity[key]) for key in self.keys)

    def _whole(self, amounts: Mapping[str, int]) -> dict[str, int]:
        return {key: amounts.get(key, 0) for key in self.keys}


def _task_groups(state: State, ledger: PoolLedger) -> dict[str, _TaskGroup]:
    """Every request of a pool with all that it holds, was promised and waits for, by age."""
    found: dict[str, _TaskGroup] = {}

    def of(request: Request, policy_id: str) -> _TaskGroup:
        task_group = found.setdefault(request.part_of or request.id, _TaskGroup(policy_id, request))
        if request.age < task_group.first.age:
            task_group.first = request
        return task_group

    for holding in ledger.holdings.values():
        owner = holding.id if holding.earmark else state.allocations[holding.id].request_id
        add_to(of(state.requests[owner], holding.policy_id).demand, holding.amounts)
    for key, queue in ledger.queues.items():
        for request_id in queue:
            task_group = of(state.requests[request_id], key.policy_id)
            task_group.waits = True
            add_to(task_group.demand, queue.demand(request_id))
    return dict(sorted(found.items(), key=lambda each: each[1].first.age))


def _part(amount: float, whole: int) -> float:
    return amount / whole if whole else 0


def _groups(held: Iterable[Holding]) -> Groups:
    found: dict[Group, list[str]] = {group: [] for group in Group}
    for holding in held:
        if not holding.earmark:
            found[GROUPS[holding.band]].append(holding.id)
    return {group: tuple(ids) for group, ids in found.items()}


def _groups_below(ledger: PoolLedger, policy_id: str) -> Groups:
    """The holdings of a policy and those below it, by the groups that decide between policies."""
    found: dict[Group, list[str]] = {group: [] for group in Group}
    for each in sorted(ledger.holdings.values(), key=lambda each: (each.index, each.id)):
        below = policy_id in ledger.chains[each.policy_id]
        if below and not each.earmark and not each.leaving:
            found[BY_RIGHTS[ledger.rights(each.id)]].append(each.id)
    return {group: tuple(ids) for group, ids in found.items()}


def _union(groups: Iterable[Groups]) -> Groups:
    every = list(groups)
    return {group: tuple(id_ for each in every for id_ in each[group]) for group in Group}


def _starving_since(hunger: Starvation, settings: FairSettings) -> int | None:
    if hunger.since is None or hunger.status is Starving.NON_STARVING:
        return None
    aggressive = hunger.status is Starving.AGGRESSIVELY_STARVING
    return hunger.since + (
        settings.fair_share_aggressive_starvation_timeout
        if aggressive
        else settings.fair_share_starvation_timeout
    )


# As data --------------------------------------------------------------------------------------


def show(views: Iterable[View], now: int, names: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Views as `cede shares --json` prints them. `names`: the names of allocations that are not
    their ids.
    """
    every = list(views)
    return {
        "now": seconds(now),
        "pools": [
            {
                "name": each.pool,
                "share": each.share,
                "capacity": dict(each.capacity),
                "in_force": each.in_force,
            }
            for each in every
        ],
        "elements": [
            {"pool": each.pool, **_shown(row, names or {})} for each in every for row in each.rows
        ],
    }


_SECONDS = ("below_since", "starving_since")


def _shown(row: Row, names: Mapping[str, str]) -> dict[str, Any]:
    shown = {each.name: getattr(row, each.name) for each in fields(Row)}
    del shown["subject"]
    for name in ("kind", "status", "starvation"):
        shown[name] = str(shown[name])
    for name in _SECONDS:
        shown[name] = seconds(shown[name])
    shown["component"], shown["component_type"] = row.subject.name, row.subject.type
    shown["groups"] = {
        str(group): [names.get(each, each) for each in row.groups[group]] for group in Group
    }
    shown["settings"] = {
        each.name: _setting(each.name, getattr(row.settings, each.name))
        for each in fields(FairSettings)
    }
    return shown


def _setting(name: str, value: Any) -> Any:
    if name in DURATIONS:
        return seconds(value)
    return dict(value) if isinstance(value, Mapping) else value
