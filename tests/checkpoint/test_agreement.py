"""Tasks of a gang save at one step, whatever the speeds and delays; nobody waits for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cede.checkpoint.agreement import HORIZON, PATIENCE, Agreement, Pace

FAR = 1e9


@dataclass
class Mailbox:
    """Files that somebody passes on: what was written last arrives last, however late."""

    sent: list[tuple[float, int]] = field(default_factory=list)

    def put(self, at: float, step: int) -> None:
        last = self.sent[-1][0] if self.sent else 0.0
        self.sent.append((max(at, last), step))

    def read(self, now: float) -> int | None:
        return next((step for at, step in reversed(self.sent) if at <= now), None)


class Task:
    def __init__(self, noticed: float, total: int | None = None) -> None:
        self.noticed = noticed  # when the hint is there
        self.total = total
        self.deadline = FAR
        self.pace = Pace()
        self.agreement: Agreement | None = None
        self.inbox = Mailbox()
        self.answers: list[int] = []
        self.saved: list[int] = []

    def call(self, done: int, now: float) -> bool:
        """What `checkpoint.step(done)` does; whether it saves."""
        self.pace.note(done, now)
        if now < self.noticed:
            self.saved += [done] if done == self.total else []
            return False
        if self.agreement is None:
            self.agreement = Agreement(1, now, self.pace)
        before, agreed = self.agreement.reach, self.inbox.read(now)
        is_due = self.agreement.should_save(
            done, now, deadline=self.deadline, agreed=agreed, total=self.total
        )
        if self.agreement.reach is not None and self.agreement.reach != before:
            self.answers.append(self.agreement.reach)
        if is_due or done == self.total:
            self.saved.append(done)
            self.agreement.save(done, f"{done:06d}-1")
        return is_due


class Server:
    """Takes the largest answer once all have come, and tells every task, each after a while."""

    def __init__(self, tasks: list[Task], delay: Callable[[], float]) -> None:
        self.tasks = tasks
        self.delay = delay
        self.outboxes = [Mailbox() for _ in tasks]
        self.agreed: int | None = None

    def hear(self, index: int, now: float) -> None:
        self.outboxes[index].put(now + self.delay(), self.tasks[index].answers[-1])

    def decide(self, now: float) -> None:
        answers = [outbox.read(now) for outbox in self.outboxes]
        if None in answers:
            return
        agreed = max(answer for answer in answers if answer is not None)
        if agreed != self.agreed:
            self.agreed = agreed
            for task in self.tasks:
                task.inbox.put(now + self.delay(), agreed)


def common(tasks: list[Task]) -> set[int]:
    return set.intersection(*(set(task.saved) for task in tasks))


def run(
    tasks: list[Task],
    server: Server,
    seconds: Callable[[int], float],
    *,
    lockstep: bool,
    stride: int = 1,
    calls_max: int = 20_000,
) -> float:
    """Let them work until all have saved at the agreed step; the time it took.

    In lockstep nobody begins a step before all have ended the one before.
    """
    clocks = [0.0] * len(tasks)
    done = [0] * len(tasks)
    for _ in range(calls_max):
        index = min(range(len(tasks)), key=lambda each: done[each] if lockstep else clocks[each])
        task = tasks[index]
        if done[index] == task.total:  # it is over
            clocks[index] = math.inf
            if all(each.total == count for each, count in zip(tasks, done, strict=True)):
                return max(filter(math.isfinite, clocks), default=0.0)
            continue
        if lockstep and index == 0:
            clocks = [max(clocks)] * len(tasks)
        clocks[index] += seconds(index)
        done[index] += stride
        now = clocks[index]
        server.decide(now)
        heard = len(task.answers)
        if task.call(done[index], now):
            saving = 5 * seconds(index)
            clocks[index] += saving
            task.pace.rest(saving)
        if len(task.answers) > heard:
            server.hear(index, now)
        if server.agreed is not None and server.agreed in common(tasks):
            return now
    raise AssertionError(f"no end: {[(task.answers[-3:], task.saved[-3:]) for task in tasks]}")


seeds = st.integers(min_value=0, max_value=2**32)


@given(
    seed=seeds,
    count=st.integers(2, 5),
    step_seconds=st.sampled_from([0.05, 0.2, 1.0, 20.0]),
    delay=st.sampled_from([0.01, 0.5, 3.0, 10.0]),
    lockstep=st.booleans(),
    stride=st.sampled_from([1, 1, 7]),
)
def test_all_save_at_one_step(
    seed: int, count: int, step_seconds: float, delay: float, lockstep: bool, stride: int
) -> None:
    dice = Random(seed)
    tasks = [Task(noticed=dice.uniform(0, 3)) for _ in range(count)]
    paces = [step_seconds * (1.0 if lockstep else dice.uniform(0.5, 2)) for _ in tasks]
    server = Server(tasks, lambda: dice.uniform(0, delay))
    run(
        tasks,
        server,
        lambda index: paces[index] * dice.uniform(0.5, 1.5),
        lockstep=lockstep,
        stride=stride,
    )
    assert common(tasks)
    most = 4 + math.log2(1 + (2 * delay + step_seconds) / HORIZON)
    for task in tasks:
        assert len(task.answers) <= most, (task.answers, most)
        assert task.answers == sorted(set(task.answers))
        assert len(task.saved) <= sum(len(each.answers) for each in tasks)


@given(seed=seeds, total=st.integers(1, 60), noticed=st.floats(0, 3))
def test_at_the_last_step_all_have_the_same_at_the_latest(
    seed: int, total: int, noticed: float
) -> None:
    dice = Random(seed)
    tasks = [Task(noticed=noticed * dice.random(), total=total) for _ in range(3)]
    server = Server(tasks, lambda: dice.uniform(0, 4))
    run(tasks, server, lambda index: 0.1, lockstep=True)
    assert common(tasks)
    assert all(answer <= total for task in tasks for answer in task.answers)


@given(seed=seeds, time=st.floats(1, 100), step_seconds=st.floats(0.05, 5))
def test_without_an_agreed_step_each_saves_in_time_and_once(
    seed: int, time: float, step_seconds: float
) -> None:
    """The host answers nothing, as if its server were away."""
    dice = Random(seed)
    task = Task(noticed=0.0)
    task.deadline = time
    now, saves = 0.0, []
    for done in range(1, 10_000):
        now += step_seconds * dice.uniform(0.5, 1.5)
        if task.call(done, now):
            saves.append(now)
        if now > 2 * time + 30:
            break
    first = saves[0]
    assert len(saves) == 1
    assert PATIENCE * time <= first <= PATIENCE * time + 2 * 1.5 * step_seconds


def agreement(**changes: bool) -> Agreement:
    return Agreement(1, 0.0, Pace(), **changes)


def ask(agreement: Agreement, done: int, now: float, agreed: int | None) -> bool:
    return agreement.should_save(done, now, deadline=100.0, agreed=agreed, total=None)


def test_under_a_host_of_an_older_version_it_saves_at_once_and_once() -> None:
    alone = agreement(is_hosted=False)
    assert ask(alone, 7, 0.0, None) and alone.wants(7)
    alone.save(7, "000007-1")
    assert not ask(alone, 8, 0.1, None)


def test_it_saves_again_when_the_agreed_step_moves_on() -> None:
    one = agreement()
    assert not ask(one, 1, 0.0, None) and one.reach == 2
    assert ask(one, 2, 0.1, 2)
    one.save(2, "000002-1")
    assert one.settled == "000002-1"
    assert not ask(one, 3, 0.2, 2), "it is answered"
    assert not ask(one, 4, 0.3, 6) and one.settled == ""
    assert ask(one, 6, 0.4, 6)
    one.save(6, "000006-1")
    assert one.settled == "000006-1"


def test_a_failed_save_is_made_good_at_a_later_step() -> None:
    pace = Pace()
    one = Agreement(1, 0.0, pace)
    ask(one, 1, 0.0, None)
    assert ask(one, 2, 0.1, 2) and ask(one, 2, 0.1, 2), "as long as it is not there"
    assert not ask(one, 3, 0.2, 2)
    assert one.reach == 2, "its pace is not known"
    pace.note(3, 0.25)
    pace.note(4, 0.5)
    assert not ask(one, 4, 0.5, 2)
    assert one.reach == 13
    assert ask(one, 13, 2.75, 13)


def test_an_interval_that_hit_the_agreed_step_before_it_was_known_counts() -> None:
    one = agreement()
    ask(one, 1, 0.0, None)
    one.save(5, "000005-1")
    assert not ask(one, 6, 0.1, 5)
    assert one.settled == "000005-1"


def test_it_looks_ahead_by_what_it_does_in_the_horizon_and_twice_as_far_each_time() -> None:
    pace = Pace()
    one = Agreement(1, 0.0, pace)
    reaches = []
    now, done = 0.0, 0
    while len(reaches) < 4:
        now, done = now + 0.125, done + 1  # 8 a second, exactly
        pace.note(done, now)
        if done <= 16:
            continue
        one.should_save(done, now, deadline=FAR, agreed=None, total=None)
        if not reaches or one.reach != reaches[-1][1]:
            reaches.append((done, one.reach))
    assert [(reach or 0) - done for done, reach in reaches] == [17, 33, 65, 129]


@pytest.mark.parametrize("seconds", [0.001, 0.25])
def test_a_pace_is_an_average_and_a_save_is_no_part_of_it(seconds: float) -> None:
    pace, now = Pace(), 0.0
    assert pace.per_second() == 0.0
    for done in range(2000):
        now += seconds
        pace.note(done, now)
    assert pace.per_second() == pytest.approx(1 / seconds, rel=0.01)
    for done in range(2000, 2200):
        now += seconds
        pace.note(done, now)
        if done % 3 == 0:
            pace.rest(0.3)
            now += 0.3
    assert pace.per_second() == pytest.approx(1 / seconds, rel=0.01)
    pace.note(5, now)
    assert pace.per_second() == 0.0, "it counts anew"
