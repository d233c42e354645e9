"""The filters of lists, and their conditions in SQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sqlalchemy import (
    ColumnElement,
    TextClause,
    and_,
    cast,
    exists,
    false,
    func,
    or_,
    select,
    text,
    tuple_,
)

from cede.model.lifecycle import HOLDING, TERMINAL, WAITING, RequestStatus
from cede.model.subject import Subject
from cede.store import schema

QUEUED, ACTIVE, ALL = "queued", "active", "all"
_WAITING = sorted(status.value for status in WAITING)
_HOLDING = sorted(status.value for status in HOLDING)
ALIVE = tuple(sorted(status.value for status in RequestStatus if status not in TERMINAL))
_ACTIVE = {*ALIVE}

_requests = schema.requests.c
_policies = schema.policies.c


Condition = ColumnElement[bool] | TextClause


@dataclass(frozen=True, slots=True)
class RequestFilter:
    """The filter of a list of requests. `subjects` are those that the caller may see; the other
    fields come from the caller.
    """

    subjects: tuple[Subject, ...] | None = None
    status: tuple[str, ...] = ()
    pool_id: str | None = None
    view: str | None = None
    component: str | None = None
    component_type: str | None = None
    preemptible: bool | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    part_of: str | None = None
    tenant: str | None = None

    def key(self) -> dict[str, Any]:
        """The values that a cursor is bound to."""
        return asdict(self)

    def walked(self) -> list[Condition]:
        """The conditions of one index in the order of the list; none for that of all requests."""
        if self.part_of is not None:
            return [_requests.part_of == self.part_of]
        if self.tenant is not None:
            return [_requests.tenant == self.tenant]
        if (subject := self._subject()) is not None:
            return [
                _requests.subject_type == subject.type,
                _requests.subject_name == subject.name,
            ]
        if self.view is not None or (self.status and _ACTIVE.issuperset(self.status)):
            return [text(schema.ACTIVE)]
        if len(self.status) == 1:
            return [text(schema.ENDED), _requests.status == self.status[0]]
        return []

    def _subject(self) -> Subject | None:
        if self.component is not None and self.component_type is not None:
            return Subject(self.component_type, self.component)
        if self.subjects is not None and len(self.subjects) == 1:
            return self.subjects[0]
        return None

    def conditions(self, dialect: str) -> list[ColumnElement[bool]]:
        """All conditions, independent of the index."""
        found: list[ColumnElement[bool]] = []
        if self.subjects is not None:
            found.append(of_subjects(self.subjects))
        if self.status:
            found.append(_requests.status.in_(self.status))
        if self.component is not None:
            found.append(_requests.subject_name == self.component)
        if self.component_type is not None:
            found.append(_requests.subject_type == self.component_type)
        if self.preemptible is not None:
            found.append(_requests.preemptible.is_(self.preemptible))
        if self.part_of is not None:
            found.append(_requests.part_of == self.part_of)
        if self.tenant is not None:
            found.append(_requests.tenant == self.tenant)
        found += [label_of(dialect, name) == value for name, value in self.labels.items()]
        if self.pool_id is not None or self.view is not None:
            found.append(self._in_pool())
        return found

    def _in_pool(self) -> ColumnElement[bool]:
        """Requests that wait for the pool, hold in it, or both; without a view also those that
        ended in it.
        """
        queued, active = _waits_for(self.pool_id), _holds_in(self.pool_id)
        views = {QUEUED: queued, ACTIVE: active, ALL: or_(queued, active)}
        if self.view is not None:
            return views[self.view]
        return or_(
            queued, _requests.granted_pool_id == self.pool_id, _requests.pool_id == self.pool_id
        )


def of_subjects(subjects: Iterable[Subject]) -> ColumnElement[bool]:
    """Requests of one of these subjects; none if there are no subjects."""
    pairs = [(subject.type, subject.name) for subject in subjects]
    if not pairs:
        return false()
    return tuple_(_requests.subject_type, _requests.subject_name).in_(pairs)


def _waits_for(pool_id: str | None) -> ColumnElement[bool]:
    waits = and_(text(schema.ACTIVE), _requests.status.in_(_WAITING))
    if pool_id is None:
        return waits
    policy = exists(
        select(_policies.id).where(
            _policies.pool_id == pool_id,
            _policies.subject_type == _requests.subject_type,
            _policies.subject_name == _requests.subject_name,
        )
    )
    named = or_(_requests.pool_id.is_(None), _requests.pool_id == pool_id)
    return and_(waits, named, policy)


def _holds_in(pool_id: str | None) -> ColumnElement[bool]:
    holds = and_(text(schema.ACTIVE), _requests.status.in_(_HOLDING))
    return holds if pool_id is None else and_(holds, _requests.granted_pool_id == pool_id)


def label_of(dialect: str, name: str) -> ColumnElement[str]:
    """The value of a request's label; NULL where it has none of this name."""
    if dialect == "sqlite":
        each = func.json_each(_requests.labels).table_valued("key", "value")
        return select(each.c.value).where(each.c.key == name).scalar_subquery()
    from sqlalchemy.dialects.postgresql import JSONB  # SQLite's servers do without the import

    return cast(_requests.labels, JSONB).op("->>")(name)
