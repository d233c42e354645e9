"""`--since`: a duration such as 90s, 10m or 1h30m, or a time such as 14:30 or 2026-11-16T14:30."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple

import click

from cede.model import bounds
from cede.model.durations import parse_duration
from cede.model.errors import Invalid

_CLOCK = re.compile(r"\d{1,2}:\d{2}(?::\d{2})?")


class Since(NamedTuple):
    """Seconds ago, by the node's own clock, or a Unix time: one of the two."""

    age: float | None = None
    at: float | None = None


class SinceType(click.ParamType[Since]):
    name = "duration or time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Since:
        if isinstance(value, Since):
            return value
        found = parse_since(str(value).strip(), datetime.now().astimezone())
        if found is None:
            self.fail(
                f"{value!r} is neither a duration (90s, 10m, 1h30m, 2d) nor a time (14:30, "
                "2026-11-16, 2026-11-16T14:30)",
                param,
                ctx,
            )
        return found


def parse_since(text: str, now: datetime) -> Since | None:
    """Parse a duration or a time. Times without a zone are local; a time of day is the latest
    that has been."""
    with suppress(Invalid):
        return Since(age=parse_duration(text, "since") / bounds.SECOND)
    try:
        if _CLOCK.fullmatch(text):
            day = now.replace(tzinfo=None).date().isoformat()
            at = datetime.fromisoformat(f"{day}T{text.zfill(len(text) + (text[1] == ':'))}")
            at = at.astimezone()
            return Since(at=(at if at <= now else at - timedelta(days=1)).timestamp())
        return Since(at=datetime.fromisoformat(text).astimezone().timestamp())
    except (ValueError, OverflowError, OSError):
        return None
