"""Removes the names of others from answers to a token that is bound to subjects (C4).

Reasons and events name holders, waiters that are served first, and waiters to which capacity is
promised: by the ids of requests and the names of policies. To a tenant every other one is "another
team": the numbers and the rule stay, the names go.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Set
from typing import Any

from cede.engine.state.state import State
from cede.model.ids import ID
from cede.model.reason import Code
from cede.model.token import name_in
from cede.server.api.auth import Caller
from cede.server.api.json_type import Json

ANOTHER = "another team"
OTHERS = "other teams"

_ID_LENGTH = 36
# Claimants in the list of nodes of the reason `nodes_claimed`.
_FOR_WHOM = re.compile(r"\(for (.+?)\)(?=, |$)")
_SEVERAL = re.compile(rf"{ANOTHER}(?:, {ANOTHER})+")


def request(shown: Json, beside: Set[str] = frozenset()) -> None:
    """Clean a request that is about to be shown; its owner's own words stay as they are, and so
    do the ids of requests that are shown `beside` it.
    """
    if shown["reason"] is not None:
        # Its dependencies were named by its owner.
        refs = (*shown["after"], *shown["after_any"])
        own = {shown["id"], shown["part_of"], *(each.partition("_")[0] for each in refs)} - {None}
        # Most name no request outside the list: it need not be copied for each of them.
        shown["reason"] = clean(shown["reason"], beside if own <= beside else own | beside)


def event(shown: Json) -> None:
    """Clean an event: its data may carry a reason."""
    shown["data"] = clean(shown["data"], {shown["request_id"]})


def clean(value: Any, seen: Collection[str]) -> Any:
    """Clean any answer, all the way down; `seen` are the ids that the caller may see."""
    if isinstance(value, dict):
        cleaned = {key: clean(inner, seen) for key, inner in _without_claimants(value).items()}
        # A row about another's holding: the policy is as telling as the request.
        if "policy" in cleaned and "request" in value and value["request"] not in seen:
            cleaned["policy"] = ANOTHER
        return cleaned
    if isinstance(value, list | tuple):
        return [clean(each, seen) for each in value]
    if isinstance(value, str):
        if len(value) < _ID_LENGTH and ANOTHER not in value:
            return value  # most are: looking for ids in a list of requests took half of its time
        found = ID.sub(lambda each: each[0] if each[1] in seen else ANOTHER, value)
        return _SEVERAL.sub(OTHERS, found)
    return value


def seen_by(caller: Caller, state: State, value: Any) -> Any:
    """Return any answer as this caller may see it: living requests of its own keep their names."""
    if caller.bound is None:
        return value
    known = (state.requests.get(each) for each in set(_ids_in(value)))
    return clean(value, {each.id for each in known if each and caller.sees(each.subject)})


def claimant(identity: str, caller: Caller) -> str:
    """Return the claimant's name, if the caller may know that there is such a token."""
    return name_in(identity) if caller.sees_identity(identity) else ANOTHER


def _without_claimants(value: Json) -> Json:
    """Remove claimants, which are always others, from a reason or a change: they are in a field,
    and again in the sentences made of it.
    """
    hidden = [str(value[key]) for key in ("claimant", "claimed_by") if value.get(key)]
    if value.get("code") == Code.NODES_CLAIMED:
        hidden += _FOR_WHOM.findall(str(value.get("nodes", "")))
    if not hidden:
        return value
    found = dict(value)
    for each in sorted(hidden, key=len, reverse=True):
        for key, inner in found.items():
            if isinstance(inner, str) and key != "code":
                found[key] = inner.replace(each, ANOTHER)
    return found


def _ids_in(value: Any) -> Iterator[str]:
    """Yield every id of a request that an answer mentions."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from _ids_in(inner)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _ids_in(each)
    elif isinstance(value, str):
        yield from ID.findall(value)
