"""Rows of the fields that few policies and few requests set: all beside amounts and priority.

Without any it is NULL: one byte. The others are maps of the fields that differ from their defaults,
so that a later field needs no new column, and an unused one costs nothing.
"""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from typing import Any

from cede.model.fields import fields_of
from cede.model.policy import Home, Kind, Policy
from cede.model.terms import CLASS_DEFAULT, USUAL, Terms
from cede.store.arrays import array_of, from_array
from cede.store.json_text import decode, encode

_COLUMNS = ("priority", "reserved", "limit", "weight", "mode")  # of their own
FURTHER = tuple(each for each in fields_of(Policy) if each.attribute not in _COLUMNS)


def further_text(policy: Policy) -> str | None:
    """The set fields of a policy beside its amounts, its priority and its place in the tree."""
    said = {
        each.attribute: array_of(held) if isinstance(held, Home) else held
        for each in FURTHER
        if (held := getattr(policy, each.attribute)) != each.default
    }
    return encode(said) if said else None


def further_from(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    said: dict[str, Any] = decode(text)
    if "kind" in said:
        said["kind"] = Kind(said["kind"])
    if "home" in said:
        said["home"] = from_array(Home, said["home"])
    return said


def class_number(terms: Terms) -> int | None:
    return None if terms.preemption_class == CLASS_DEFAULT else terms.preemption_class


# In this order: `class` and `tenant` have columns, because requests are found by them.
_REST = tuple(
    each.name for each in fields(Terms) if each.name not in ("preemption_class", "tenant")
)
_rest = attrgetter(*_REST)
_USUAL_REST = _rest(USUAL)
# Rows of earlier versions have the first of them only; later ones are left out at their defaults.
_FIRST = 3


def terms_text(terms: Terms) -> str | None:
    """The terms of a request that no list filters by."""
    rest = list(_rest(terms))
    if rest == list(_USUAL_REST):
        return None
    while len(rest) > _FIRST and rest[-1] == _USUAL_REST[len(rest) - 1]:
        rest.pop()
    return encode(rest)


def terms_from(preemption_class: int | None, tenant: str | None, text: str | None) -> Terms:
    if preemption_class is None and tenant is None and text is None:
        return USUAL
    rest = () if text is None else decode(text)
    class_ = CLASS_DEFAULT if preemption_class is None else preemption_class
    return Terms(class_, tenant=tenant or "", **dict(zip(_REST, rest, strict=False)))
