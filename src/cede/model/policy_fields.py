"""The fields of a policy as people write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from cede.model import bounds
from cede.model.amounts import parse_amount, parse_amounts
from cede.model.durations import parse_duration
from cede.model.errors import Invalid, choices
from cede.model.node import parse_labels
from cede.model.policy import OF_POLICY, Home, Kind, Mode
from cede.model.settings import parse_flag, parse_own, parse_ratio, parse_weight
from cede.model.subject import parse_name
from cede.model.terms import parse_class

# A volume is what its flow fills; these are the parts that document 003's system names.
_INTEGRAL_TYPES = ("none", "burst", "relaxed")
_INTEGRAL_AMOUNTS = ("resource_flow", "burst_guarantee_resources")
_INTEGRAL_FLAGS = ("can_accept_free_volume", "should_distribute_free_volume_among_children")
_MULTIPLIER = "relaxed_share_multiplier_limit"
_INTEGRAL = ("guarantee_type", *_INTEGRAL_AMOUNTS, _MULTIPLIER, *_INTEGRAL_FLAGS)


def parse_fields(given: Mapping[str, object]) -> dict[str, Any]:
    """Those of a policy's fields that are given, by their own names; None is not given."""
    return {
        _OWN.get(name, name): _PARSERS[name](value)
        for name, value in given.items()
        if value is not None
    }


def _priority(value: object) -> int:
    priority = parse_amount(value, "priority")
    if priority > bounds.PRIORITY_MAX:
        raise Invalid("priority", f"must be from 0 to {bounds.PRIORITY_MAX}, not {priority}")
    return priority


def _word(words: type[StrEnum], field: str) -> Callable[[object], StrEnum]:
    def parse(value: object) -> StrEnum:
        try:
            return words(value)  # type: ignore[arg-type]
        except ValueError:
            raise Invalid(field, f"must be {' or '.join(words)}, not {value!r:.80}") from None

    return parse


def _settings(value: object) -> dict[str, Any]:
    return parse_own(value, OF_POLICY, "a policy")


def parse_integral(value: object) -> dict[str, Any]:
    """A guarantee over time: how fast it fills, and the most it gives at once."""
    if not isinstance(value, Mapping):
        raise Invalid("integral", f"must be a map of {', '.join(_INTEGRAL)}")
    for name in value:
        if name not in _INTEGRAL:
            raise Invalid(f"integral.{name}", f"unknown; {choices(name, _INTEGRAL)}")
    kind = value.get("guarantee_type", "none")
    if kind not in _INTEGRAL_TYPES:
        known = " or ".join(_INTEGRAL_TYPES)
        raise Invalid("integral.guarantee_type", f"must be {known}, not {kind!r:.80}")
    made: dict[str, Any] = {"guarantee_type": kind}
    for name in _INTEGRAL_AMOUNTS:
        if name in value:
            made[name] = parse_amounts(value[name], f"integral.{name}")
    for name in _INTEGRAL_FLAGS:
        if name in value:
            made[name] = parse_flag(value[name], f"integral.{name}")
    if _MULTIPLIER in value:
        most = bounds.MULTIPLIER_MAX
        made[_MULTIPLIER] = parse_ratio(
            value[_MULTIPLIER], f"integral.{_MULTIPLIER}", least=1, most=most
        )
    return made


def _home(value: object) -> Home | None:
    """Its own nodes; an empty map or list is no home."""
    if isinstance(value, Mapping):
        if any(isinstance(each, int) for each in value.values()):
            raise Invalid("home", "must be labels of nodes; amounts of its own are `reserved`")
        return Home(labels=parse_labels(value, "home")) if value else None
    if isinstance(value, Sequence) and not isinstance(value, str):
        if len(value) > bounds.HOME_NODES_MAX:
            raise Invalid("home", f"at most {bounds.HOME_NODES_MAX} names, not {len(value)}")
        return None if not value else Home(names=tuple(parse_name(each, "home") for each in value))
    raise Invalid("home", "must be labels of nodes, or a list of their names")


# What people call it, where that is not its own name.
_OWN = {"type": "kind"}
_PARSERS: dict[str, Callable[[object], Any]] = {
    "priority": _priority,
    "reserved": lambda value: parse_amounts(value, "reserved"),
    "limit": lambda value: parse_amounts(value, "limit"),
    "weight": parse_weight,
    "mode": _word(Mode, "mode"),
    "settings": _settings,
    "integral": parse_integral,
    "type": _word(Kind, "type"),
    "max_class": lambda value: parse_class(value, "max_class"),
    "allow_sensitive": lambda value: parse_flag(value, "allow_sensitive"),
    "home": _home,
    "allow_lending": lambda value: parse_flag(value, "allow_lending"),
    "allow_borrowing": lambda value: parse_flag(value, "allow_borrowing"),
    "max_borrow_pct": lambda value: parse_ratio(value, "max_borrow_pct", most=1_000),
    "return_grace": lambda value: parse_duration(value, "return_grace"),
}
FIELDS = tuple(_PARSERS)
