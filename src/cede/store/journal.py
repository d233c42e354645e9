"""Reading the journal from any place on, forwards or backwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, select, union_all

from cede.engine.state.changes import Event
from cede.model import bounds
from cede.model.subject import Subject
from cede.store import rows, schema
from cede.store.filters import of_subjects

_events, _requests = schema.events.c, schema.requests.c


class Events(NamedTuple):
    """A selection of events. Those of subjects are looked for among the nearest ones first, so that
    who follows the journal pays for what is new and not for all that its subjects ever asked for.
    """

    request_id: str | None
    pool_id: str | None
    subjects: Sequence[Subject] | None

    def read(self, connection: Connection, index: int, limit: int, *, back: bool) -> list[Event]:
        """Up to `limit` from an index on; backwards, the nearest first."""
        place = _events.at_index
        in_order = place.desc() if back else place.asc()

        def behind(last: int) -> ColumnElement[bool]:
            return place < last if back else place > last

        def read(*where: ColumnElement[bool]) -> list[Event]:
            statement = select(schema.events).where(*self._conditions(), *where)
            found = connection.execute(statement.order_by(in_order).limit(limit))
            return [rows.event_from(row) for row in found]

        if self.subjects is None:
            return read(behind(index))
        if not self.subjects:
            return []
        mine = self._looked_up(self.subjects)
        if self.request_id is not None:
            return read(behind(index), mine)
        scan = select(place).where(behind(index)).order_by(in_order)
        last = connection.execute(scan.offset(bounds.PAGE_SCAN_MAX - 1).limit(1)).scalar()
        if last is None:
            return read(behind(index), mine)
        near = read(behind(index), ~behind(last), mine)
        if len(near) == limit:
            return near
        return [*near, *read(behind(last), self._of_all_requests(self.subjects))][:limit]

    def _conditions(self) -> Iterator[ColumnElement[bool]]:
        if self.request_id is not None:
            yield _events.request_id == self.request_id
        if self.pool_id is not None:
            yield _events.pool_id == self.pool_id

    @staticmethod
    def _looked_up(subjects: Sequence[Subject]) -> ColumnElement[bool]:
        """That the request of each event, which is looked up, is of one of the subjects."""
        mine = of_subjects(subjects)
        return select(1).where(_requests.id == _events.request_id, mine).exists()

    @staticmethod
    def _of_all_requests(subjects: Sequence[Subject]) -> ColumnElement[bool]:
        """The same by all requests of the subjects, one subject after the other."""
        ids = (select(_requests.id).where(of_subjects((each,))) for each in subjects)
        return _events.request_id.in_(union_all(*ids))
