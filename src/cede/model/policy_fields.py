"""The kinds of a policy's structured fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cede.model import bounds
from cede.model.amounts import parse_amounts
from cede.model.errors import Invalid, choices
from cede.model.fields import Kind
from cede.model.node import parse_labels
from cede.model.settings import parse_flag, parse_own, parse_ratio, shown_own
from cede.model.subject import parse_name

# An integral guarantee's flow fills its volume; these are the parts that document 003's system
# names.
_INTEGRAL_TYPES = ("none", "burst", "relaxed")
_INTEGRAL_AMOUNTS = ("resource_flow", "burst_guarantee_resources")
_INTEGRAL_FLAGS = ("can_accept_free_volume", "should_distribute_free_volume_among_children")
_MULTIPLIER = "relaxed_share_multiplier_limit"
_INTEGRAL = ("guarantee_type", *_INTEGRAL_AMOUNTS, _MULTIPLIER, *_INTEGRAL_FLAGS)


# The fair-share settings that a policy may set for itself and the policies below it.
OF_POLICY = (
    "fair_share_starvation_timeout",
    "fair_share_starvation_tolerance",
    "enable_aggressive_starvation",
    "allow_aggressive_preemption",
    "non_preemptible_resource_usage_threshold",
)


@dataclass(frozen=True, slots=True)
class Home:
    """The nodes that are a policy's own, by label or by name."""

    labels: Mapping[str, str] = field(default_factory=dict)
    names: tuple[str, ...] = ()

    def has(self, name: str, labels: Mapping[str, str]) -> bool:
        if name in self.names:
            return True
        return bool(self.labels) and all(labels.get(k) == v for k, v in self.labels.items())


class OwnSettings(Kind):
    """The fair-share settings that a policy may set for itself."""

    __slots__ = ()

    def parse(self, value: object, name: str) -> dict[str, Any]:
        return parse_own(value, OF_POLICY, "a policy")

    def show(self, value: Any) -> Any:
        return shown_own(value)


class Guarantee(Kind):
    """A guarantee over time: how fast it fills, and the most it gives at once."""

    __slots__ = ()

    def parse(self, value: object, name: str) -> dict[str, Any]:
        return parse_integral(value)

    def show(self, value: Any) -> Any:
        return dict(value)


class HomeNodes(Kind):
    """A policy's own nodes: labels or names. An empty map or list means no home."""

    __slots__ = ()

    def parse(self, value: object, name: str) -> Home | None:
        if isinstance(value, Mapping):
            if any(isinstance(each, int) for each in value.values()):
                raise Invalid(name, "must be labels of nodes; amounts of its own are `reserved`")
            return Home(labels=parse_labels(value, name)) if value else None
        if isinstance(value, Sequence) and not isinstance(value, str):
            if len(value) > bounds.HOME_NODES_MAX:
                raise Invalid(name, f"at most {bounds.HOME_NODES_MAX} names, not {len(value)}")
            return Home(names=tuple(parse_name(each, name) for each in value)) if value else None
        raise Invalid(name, "must be labels of nodes, or a list of their names")

    def show(self, value: Any) -> Any:
        return dict(value.labels) or list(value.names)


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
