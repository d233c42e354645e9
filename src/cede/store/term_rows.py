"""Rows of what few policies and few requests say: everything beside amounts and priority.

Who says nothing has NULL: one byte. The rest are maps of what differs from the usual, so that a
field that comes later needs no new column, and one that nobody uses costs nothing.
"""

from __future__ import annotations

from typing import Any

from cede.model.policy import Home, Kind, Policy
from cede.model.subject import Subject
from cede.model.terms import CLASS_DEFAULT, USUAL, Terms
from cede.store.json_text import decode, encode

# What has a column of its own is not among these.
FURTHER = (
    "settings",
    "integral",
    "kind",
    "max_class",
    "allow_sensitive",
    "home",
    "allow_lending",
    "allow_borrowing",
    "max_borrow_pct",
    "return_grace",
)
_USUAL_POLICY = Policy("", "", Subject("team", ""), 0, {}, {})


def further_text(policy: Policy) -> str | None:
    """What a policy says beside its amounts, its priority and its place in the tree."""
    said = {
        name: _plain(getattr(policy, name))
        for name in FURTHER
        if getattr(policy, name) != getattr(_USUAL_POLICY, name)
    }
    return encode(said) if said else None


def further_from(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    said: dict[str, Any] = decode(text)
    if "kind" in said:
        said["kind"] = Kind(said["kind"])
    if "home" in said:
        labels, names = said["home"]
        said["home"] = Home(labels, tuple(names))
    return said


def _plain(value: Any) -> Any:
    return (dict(value.labels), value.names) if isinstance(value, Home) else value


def class_number(terms: Terms) -> int | None:
    return None if terms.preemption_class == CLASS_DEFAULT else terms.preemption_class


def terms_text(terms: Terms) -> str | None:
    """What of the terms of a request nobody filters by."""
    weight = () if terms.weight == USUAL.weight else (terms.weight,)  # rows from before have none
    if not (terms.sensitive or terms.limit or terms.settings or weight):
        return None
    return encode((terms.sensitive, dict(terms.limit), dict(terms.settings), *weight))


def terms_from(preemption_class: int | None, tenant: str | None, text: str | None) -> Terms:
    if preemption_class is None and tenant is None and text is None:
        return USUAL
    sensitive, *rest = (False, {}, {}) if text is None else decode(text)
    class_ = CLASS_DEFAULT if preemption_class is None else preemption_class
    return Terms(class_, sensitive, tenant or "", *rest)
