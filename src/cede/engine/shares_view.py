"""Who has what of a pool, and what is due to whom: every policy and request with its fair share.

What is shown is worked out now, by the code that publishes shares, on the real state, and taken
back. A pool that decides by what is reserved is shown as it would stand under fair share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

from cede.engine import edits
from cede.engine.books import ROUNDING, Books, Published
from cede.engine.fair.curve import Vector
from cede.engine.fair.groups import Due, Group, Held, in_order, split
from cede.engine.fair.settings import FairSettings
from cede.engine.fair.shares import Share
from cede.engine.fair.status import Situation, Starvation, Starving, Status, satisfaction, status_of
from cede.engine.fair.tree import ROOT, Element, Kind
from cede.engine.fairness import Standings, fair_settings, refresh
from cede.engine.state import State
from cede.model.allocation import Allocation
from cede.model.policy import Policy
from cede.model.settings import DURATIONS, seconds
from cede.model.settings import Share as SharedBy
from cede.model.subject import Subject

Groups = dict[Group, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Row:
    """One element as it stands. Shares are parts of the whole, amounts what they are parts of."""

    id: str
    name: str
    kind: Kind
    subject: Subject
    depth: int
    parent: str | None  # the name of the policy above
    weight: float
    mode: str | None  # of a policy: how those below it share
    guarantee: Mapping[str, int]
    limit: Mapping[str, int]
    usage: Mapping[str, int]
    demand: Mapping[str, int]
    fair_share: Mapping[str, float]
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
    """One pool. `in_force`: whether these are the very shares that it decides by at present."""

    pool: str
    share: str
    capacity: Mapping[str, int]
    in_force: bool
    rows: tuple[Row, ...]


def shares_of(state: State, books: Books, now: int) -> list[Row]:
    """Every element of a pool: policies, parents first, each followed by its requests."""
    return list(view_of(state, books.pool.id, now).rows)


def view_of(state: State, pool_id: str, now: int) -> View:
    pool, before = state.pools[pool_id], state.books[pool_id].published
    fair = state.books[pool_id].fair
    with _computed(state, pool_id, now) as (books, known):
        rows = tuple(_Rows(state, books, known).all())
        in_force = fair and _same(before, books.published)
    return View(pool.name, str(pool.settings.share), dict(pool.capacity), in_force, rows)


@contextmanager
def _computed(state: State, pool_id: str, now: int) -> Iterator[tuple[Books, Standings]]:
    """A pool with shares of this instant. What others tried out before may still be in its solver,
    so that what was last published cannot simply be read from there.
    """
    known = pool_id in state.solvers
    with state.what_if():
        state.now = now
        if not state.books[pool_id].fair:
            edits.update_pool(state, pool_id, settings={"share": SharedBy.FAIR_SHARE})
        state.dirty = {pool_id: None}
        state.published_at.pop(pool_id, None)
        refresh(state, [])
        yield state.books[pool_id], state.solvers[pool_id]
    if not known:
        del state.solvers[pool_id]


def _same(a: Published, b: Published) -> bool:
    return a.shares.keys() == b.shares.keys() and all(
        abs(a.shares[policy_id].get(key, 0) - amount) <= ROUNDING
        for policy_id, share in b.shares.items()
        for key, amount in share.items()
    )


class _Rows:
    """The rows of one pool, while its shares are computed."""

    def __init__(self, state: State, books: Books, known: Standings) -> None:
        self.state, self.books, self.known = state, books, known
        self.keys: tuple[str, ...] = known.solver.keys
        self.waiting = {
            state.requests[each].part_of or each for lane in books.lanes.values() for each in lane
        }
        self.held = _held(state, books)

    def all(self) -> list[Row]:
        below: dict[str, list[Element]] = {}
        for element in (*self.known.seen.values(), *self.known.policies):
            below.setdefault(element.parent, []).append(element)
        return self._under(ROOT, below, 0)

    def _under(self, parent: str, below: Mapping[str, list[Element]], depth: int) -> list[Row]:
        """What stands below an element, in order: its requests, then its policies."""
        rows = []
        for element in below.get(parent, ()):
            inner: list[Row] = []
            if element.kind is Kind.POLICY:
                inner = self._under(element.id, below, depth + 1)
                groups = _union(each.groups for each in inner if each.depth == depth + 1)
                rows.append(self._policy(self.books.policies[element.id], element, depth, groups))
            else:
                rows.append(self._request(element, depth))
            rows += inner
        return rows

    def _policy(self, policy: Policy, element: Element, depth: int, groups: Groups) -> Row:
        return self._row(
            element,
            name=policy.name,
            subject=policy.subject,
            depth=depth,
            mode=str(policy.mode),
            guarantee=dict(policy.reserved),
            groups=groups,
        )

    def _request(self, element: Element, depth: int) -> Row:
        share = self.known.solver.share(element.id)
        settings = fair_settings(self.books.pool.settings)
        due = Due(share.total, share.demand, self.known.totals)
        return self._row(
            element,
            name=element.id,
            subject=self.books.policies[element.parent].subject,
            depth=depth,
            mode=None,
            guarantee={},
            groups=split(self.held.get(element.id, ()), due, settings),
        )

    def _row(self, element: Element, **more: Any) -> Row:
        share = self.known.solver.share(element.id)
        settings = fair_settings(self.books.pool.settings)
        hunger: Starvation = self.state.starving[self.books.pool.id].get(element.id, Starvation())
        return Row(
            id=element.id,
            kind=element.kind,
            parent=None if element.parent == ROOT else self.books.policies[element.parent].name,
            weight=element.weight,
            limit={key: int(most) for key, most in element.limit.items()},
            usage=self._amounts(share.usage),
            demand=self._amounts(share.demand),
            fair_share=self._by_key(share.total),
            usage_share=self._by_key(share.usage),
            demand_share=self._by_key(share.demand),
            dominant=share.dominant,
            satisfaction=satisfaction(share.total, share.demand, share.usage),
            status=status_of(self._situation(element, share), settings),
            starvation=hunger.status,
            settings=settings,
            below_since=hunger.since,
            starving_since=_starving_since(hunger, settings),
            **more,
        )

    def _situation(self, element: Element, share: Share) -> Situation:
        return Situation(
            share.total,
            share.demand,
            share.usage,
            is_request=element.kind is Kind.REQUEST,
            can_start=element.id in self.waiting,
        )

    def _by_key(self, vector: Vector) -> dict[str, float]:
        return dict(zip(self.keys, vector, strict=True))

    def _amounts(self, vector: Vector) -> dict[str, int]:
        parts = self._by_key(vector).items()
        return {key: round(part * self.known.totals[key]) for key, part in parts}


def _held(state: State, books: Books) -> dict[str, list[Held]]:
    """Each request's allocations in the order in which they fill its share; who is on the way out
    has left it.
    """
    found: dict[str, list[Held]] = {}
    for holding in sorted(books.holdings.values(), key=lambda each: each.index):
        if holding.earmark or holding.leaving:
            continue
        allocation = state.allocations[holding.id]
        request = state.requests[allocation.request_id]
        started = _last_start(state, allocation)
        held = Held(holding.id, holding.amounts, started)
        found.setdefault(request.part_of or request.id, []).append(held)
    return {family: in_order(held) for family, held in found.items()}


def _last_start(state: State, allocation: Allocation) -> int:
    """When an allocation's work began, or last saved its progress."""
    began = allocation.allocated_at if allocation.started_at is None else allocation.started_at
    saved = state.requests[allocation.request_id].saved
    return began if saved is None else max(began, saved.at)


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
    """Views as `cede shares --json` prints them. `names`: what allocations are called, if not by
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
