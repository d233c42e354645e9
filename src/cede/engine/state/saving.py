"""The broker: whether running work should save itself now, without being stopped.

A checkpoint costs the time in which nodes write instead of compute, and storage. Its value is the
work that would be lost without it: by a failure, or because others wait for these nodes and saved
work stops faster. Both are GPU-seconds, with a rate for storage and for waiters. A checkpoint is
due when its value exceeds its cost: not sooner than the least interval after the last one, nor
later than the greatest.

Nodes write in parallel, so the time does not depend on their number and the cost is in proportion
to it. The owner of borrowed nodes can reclaim them at any time: that risk is added to that of a
failure, so borrowed work saves sooner.

Only `auto` work is asked; other work saves itself, or cannot.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cede.model.bounds import HOUR, MINUTE, SECOND
from cede.model.stopping import Checkpoint
from cede.model.terms import CLASS_MAX

GIB = 2**30
WAITING_VALUE = 100.0
BACKLOG_VALUE = 60.0


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    interval_min: int = 5 * MINUTE
    interval_max: int = 6 * HOUR
    sensitive_interval_min: int = 10 * MINUTE
    sensitive_interval_max: int = HOUR
    memory_per_node: int = 80 * GIB  # bytes to write
    bandwidth: float = 10.0 * GIB  # bytes a second, of one node
    cost_per_gib: float = 0.02
    reclaim_risk: float = 0.01  # of borrowed nodes, beside the risk of a failure


USUAL = BrokerSettings()


@dataclass(frozen=True, slots=True)
class Running:
    """The properties of a holder that the decision depends on."""

    now: int
    started_at: int | None
    last_checkpoint_at: int | None = None
    checkpoint: Checkpoint = Checkpoint.AUTO
    estimate: int | None = None  # the duration of a save, as its application says
    nodes: int = 1
    gpus_per_node: int = 0
    preemption_class: int = 0
    borrowed: bool = False
    sensitive: bool = False


@dataclass(frozen=True, slots=True)
class Pressure:
    """The properties of its pool that the decision depends on."""

    waiting_higher: int = 0  # waiters of a higher class
    backlog: float = 0.0  # from 0 to 1
    failure_probability: float = 0.001


CALM = Pressure()


def backlog(waiting: int, running: int) -> float:
    """The number of waiters over that of holders, at most 1."""
    return min(1.0, waiting / max(1, running))


@dataclass(frozen=True, slots=True)
class Judgement:
    cost: float
    value: float
    is_due: bool

    @property
    def is_worth_it(self) -> bool:
        return self.value > self.cost


def judge(
    running: Running, pressure: Pressure = CALM, settings: BrokerSettings = USUAL
) -> Judgement:
    lost = _unsaved(running) * _rate(running, pressure, settings)
    due = due_at(running, pressure, settings)
    return Judgement(
        cost=cost_of(running, settings),
        value=lost + _wanted(running, pressure),
        is_due=due is not None and running.now >= due,
    )


def cost_of(running: Running, settings: BrokerSettings = USUAL) -> float:
    """The time to write, the GPUs that wait meanwhile, and the storage."""
    seconds = _writing(running, settings)
    if math.isinf(seconds):
        return math.inf
    storage = settings.memory_per_node * running.nodes / GIB * settings.cost_per_gib
    return seconds + seconds * running.nodes * _gpus(running) + storage


def due_at(
    running: Running, pressure: Pressure = CALM, settings: BrokerSettings = USUAL
) -> int | None:
    """The instant at which a checkpoint becomes due if nothing else changes, so that no check is
    needed before; None if never.
    """
    since = _saved_at(running)
    if since is None or running.checkpoint is not Checkpoint.AUTO:
        return None
    least, most = _intervals(running, settings)
    missing = cost_of(running, settings) - _wanted(running, pressure)
    if missing < 0:
        return since + least
    rate = _rate(running, pressure, settings)
    if missing * SECOND >= most * rate:
        return since + most
    # The value must exceed the cost, so one millisecond later.
    return since + max(least, math.floor(missing * SECOND / rate) + 1)


def _rate(running: Running, pressure: Pressure, settings: BrokerSettings) -> float:
    """The value that a second of unsaved work adds."""
    risk = pressure.failure_probability
    if running.borrowed:
        risk += settings.reclaim_risk
    return max(1, running.nodes) * _gpus(running) * risk


def _wanted(running: Running, pressure: Pressure) -> float:
    """The value of a fast stop: waiters of higher classes, or many waiters."""
    yielding = 1 - running.preemption_class / CLASS_MAX
    waiting = pressure.waiting_higher * WAITING_VALUE * yielding
    return waiting + pressure.backlog * max(1, running.nodes) * BACKLOG_VALUE


def _unsaved(running: Running) -> float:
    """Seconds of work that a failure now would lose."""
    since = _saved_at(running)
    return 0.0 if since is None else max(0, running.now - since) / SECOND


def _saved_at(running: Running) -> int | None:
    """The instant since when its work is unsaved; None before its start."""
    if running.started_at is None:
        return None
    return max(running.started_at, running.last_checkpoint_at or 0)


def _writing(running: Running, settings: BrokerSettings) -> float:
    if running.estimate is not None:
        return max(0, running.estimate) / SECOND
    if settings.bandwidth <= 0:
        return math.inf
    return settings.memory_per_node / settings.bandwidth


def _intervals(running: Running, settings: BrokerSettings) -> tuple[int, int]:
    if running.sensitive:
        return settings.sensitive_interval_min, settings.sensitive_interval_max
    return settings.interval_min, settings.interval_max


def _gpus(running: Running) -> int:
    return max(1, running.gpus_per_node)
