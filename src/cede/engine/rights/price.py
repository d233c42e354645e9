"""The price of stopping one holder, in parts, and the value of a waiter.

    price = checkpoint + recompute + remaining

The unit is a minute. Checkpoint: the time that saving takes. Recompute: the GPU-minutes that are
lost, of work that is not saved. Remaining: nothing without a walltime, little for work that has
just started, much for work that is nearly done.

The checkpoint part of an ml_training policy's work counts three times: document 004 gives that type
the checkpoint weight 0.15, and ordinary batch work 0.05. Of interactive work every part counts
half.

Which holder may be stopped for which waiter is decided elsewhere; only shields, which protect a
holder from every waiter, are here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from cede.model import bounds
from cede.model.bounds import MINUTE
from cede.model.policy import Kind
from cede.model.stopping import Checkpoint
from cede.model.terms import CLASS_MAX

AUTO_MINUTES = 5.0
NEARLY_DONE = 1000.0
JUST_STARTED = 1.0
JUST_STARTED_FRACTION = 0.1
BURST_FACTOR = 0.5


@dataclass(frozen=True, slots=True)
class PriceSettings:
    # The fraction of the walltime from which on work is nearly done.
    near_completion_fraction: float = bounds.NEAR_COMPLETION_FRACTION_DEFAULT
    interactive_discount: float = 0.5
    ml_checkpoint_factor: float = 3.0  # 0.15 against 0.05
    burst_discount: bool = False  # half the price, for a tenant above its target that may burst
    # Prices then change once a minute at most, and can be checked by hand.
    whole_minutes: bool = True


USUAL = PriceSettings()


@dataclass(frozen=True, slots=True)
class Stopping:
    """The values that a holder's price depends on. Instants and durations are in milliseconds."""

    now: int
    checkpoint: Checkpoint = Checkpoint.NONE
    started_at: int | None = None  # None: it has not started yet
    last_checkpoint_at: int | None = None
    estimate: int | None = None  # the time that saving takes, as its application says
    timeout: int = bounds.CHECKPOINT_TIMEOUT_DEFAULT
    walltime: int | None = None
    nodes: int = 1
    gpus_per_node: int = 0
    kind: Kind = Kind.HPC_BATCH
    bursting: bool = False  # its tenant is above its target and has a burst allowance


@dataclass(frozen=True, slots=True)
class Price:
    """The parts of a price, weighted and discounted."""

    checkpoint: float
    recompute: float
    remaining: float

    @property
    def total(self) -> float:
        return self.checkpoint + self.recompute + self.remaining


def price_of(stopping: Stopping, settings: PriceSettings = USUAL) -> Price:
    factor = _factor(stopping, settings)
    training = stopping.kind is Kind.ML_TRAINING
    weight = settings.ml_checkpoint_factor if training else 1.0
    return Price(
        checkpoint=_saving(stopping) * weight * factor,
        recompute=_lost(stopping, settings) * factor,
        remaining=_remaining(stopping, settings) * factor,
    )


def saving_minutes(
    checkpoint: Checkpoint,
    estimate: int | None = None,
    timeout: int = bounds.CHECKPOINT_TIMEOUT_DEFAULT,
) -> float | None:
    """The time that a checkpoint should take; None for work that is not saved.

    `auto` work has no better estimate than 5 minutes. `manual` work takes what it needs, up to its
    time-out.
    """
    if checkpoint is Checkpoint.NONE:
        return None
    if estimate is not None:
        return max(0, estimate) / MINUTE
    return AUTO_MINUTES if checkpoint is Checkpoint.AUTO else timeout / MINUTE


def _saving(stopping: Stopping) -> float:
    return saving_minutes(stopping.checkpoint, stopping.estimate, stopping.timeout) or 0.0


def _lost(stopping: Stopping, settings: PriceSettings) -> float:
    if stopping.checkpoint is not Checkpoint.NONE or stopping.started_at is None:
        return 0.0
    # Work that is not asked may have saved itself. An earlier attempt's checkpoint is what this one
    # began with.
    since = max(stopping.started_at, stopping.last_checkpoint_at or stopping.started_at)
    width = stopping.nodes * max(1, stopping.gpus_per_node)
    return _minutes(stopping.now - since, settings) * width


def _remaining(stopping: Stopping, settings: PriceSettings) -> float:
    walltime = _minutes(stopping.walltime or 0, settings)
    if walltime <= 0:
        return 0.0
    started = stopping.now if stopping.started_at is None else stopping.started_at
    used = _minutes(stopping.now - started, settings) / walltime
    if used >= settings.near_completion_fraction:
        return NEARLY_DONE
    return JUST_STARTED if used < JUST_STARTED_FRACTION else 100 * used


def _minutes(milliseconds: int, settings: PriceSettings) -> float:
    minutes = max(0, milliseconds) / MINUTE
    return math.trunc(minutes) if settings.whole_minutes else minutes


def _factor(stopping: Stopping, settings: PriceSettings) -> float:
    factor = settings.interactive_discount if stopping.kind is Kind.INTERACTIVE else 1.0
    return factor * BURST_FACTOR if settings.burst_discount and stopping.bursting else factor


def value_of(
    walltime: int | None,
    preemption_class: int,
    nodes: int = 1,
    gpus_per_node: int = 0,
    sensitive: bool = False,
) -> float:
    """The most that a waiter's victims may cost together: its GPU-minutes, and once more for each
    class. A waiter without a walltime, or a sensitive one, may cost anything.
    """
    if walltime is None or sensitive:
        return math.inf
    return walltime / MINUTE * nodes * max(1, gpus_per_node) * (1 + preemption_class)


class Shield(StrEnum):
    """Why a holder is never stopped, whatever its price."""

    SENSITIVE = "sensitive"
    UNSAVED = "unsaved"
    NEAR_COMPLETION = "near_completion"


@dataclass(frozen=True, slots=True)
class ShieldSettings:
    near_completion_threshold: int = 5 * MINUTE  # before the walltime's end; 0: off
    protect_unsaved: bool = True  # work that is never saved, from class 7 on


UNSAVED_CLASS = 7
USUAL_SHIELDS = ShieldSettings()


def shield_of(
    stopping: Stopping,
    preemption_class: int,
    sensitive: bool = False,
    settings: ShieldSettings = USUAL_SHIELDS,
) -> Shield | None:
    """The shield that protects a holder from every waiter, if any: document 004's list."""
    if sensitive or preemption_class >= CLASS_MAX or stopping.kind is Kind.SENSITIVE:
        return Shield.SENSITIVE
    is_unsaved = stopping.checkpoint is Checkpoint.NONE and preemption_class >= UNSAVED_CLASS
    if settings.protect_unsaved and is_unsaved:
        return Shield.UNSAVED
    return Shield.NEAR_COMPLETION if _is_ending(stopping, settings) else None


def _is_ending(stopping: Stopping, settings: ShieldSettings) -> bool:
    if not settings.near_completion_threshold:
        return False
    if stopping.walltime is None or stopping.started_at is None:
        return False
    left = stopping.started_at + stopping.walltime - stopping.now
    return left <= settings.near_completion_threshold
