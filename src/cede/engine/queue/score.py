"""The order of waiters of equal standing: nine factors, weighted by the type of policy.

    score = budget penalty x sum of weight x factor

Higher comes first. Each factor is a function of plain values; an unknown one is 0.5, so that it is
neither gain nor loss. Weights are used as they are, and need not add up to 1. Every factor is at
most 1 except the waiting time: in the end that decides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

from cede.model.bounds import SECOND
from cede.model.policy import Kind
from cede.model.terms import CLASS_MAX

UNKNOWN = 0.5
WAIT_REFERENCE = 3600.0  # seconds
# A tenant may burst only while less than this part of all nodes is in use.
BUSY = 0.8


@dataclass(frozen=True, slots=True)
class Factors:
    """The nine factors, in the order of their weights."""

    priority: float = 0.0
    wait_time: float = 0.0
    fair_share: float = UNKNOWN
    topology: float = UNKNOWN
    data_readiness: float = UNKNOWN
    backlog: float = 0.0
    energy: float = UNKNOWN
    checkpoint_efficiency: float = 0.0
    conformance: float = UNKNOWN


@dataclass(frozen=True, slots=True)
class Weights:
    """The weight of each factor. The defaults are for policies without a profile."""

    priority: float = 0.20
    wait_time: float = 0.20
    fair_share: float = 0.20
    topology: float = 0.15
    data_readiness: float = 0.10
    backlog: float = 0.05
    energy: float = 0.0
    checkpoint_efficiency: float = 0.0
    conformance: float = 0.10


DEFAULT = Weights()
PROFILES: Mapping[Kind, Weights] = {
    Kind.HPC_BATCH: Weights(0.15, 0.20, 0.20, 0.15, 0.10, 0.05, 0.0, 0.05, 0.10),
    # The checkpoint weight is document 004's; its system's own table has 0.10.
    Kind.ML_TRAINING: Weights(0.10, 0.10, 0.10, 0.25, 0.15, 0.05, 0.05, 0.15, 0.10),
    Kind.SERVICE: Weights(0.15, 0.05, 0.10, 0.05, 0.10, 0.05, 0.10, 0.10, 0.30),
    Kind.SENSITIVE: Weights(0.90, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.10),
    Kind.INTERACTIVE: Weights(0.10, 0.30, 0.10, 0.0, 0.05, 0.15, 0.0, 0.0, 0.30),
}


def score(factors: Factors, weights: Weights, penalty: float = 1.0) -> float:
    """The weighted sum, times the budget's `penalty`."""
    pairs = zip(astuple(weights), astuple(factors), strict=True)
    total: float = sum(weight * factor for weight, factor in pairs)
    return penalty * total


def priority(preemption_class: int) -> float:
    return preemption_class / CLASS_MAX


def wait_time(submitted_at: int, now: int, reference: float = WAIT_REFERENCE) -> float:
    """Grows without bound, ever more slowly: an hour is 0.7, a week 5.1."""
    return math.log1p(max(0, now - submitted_at) // SECOND / reference)


def fair_share(
    target: float | None, actual: float, burst: float | None = None, utilization: float = 1.0
) -> float:
    """The part of a tenant's target that it does not have. While many nodes are idle, the target of
    a tenant that may burst is higher.
    """
    if target is None or target <= 0:
        return UNKNOWN
    if burst is not None and utilization < BUSY:
        target *= 1 + burst * (BUSY - utilization) / BUSY
    return max(0.0, (target - actual) / target)


def topology(
    nodes: int, groups: int, localities: Sequence[float] = (), same_numa: bool = False
) -> float:
    """The preference for few groups of nodes, and for memory near to its users. `localities` are
    those of the request's nodes, or of all known nodes.
    """
    between = 0.7 if nodes > 1 else 0.3
    return between * _apart(nodes, groups) + (1 - between) * _within(localities, same_numa)


def _apart(nodes: int, groups: int) -> float:
    if groups == 0:
        return UNKNOWN
    needed = max(1, math.ceil(nodes / groups))
    return 1 - min(1.0, needed / groups)


def _within(localities: Sequence[float], same_numa: bool) -> float:
    mean = sum(localities) / len(localities) if localities else UNKNOWN
    return min(1.0, mean * 1.2) if same_numa else mean


def memory_locality(attached: Sequence[int] | None) -> float:
    """The part of a node's CPUs and GPUs that its largest memory domain has. One number per domain;
    None if unknown.
    """
    if attached is None:
        return UNKNOWN
    if len(attached) <= 1:
        return 1.0
    total = sum(attached)
    return max(attached) / total if total else UNKNOWN


def data_readiness(fraction: float | None) -> float:
    """The part of the input that can be read fast."""
    return UNKNOWN if fraction is None else fraction


def backlog(queued_hours: float, running_hours: float) -> float:
    return min(1.0, queued_hours / running_hours) if running_hours > 0 else 0.0


def energy(price: float | None) -> float:
    """The preference for cheap hours; `price` is normalised: 0 is the cheapest hour, 1 the
    dearest.
    """
    return UNKNOWN if price is None else 1 - min(1.0, max(0.0, price))


def checkpoint_efficiency(saving_minutes: float | None) -> float:
    """The preference for fast checkpoints; None: work that is not saved."""
    return 0.0 if saving_minutes is None else 1 / (1 + saving_minutes)


def conformance(largest: int | None, nodes: int) -> float:
    """The largest group of free nodes with one fingerprint, relative to the requested nodes; at
    most 1, so that no size outweighs waiting.
    """
    if nodes == 0:
        return 1.0
    return UNKNOWN if largest is None else min(1.0, largest / nodes)
