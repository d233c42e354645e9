"""Whatever is lost, repeated or reordered, and wherever the agent dies: nothing is started twice,
nothing is forgotten, and in the end runs what the server wants.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cede.agent import machine as product
from cede.agent.machine import Job, Machine
from cede.agent.values import (
    Do,
    Event,
    Found,
    GoOn,
    Hint,
    Instruction,
    Key,
    Kind,
    Launch,
    Looked,
    Order,
    Orders,
    Stop,
)
from tests.agent.world import World

STEPS_MAX = 40


def history(seed: int, kind: type[Machine] = Machine) -> None:
    """One random history; most are short, because most mistakes need only a few steps."""
    dice = random.Random(seed)
    world, story = World(kind), []
    try:
        for _ in range(int(STEPS_MAX ** dice.random()) + 3):
            story.append(step(world, dice))
            world.check()
        world.heal_and_check()
    except Exception as error:
        error.add_note(f"seed {seed}: {', '.join(story)}")
        raise


def step(world: World, dice: random.Random) -> str:
    """Something happens; what is usual happens more often, so that histories come to something."""
    names = list(STEPS)
    name = dice.choices(names, [STEPS[each][0] for each in names])[0]
    needs, action = STEPS[name][1:]
    if needs == "agent" and world.machine is None:
        name, action = "restart", lambda world, _: world.restart()
    action(world, dice)
    return name


def exchange(world: World, _: random.Random) -> None:
    world.heartbeat()
    if world.machine is not None:
        world.deliver(len(world.on_the_way) - 1)


def deliver(world: World, dice: random.Random) -> None:
    if world.on_the_way:
        world.deliver(dice.randrange(len(world.on_the_way)), again=dice.random() < 0.5)


def change(world: World, dice: random.Random) -> None:
    if world.desired:
        key = dice.choice(list(world.desired))
        world.change(key, dice.choice(list(Do)), asks=dice.random() < 0.5)


def ask(world: World, dice: random.Random) -> None:
    """Work that runs is asked something else, and hears of it: else few would ever be."""
    running = [
        key for key in world.desired if key in world.supervisors and world.supervisors[key].alive
    ]
    if running:
        do = dice.choice([Do.RUN, Do.HINT])
        world.change(dice.choice(running), do, asks=dice.random() < 0.5)
        exchange(world, dice)


def drop(world: World, dice: random.Random) -> None:
    if world.desired:
        world.drop(dice.choice(list(world.desired)))


def supervisor_moves(world: World, dice: random.Random) -> None:
    alive = [key for key, each in world.supervisors.items() if each.alive]
    if alive:
        key = dice.choice(alive)
        is_new = world.supervisors[key].state == "new"
        (world.supervisor_starts if is_new else world.supervisor_ends)(key)


def new_writer(world: World, _: random.Random) -> None:
    world.epoch += 1


def disk(world: World, dice: random.Random) -> None:
    world.disk_is_full = dice.random() < 0.5


def launches_fail(world: World, dice: random.Random) -> None:
    world.launch_fails = dice.choice(["refused", "memory"])


def will_die(world: World, dice: random.Random) -> None:
    world.crash_in = dice.randrange(5)


def assign(world: World, dice: random.Random) -> None:
    world.assign(dice.choice("ab"), keeps=dice.random() < 0.2, looks=dice.random() < 0.3)


Step = Callable[[World, random.Random], None]

STEPS: dict[str, tuple[int, str, Step]] = {
    "exchange": (6, "agent", exchange),
    "assign": (4, "", assign),
    "keeper moves": (4, "", supervisor_moves),
    "heartbeat": (3, "agent", lambda w, dice: w.heartbeat(request_lost=dice.random() < 0.5)),
    "deliver": (3, "agent", deliver),
    "late arrives": (1, "", lambda w, _: w.late_arrives()),
    "change": (2, "", change),
    "ask": (3, "agent", ask),
    "drop": (1, "", drop),
    "time": (2, "", lambda w, dice: w.pass_time(dice.choice([0.1, 1.0, 7.0]))),
    "new writer": (1, "", new_writer),
    "disk": (1, "", disk),
    "launches fail": (2, "", launches_fail),
    "will die": (2, "agent", will_die),
    "dies": (1, "agent", lambda w, _: w.die()),
    "compact": (1, "agent", lambda w, _: w.compact()),
}


def test_nothing_starts_twice_and_nothing_is_forgotten() -> None:
    for seed in range(4000):
        history(seed)


class DoesNotWaitToBeToldWhereToGoOn(Machine):
    def _launch_ready(self) -> None:
        for job in self.jobs.values():
            job.order = replace(job.order, looks=False)
        super()._launch_ready()


class NeverSaysWhatItFound(Machine):
    def _on_looked(self, event: Looked) -> None:
        pass


class LaunchesBeforeTheEntryIsOnDisk(Machine):
    def _take_up(self, key: Key, order: Order) -> None:
        super()._take_up(key, order)
        self.jobs[key].phase = product.Phase.NOTED


class BelievesAnyWriter(Machine):
    def _on_orders(self, event: Orders) -> None:
        self.epoch = min(self.epoch, event.epoch)
        self.version = min(self.version, event.version)
        super()._on_orders(event)


class ForgetsWhatItRefused(Machine):
    def _refuse(self, job: Job, why: str) -> None:
        report = self._final(job, Kind.REFUSED, text=why)
        job.phase, job.final = product.Phase.ENDED, report
        self._report(report)


class StartsAnewAfterARestart(Machine):
    def _adopt(self, key: Key, order: Order, found: Any) -> None:
        super()._adopt(key, order, Found.NEVER)


class LetsTheUnnamedRun(Machine):
    def _drop(self, key: Key, job: Job) -> None:
        if job.phase not in product.ALIVE:
            super()._drop(key, job)


class SaysItOnce(Machine):
    def handle(self, event: Event, now: float) -> list[Instruction]:
        if isinstance(event, Orders):
            self.outbox.clear()
        return super().handle(event, now)


class SharesDevices(Machine):
    def _launch_ready(self) -> None:
        kept = {key: job.order for key, job in self.jobs.items()}
        for job in self.jobs.values():
            job.order = replace(job.order, devices=frozenset())
        super()._launch_ready()
        for key, job in self.jobs.items():
            job.order = kept[key]
        self._out[:] = [
            Launch(kept[each.order.key], each.deadline) if isinstance(each, Launch) else each
            for each in self._out
        ]


class StartsWithoutALease(Machine):
    def _launch_ready(self) -> None:
        before, self._now = self._now, -1.0
        super()._launch_ready()
        self._now = before


class StopsWhoeverIsOnlyAsked(Machine):
    def _hint(self, key: Key, job: Job, order: Order) -> None:
        super()._hint(key, job, replace(order, do=Do.HINT))


class NeverWithdraws(Machine):
    def _converse(self, key: Key, job: Job) -> None:
        if job.order.do is not Do.RUN or job.order.hint:
            super()._converse(key, job)


class WithdrawsWhenItIsRestarted(Machine):
    def _adopt(self, key: Key, order: Order, found: Any) -> None:
        super()._adopt(key, order, found)
        self.jobs[key].is_named = True


class KeepsToItsFirstHint(Machine):
    def _hint(self, key: Key, job: Job, order: Order) -> None:
        if not job.hint:
            super()._hint(key, job, order)


BUGS = [
    DoesNotWaitToBeToldWhereToGoOn,
    NeverSaysWhatItFound,
    LaunchesBeforeTheEntryIsOnDisk,
    BelievesAnyWriter,
    ForgetsWhatItRefused,
    StartsAnewAfterARestart,
    LetsTheUnnamedRun,
    SaysItOnce,
    SharesDevices,
    StartsWithoutALease,
    StopsWhoeverIsOnlyAsked,
    NeverWithdraws,
    WithdrawsWhenItIsRestarted,
    KeepsToItsFirstHint,
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_the_histories_find(bug: type[Machine]) -> None:
    with pytest.raises((AssertionError, KeyError)):
        for seed in range(4000):
            history(seed, bug)


def asked(world: World) -> tuple[Key, list[Instruction]]:
    """A task that runs and is asked to save itself and go on; what the machine does about it."""
    world.assign("a")
    [key] = world.desired
    world.heartbeat()
    world.deliver(0)
    world.supervisor_starts(key)
    world.change(key, Do.RUN, asks=True)
    return key, hear(world)


def hear(world: World) -> list[Instruction]:
    assert world.machine is not None
    world.heartbeat()
    answer = world.on_the_way.pop()
    done = world.machine.handle(answer, world.now)
    for each in done:
        world._do(each)
    return [each for each in done if isinstance(each, Hint | GoOn | Stop)]


def test_it_is_asked_once_and_told_when_nobody_waits_for_the_answer_any_more() -> None:
    world = World()
    key, done = asked(world)
    assert done == [Hint(key, world.hints, 60.0, goes_on=True)]
    world.version += 1
    assert hear(world) == []
    world.change(key, Do.RUN)
    assert hear(world) == [GoOn(key)]
    world.version += 1
    assert hear(world) == []


def test_a_stop_policy_takes_the_place_of_an_ask() -> None:
    world = World()
    key, _ = asked(world)
    world.change(key, Do.HINT)
    assert hear(world) == [Hint(key, world.hints, 60.0, goes_on=False)]
    world.change(key, Do.STOP)
    assert hear(world) == [Stop(key, 30.0)]


def test_an_agent_that_is_restarted_asks_at_most_once_more() -> None:
    """The conversation knows the number, and asks again only if it cannot know that it has."""
    world = World()
    key, done = asked(world)
    world.die()
    world.restart()
    assert hear(world) == done
    world.version += 1
    assert hear(world) == []
    world.die()
    world.restart()
    world.change(key, Do.RUN)
    assert hear(world) == [GoOn(key)]
