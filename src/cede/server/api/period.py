"""A period as callers give it: two times of day, or so many seconds back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, NamedTuple

from fastapi import Query

from cede.model import bounds
from cede.model.durations import parse_duration
from cede.model.errors import Invalid
from cede.model.wall import Wall
from cede.server.api.context import Context
from cede.server.api.json_type import Json

Since = Annotated[
    float | None,
    Query(
        ge=0,
        le=bounds.DURATION_MAX // bounds.SECOND,
        description="Only the last so many seconds; instead of `from`.",
    ),
]
From = Annotated[
    datetime | None,
    Query(alias="from", description="Not before this time: ISO 8601, of UTC unless it has a zone."),
]
To = Annotated[
    datetime | None,
    Query(alias="to", description="Before this time, in the same form; absent: until now."),
]


class Period(NamedTuple):
    """Instants of the server's clock; None where there is no bound."""

    wall: Wall
    now: int
    since: int | None
    until: int | None

    def shown(self) -> Json:
        return {"from": self.time(self.since), "to": self.time(self.until)}

    def time(self, instant: int | None) -> str | None:
        return None if instant is None else time_of(self.wall, instant)


async def period_of(
    context: Context, since: float | None, begin: datetime | None, end: datetime | None
) -> Period:
    """Return the period, or raise what is wrong with it."""
    if since is not None and begin is not None:
        raise Invalid("since", "and from say the same; give one of them")
    wall = await context.read(context.store.wall)
    now = context.writer.now()
    first = None if begin is None else wall.instant(_milliseconds(begin))
    if since is not None:
        first = max(0, now - parse_duration(since, "since"))
    last = None if end is None else wall.instant(_milliseconds(end))
    if begin is not None and end is not None and _milliseconds(end) <= _milliseconds(begin):
        raise Invalid("to", "must be after from")
    return Period(wall, now, first, last)


def time_of(wall: Wall, instant: int) -> str:
    """Format an instant as ISO 8601 in UTC."""
    then = datetime.fromtimestamp(wall.time(instant) / bounds.SECOND, UTC)
    return then.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def cost_of(
    pools: Mapping[str, Mapping[str, int]], costs: Mapping[str, Mapping[str, float]]
) -> float | None:
    """Return the cost of held time by its pools' present prices; None where none has one."""
    if not any(pool_id in costs for pool_id in pools):
        return None
    return sum(
        time / bounds.HOUR * costs[pool_id].get(key, 0.0)
        for pool_id, times in pools.items()
        if pool_id in costs
        for key, time in times.items()
    )


def _milliseconds(time: datetime) -> int:
    """Return milliseconds since 1970."""
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    try:
        return max(0, int(aware.timestamp() * bounds.SECOND))
    except (ValueError, OverflowError):
        raise Invalid("from", f"is not a time that can be counted: {time!r:.80}") from None
