"""Settings of starvation and preemption: of a pool, overridden down its tree.

A policy overrides any setting that it may name. A request may only be more patient and less
protected: it raises time-outs and lowers its tolerance and its protection, never the reverse.
Durations are milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from cede.engine.fair.tree import Kind, Numbers
from cede.model.errors import Invalid
from cede.model.policy import OF_POLICY
from cede.model.terms import OF_REQUEST

MINUTE = 60_000


@dataclass(frozen=True, slots=True)
class FairSettings:
    """A full set of settings, with the names of document 003."""

    fair_share_starvation_timeout: int = MINUTE // 2
    fair_share_aggressive_starvation_timeout: int = 2 * MINUTE
    fair_share_starvation_tolerance: float = 0.8
    enable_absolute_fair_share_starvation_tolerance: bool = False
    enable_aggressive_starvation: bool = False
    enable_policy_starvation: bool = True
    allow_aggressive_preemption: bool = True
    allow_aggressive_preemption_for_gangs: bool = True
    preemption_satisfaction_threshold: float = 1.0
    aggressive_preemption_satisfaction_threshold: float = 0.2
    consider_allocation_on_fair_share_bound_preemptible: bool = False
    # Empty: protects nothing. If set, keys that it does not name are unbounded.
    non_preemptible_resource_usage_threshold: Numbers = field(default_factory=dict)

    def __post_init__(self) -> None:
        _refuse_negative(self, "fair_share_starvation_timeout")
        if self.fair_share_aggressive_starvation_timeout < self.fair_share_starvation_timeout:
            raise Invalid(
                "fair_share_aggressive_starvation_timeout",
                f"{self.fair_share_aggressive_starvation_timeout} ms is below "
                f"fair_share_starvation_timeout, {self.fair_share_starvation_timeout} ms",
            )
        if not 0 <= self.fair_share_starvation_tolerance <= 1:
            raise Invalid("fair_share_starvation_tolerance", "must be from 0 to 1")
        if not self.preemption_satisfaction_threshold > 0:
            raise Invalid("preemption_satisfaction_threshold", "must be above 0")
        _refuse_negative(self, "aggressive_preemption_satisfaction_threshold")
        if (
            self.aggressive_preemption_satisfaction_threshold
            > self.preemption_satisfaction_threshold
        ):
            raise Invalid(
                "aggressive_preemption_satisfaction_threshold",
                f"{self.aggressive_preemption_satisfaction_threshold} is above "
                f"preemption_satisfaction_threshold, {self.preemption_satisfaction_threshold}",
            )


def _refuse_negative(settings: FairSettings, name: str) -> None:
    if getattr(settings, name) < 0:
        raise Invalid(name, "must not be below 0")


def inherit(above: FairSettings, own: Mapping[str, Any], kind: Kind) -> FairSettings:
    """The settings of an element below `above` that overrides `own`."""
    allowed = OF_POLICY if kind is Kind.POLICY else OF_REQUEST
    known = [each.name for each in fields(FairSettings)]
    for name in own:
        if name not in known:
            raise Invalid(f"settings.{name}", f"unknown; a {kind} may set {', '.join(allowed)}")
        if name not in allowed:
            raise Invalid(f"settings.{name}", f"may not be set by a {kind}")
    if not own:
        return above
    said = dict(own) if kind is Kind.POLICY else _modest(above, own)
    if "fair_share_starvation_timeout" in said:
        # The aggressive time-out is the pool's alone; an element starves aggressively no sooner
        # than it starves.
        said["fair_share_aggressive_starvation_timeout"] = max(
            above.fair_share_aggressive_starvation_timeout, said["fair_share_starvation_timeout"]
        )
    return replace(above, **said)


def _modest(above: FairSettings, own: Mapping[str, Any]) -> dict[str, Any]:
    said = dict(own)
    timeout, tolerance, threshold = OF_REQUEST
    if timeout in said:
        said[timeout] = max(said[timeout], above.fair_share_starvation_timeout)
    if tolerance in said:
        said[tolerance] = min(said[tolerance], above.fair_share_starvation_tolerance)
    if threshold in said:
        said[threshold] = _lesser(above.non_preemptible_resource_usage_threshold, said[threshold])
    return said


def _lesser(a: Numbers, b: Numbers) -> Numbers:
    if not a or not b:
        return {}
    every = {**a, **b}
    return {key: min(a.get(key, every[key]), b.get(key, every[key])) for key in every}
