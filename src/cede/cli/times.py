"""Times for people and for programs.

People see local times and ages. Programs get ISO 8601 with a zone. The instants of the API count
the seconds of the server's clock, which mean nothing elsewhere, so they are turned into times by
the one instant whose time is known: a request's submission.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

_ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")
_OF_ALLOCATION = ("allocated_at", "started_at", "ended_at", "deadline")
_UNITS = ((2 * 86_400, 86_400, "d"), (2 * 3_600, 3_600, "h"), (120, 60, "min"), (0, 1, "s"))


class Age(float):
    """Seconds, shown in the largest fitting unit; sorts as a number."""

    def __str__(self) -> str:
        seconds = max(0, round(self))
        unit, name = next((unit, name) for least, unit, name in _UNITS if seconds >= least)
        return f"{seconds // unit} {name}"


def local(text: str) -> str:
    """Format a time of the API as local time; return another text as it is."""
    if not _ISO.fullmatch(text):
        return text
    return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def age(text: str | None) -> Age | None:
    """Return how long ago a time of the API was."""
    if not text:
        return None
    return Age((datetime.now(UTC) - datetime.fromisoformat(text)).total_seconds())


def with_times(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request of the API with times instead of instants."""
    found = dict(request)
    if not found.get("created") or found.get("submitted_at") is None:
        return found
    created, submitted = datetime.fromisoformat(found["created"]), found["submitted_at"]

    def time(instant: float | None) -> str | None:
        if instant is None:
            return None
        then = created + timedelta(seconds=instant - submitted)
        return then.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    found["submitted_at"] = time(submitted)
    if found.get("saved"):
        found["saved"] = {**found["saved"], "at": time(found["saved"]["at"])}
    if held := found.get("allocation"):
        found["allocation"] = {**held, **{each: time(held[each]) for each in _OF_ALLOCATION}}
        for part, name in (("parting", "hinted_at"), ("asked", "asked_at")):
            if held.get(part):
                found["allocation"][part] = {**held[part], name: time(held[part][name])}
    return found
