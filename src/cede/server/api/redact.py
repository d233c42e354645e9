"""What a token that is bound to subjects must not read about others (C4).

Reasons, stories and events name who holds, who is served first and to whom capacity is promised: by
the ids of requests and the names of policies. To a tenant everybody else is "another team": the
numbers and the rule stay, the names go.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

from cede.server.api.json_type import Json

ANOTHER = "another team"
OTHERS = "other teams"

# Our own ids (uuid7), also as the first part of an allocation's.
_ID = re.compile(r"([0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})(?:\.\d+)?")
_SEVERAL = re.compile(rf"{ANOTHER}(?:, {ANOTHER})+")


def request(shown: Json) -> None:
    """Clean a request that is about to be shown; what its owner wrote itself stays as it is."""
    if shown["reason"] is not None:
        shown["reason"] = clean(shown["reason"], {shown["id"]})


def event(shown: Json) -> None:
    """Clean an event: its data may carry a reason."""
    shown["data"] = clean(shown["data"], {shown["request_id"]})


def clean(value: Any, seen: Collection[str]) -> Any:
    """Any answer, all the way down; `seen` are the ids that the caller may see."""
    if isinstance(value, dict):
        cleaned = {key: clean(inner, seen) for key, inner in value.items()}
        # A row about somebody's holding: the policy is as telling as the request.
        if "policy" in cleaned and "request" in value and value["request"] not in seen:
            cleaned["policy"] = ANOTHER
        return cleaned
    if isinstance(value, list | tuple):
        return [clean(each, seen) for each in value]
    if isinstance(value, str):
        found = _ID.sub(lambda each: each[0] if each[1] in seen else ANOTHER, value)
        return _SEVERAL.sub(OTHERS, found)
    return value


def ids_in(value: Any) -> Iterator[str]:
    """Every id of a request that an answer mentions."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from ids_in(inner)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from ids_in(each)
    elif isinstance(value, str):
        yield from _ID.findall(value)
