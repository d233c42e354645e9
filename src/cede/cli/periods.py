"""`--from` and `--to`: a day, a month or a time, of UTC unless a zone is written."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import click

_MONTH = re.compile(r"(\d{4})-(\d\d)")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_EXAMPLES = "write a day (2026-11-01), a month (2026-11) or a time (2026-11-01T08:00)"


class From(click.ParamType[Any]):
    """A written time, or the beginning of a written day or month, as ISO 8601 with a zone."""

    name = "TIME"
    _through = False

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value).strip()
        try:
            return _edge(text, self._through).isoformat().replace("+00:00", "Z")
        except (ValueError, OverflowError):
            self.fail(f"{text!r:.80} is no time; {_EXAMPLES}", param, ctx)


class To(From):
    """A written time, or the end of a written day or month."""

    _through = True


def _edge(text: str, through: bool) -> datetime:
    if month := _MONTH.fullmatch(text):
        year, number = int(month[1]), int(month[2])
        first = datetime(year, number, 1, tzinfo=UTC)
        return _next_month(first) if through else first
    if _DAY.fullmatch(text):
        day = datetime.fromisoformat(text).replace(tzinfo=UTC)
        return day + timedelta(days=1) if through else day
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).astimezone(UTC)


def _next_month(first: datetime) -> datetime:
    return (first + timedelta(days=32)).replace(day=1)
