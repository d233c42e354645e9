"""Whether running work should save itself now, although nobody stops it.

A checkpoint costs the time in which nodes write instead of compute, and storage. It is worth what
would be lost without it: by a failure, or because others wait for these nodes and saved work parts
faster. Both are GPU-seconds, with a rate for storage and for waiters. It is due when it is worth
more than it costs: not sooner than the least interval after the last one, nor later than the
greatest.

Nodes write side by side, so the time does not depend on how many there are and the cost is in
proportion to them. Work on borrowed nodes can be sent away by their owner at any time: that risk is
added to that of a failure, so it saves sooner.

Only `auto` work is asked. Others see to it themselves, or cannot.
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
    """All that the question depends on, of one holder."""

    now: int
    started_at: int | None
    last_checkpoint_at: int | None = None
    checkpoint: Checkpoint = Checkpoint.AUTO
    estimate: int | None = None  # how long its application says that saving takes
    nodes: int = 1
    gpus_per_node: int = 0
    preemption_class: int = 0
    borrowed: bool = False
    sensitive: bool = False


@dataclass(frozen=True, slots=True)
class Pressure:
    """All that it depends on, of the pool around it."""

    waiting_higher: int = 0  # waiters of a higher class
    backlog: float = 0.0  # from 0 to 1
    failure_probability: float = 0.001


CALM = Pressure()


def backlog(waiting: int, running: int) -> float:
    """How much waits behind what runs: 1 for as many, or more."""
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
    """When a checkpoint becomes due if nothing else changes, so that nobody has to look before;
    None: never.
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
    # Worth more, not as much: one millisecond later.
    return since + max(least, math.floor(missing * SECOND / rate) + 1)


def _rate(running: Running, pressure: Pressure, settings: BrokerSettings) -> float:
    """What a second of unsaved work adds to the value."""
    risk = pressure.failure_probability
    if running.borrowed:
        risk += settings.reclaim_risk
    return max(1, running.nodes) * _gpus(running) * risk


def _wanted(running: Running, pressure: Pressure) -> float:
    """The value of leaving quickly: higher classes wait, or simply many."""
    yielding = 1 - running.preemption_class / CLASS_MAX
    waiting = pressure.waiting_higher * WAITING_VALUE * yielding
    return waiting + pressure.backlog * max(1, running.nodes) * BACKLOG_VALUE


def _unsaved(running: Running) -> float:
    """Seconds of work that a failure now would lose."""
    since = _saved_at(running)
    return 0.0 if since is None else max(0, running.now - since) / SECOND


def _saved_at(running: Running) -> int | None:
    """Since when its work is unsaved; None if there is none yet."""
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
