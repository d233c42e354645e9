"""The settings of a pool: how it decides. A preset is a full set, of which some may be
overridden.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from enum import StrEnum
from typing import Any

from cede.model import bounds
from cede.model.amounts import Amounts, parse_amounts
from cede.model.durations import parse_duration, seconds
from cede.model.errors import Invalid, choices, nearest, quoted


class Precedence(StrEnum):
    """Which comes first in standing: being in share, or rank."""

    RIGHTS_FIRST = "rights_first"
    RANK_FIRST = "rank_first"
    HOME_FIRST = "home_first"  # the highest class, then rights, then rank


class Rank(StrEnum):
    """The source of a rank: the priority of a policy, the class of a request, or nothing."""

    NONE = "none"
    PRIORITY = "priority"
    CLASS = "class"


class QueueOrder(StrEnum):
    """Which waiter of equal standing goes first: the oldest, or the one with the highest score."""

    AGE = "age"
    SCORE = "score"


class VictimOrder(StrEnum):
    """Whether, within equal rights, a lower rank goes before a lower price."""

    RANK_THEN_PRICE = "rank_then_price"
    PRICE = "price"


class Share(StrEnum):
    """A policy's share: what is reserved for it, or its fair share of everything."""

    RESERVED = "reserved"
    FAIR_SHARE = "fair_share"


class OverLimit(StrEnum):
    """The treatment of work above a limit: it stays until it ends, or the newest is stopped."""

    DRAIN = "drain"
    PREEMPT = "preempt"


class Price(StrEnum):
    """Which of the holders that may be stopped are chosen: the newest; the fewest, and of equally
    few the newest; or those that cost the least to stop.
    """

    NEWEST = "newest"
    FEWEST = "fewest"
    CHECKPOINT = "checkpoint"


class Patience(StrEnum):
    """When a waiter may take: as soon as it cannot be granted, or once it starves."""

    NONE = "none"
    STARVATION = "starvation"


@dataclass(frozen=True, slots=True)
class Settings:
    """One pool's settings. Durations are milliseconds, and seconds wherever people write them."""

    precedence: Precedence = Precedence.RIGHTS_FIRST
    bypass_max: int = bounds.BYPASS_MAX_DEFAULT
    withhold_max: int = bounds.WITHHOLD_MAX_DEFAULT
    min_run: int = 0
    reclaim_min_run: int = 0
    grace: int = bounds.GRACE_DEFAULT
    node_lease: int = bounds.NODE_LEASE_DEFAULT  # how long work survives without its server
    share: Share = Share.RESERVED
    patience: Patience = Patience.NONE
    rank: Rank = Rank.PRIORITY
    class_bands: bool = False  # document 004's table decides which class takes from which
    order: QueueOrder = QueueOrder.AGE
    price: Price = Price.NEWEST
    victim_order: VictimOrder = VictimOrder.RANK_THEN_PRICE
    max_victims: int = 0  # for one waiter; 0: no bound
    per_victim_cost: float = 1.0
    victim_groups_max: int = bounds.VICTIM_GROUPS_DEFAULT
    value_bound: bool = False  # victims together must cost less than the waiter is worth
    burst_discount: bool = False  # half the price, of a tenant above its target that may burst
    count_free: bool = True  # free capacity counts toward what a waiter needs
    near_completion_threshold: int = 0  # work this close to the end of its walltime is not stopped
    # From this fraction of its walltime on, work is nearly done and expensive to stop.
    near_completion_fraction: float = bounds.NEAR_COMPLETION_FRACTION_DEFAULT
    protect_unsaved: bool = False  # work of class 7 or above that is never saved is not stopped
    wait_first: bool = False  # nothing is stopped for a waiter that starts as soon by itself
    fair_share_update_period: int = bounds.SHARES_PERIOD_DEFAULT
    fair_share_starvation_timeout: int = bounds.STARVATION_DEFAULT
    fair_share_aggressive_starvation_timeout: int = bounds.AGGRESSIVE_STARVATION_DEFAULT
    fair_share_starvation_tolerance: float = 0.8
    enable_absolute_fair_share_starvation_tolerance: bool = False
    enable_aggressive_starvation: bool = False
    enable_policy_starvation: bool = True
    allow_aggressive_preemption: bool = True
    allow_aggressive_preemption_for_gangs: bool = True
    preemption_satisfaction_threshold: float = 1.0
    aggressive_preemption_satisfaction_threshold: float = 0.5
    consider_allocation_on_fair_share_bound_preemptible: bool = False
    non_preemptible_resource_usage_threshold: Amounts = field(default_factory=dict)
    preemptive_scheduling_backoff: int = bounds.STAGE_BACKOFF_DEFAULT
    over_limit: OverLimit = OverLimit.DRAIN
    over_limit_grace: int = bounds.OVER_LIMIT_GRACE_DEFAULT
    gang_steps: bool = False  # the fair share of a gang is all or nothing
    improved_fit_factor: bool = False  # tied gangs get their shares one after the other
    broker: bool = False  # running work is asked to save itself when it is worth it
    checkpoint_interval_min: int = bounds.CHECKPOINT_INTERVAL_MIN_DEFAULT
    checkpoint_interval_max: int = bounds.CHECKPOINT_INTERVAL_MAX_DEFAULT
    # The cost of a unit of each key for an hour, for reports only.
    cost_per_hour: Mapping[str, float] = field(default_factory=dict)

    def override(self, given: object, at: str = "settings") -> Settings:
        """These settings with some replaced by outside data; unknown and impossible ones are
        refused.
        """
        if not isinstance(given, Mapping):
            raise Invalid(at, "must be a map of settings")
        known = {each.name for each in fields(Settings)}
        said = {}
        for written, value in given.items():
            name = _ALSO.get(written, written)
            if name not in known:
                raise Invalid(f"{at}.{written}", f"unknown setting; {choices(written, known)}")
            if name in said:
                raise Invalid(f"{at}.{written}", f"is the same as {name}; give one of them")
            said[name] = _parse(name, value, at)
        made = replace(self, **said)
        made.check(at)
        return made

    def check(self, at: str = "settings") -> None:
        """Refuse settings that contradict each other."""
        aggressive = "aggressive_preemption_satisfaction_threshold"
        if getattr(self, aggressive) > self.preemption_satisfaction_threshold:
            raise Invalid(f"{at}.{aggressive}", "is above preemption_satisfaction_threshold")
        timeout = "fair_share_aggressive_starvation_timeout"
        if getattr(self, timeout) < self.fair_share_starvation_timeout:
            raise Invalid(f"{at}.{timeout}", "is below fair_share_starvation_timeout")
        if not bounds.LEASE_MIN <= self.node_lease <= bounds.LEASE_MAX:
            least, most = bounds.LEASE_MIN // 1000, bounds.LEASE_MAX // 1000
            raise Invalid(f"{at}.node_lease", f"must be from {least} to {most} seconds")
        if self.checkpoint_interval_max < self.checkpoint_interval_min:
            raise Invalid(f"{at}.checkpoint_interval_max", "is below checkpoint_interval_min")

    @classmethod
    def stored(cls, given: Mapping[str, Any]) -> Settings:
        """Settings from their stored form, in inner units."""
        words = {name: kind(given[name]) for name, kind in _WORDS.items() if name in given}
        return cls(**{**given, **words})

    def differences(self, base: Settings) -> dict[str, Any]:
        """The settings that differ from `base`, in the units that people write."""
        return {
            each.name: self.shown(each.name)
            for each in fields(Settings)
            if getattr(self, each.name) != getattr(base, each.name)
        }

    def shown(self, name: str) -> Any:
        value = getattr(self, name)
        if name in DURATIONS:
            return seconds(value)
        return str(value) if name in _WORDS else value


DURATIONS = frozenset(
    {
        "withhold_max",
        "min_run",
        "reclaim_min_run",
        "grace",
        "node_lease",
        "fair_share_update_period",
        "fair_share_starvation_timeout",
        "fair_share_aggressive_starvation_timeout",
        "preemptive_scheduling_backoff",
        "over_limit_grace",
        "near_completion_threshold",
        "checkpoint_interval_min",
        "checkpoint_interval_max",
    }
)
# Document 003's names for settings of cede.
_ALSO = {"allocation_preemption_timeout": "grace"}
_DEFAULTS = {each.name: getattr(Settings(), each.name) for each in fields(Settings)}
_WORDS = {name: type(value) for name, value in _DEFAULTS.items() if isinstance(value, StrEnum)}
_RATIOS = {
    "fair_share_starvation_tolerance": 1.0,
    "preemption_satisfaction_threshold": 1_000.0,
    "aggressive_preemption_satisfaction_threshold": 1_000.0,
    "per_victim_cost": 1e9,
    "near_completion_fraction": 1.0,
}


def _parse(name: str, value: object, field: str) -> Any:
    at = f"{field}.{name}"
    if name in _WORDS:
        try:
            return _WORDS[name](value)  # type: ignore[arg-type]
        except ValueError:
            known = list(_WORDS[name])
            wrong = f"must be {' or '.join(known)}, not {value!r:.80}"
            raise Invalid(at, f"{wrong}; {nearest(value, known)}".rstrip("; ")) from None
    if name in DURATIONS:
        return parse_duration(value, at)
    if isinstance(_DEFAULTS[name], bool):
        return parse_flag(value, at)
    if name in _RATIOS:
        return parse_ratio(value, at, most=_RATIOS[name])
    if name == "cost_per_hour":
        return _parse_costs(value, at)
    if isinstance(_DEFAULTS[name], dict):
        return parse_amounts(value, at)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 1_000_000:
        raise Invalid(at, f"must be an integer from 0 to 1000000, not {value!r:.80}")
    return value


def _parse_costs(value: object, field: str) -> dict[str, float]:
    if not isinstance(value, Mapping):
        raise Invalid(
            field, f"must be a map of keys to numbers, such as gpu: 2.5, not {value!r:.80}"
        )
    parse_amounts(dict.fromkeys(value, 1), field)  # the keys
    most = bounds.HOURLY_COST_MAX
    return {key: parse_ratio(each, f"{field}.{key}", most=most) for key, each in value.items()}


def parse_flag(value: object, field: str) -> bool:
    if not isinstance(value, bool):
        raise Invalid(field, f"must be true or false, not {value!r:.80}")
    return value


def parse_own(given: object, allowed: tuple[str, ...], whose: str) -> dict[str, Any]:
    """Parsed settings of a policy or a request; only `allowed` ones may be set below a pool."""
    if not isinstance(given, Mapping):
        raise Invalid("settings", "must be a map of settings")
    for name in given:
        if name not in allowed:
            may = f"{whose} may set {', '.join(allowed)}"
            raise Invalid(f"settings.{name}", f"{nearest(name, allowed)} {may}".strip())
    return {name: _parse(name, value, "settings") for name, value in given.items()}


def shown_own(own: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a policy or a request in the units that people write."""
    return {name: seconds(value) if name in DURATIONS else value for name, value in own.items()}


def parse_ratio(value: object, field: str, *, least: float = 0.0, most: float) -> float:
    """A fraction or a weight: only these numbers are not integers."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise Invalid(field, f"must be a number, not {value!r:.80}")
    if not least <= value <= most:
        raise Invalid(field, f"must be from {least:g} to {most:g}, not {quoted(value)}")
    return float(value)
