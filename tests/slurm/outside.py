"""Outside jobs take and free nodes while requests pass: nothing is oversubscribed, and nothing that
fits stays idle for long.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from cede.bridge.slurm_text import hosts, machines
from tests.slurm import tally
from tests.slurm.faults import STEP
from tests.slurm.world import OVER, World

REQUESTS = 200
WAIT = 900.0
GPUS = 4
# Looks are compared with each other: Slurm, the server and the bridge are seen one after the other.
SAMPLE = 0.2
POLL = 2.0


class Crowd:
    """Others, who submit and cancel as they like."""

    def __init__(self, world: World, seed: int) -> None:
        self._world, self._dice = world, random.Random(seed)
        self.submitted = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._act, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        self._thread.join()

    def _act(self) -> None:
        slurm, dice = self._world.slurm, self._dice
        while not self._end.is_set():
            node, gpus = dice.choice(slurm.names), dice.choice((1, 2, 4))
            wrap = f"--wrap=sleep {dice.choice((1, 2, 3))}"
            slurm.try_run(
                *("sbatch", "-w", node, f"--gres=gpu:{gpus}", "-J", "outside"),
                *("-o", "/dev/null", wrap),
            )
            self.submitted += 1
            self._end.wait(dice.uniform(0.5, 2.0))


class Watch:
    """Looks at Slurm itself, again and again, and notes what must not be."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._idle: dict[str, float] = {}
        self.over: list[str] = []
        self.longest = 0.0
        self.times_idle = 0

    def until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT
        while not done():
            assert time.monotonic() < deadline, self._world.story()
            # In this order: who is granted between the two looks waits no more at the second.
            used, wanted = self._used(), self._wanted()
            self.note(used, wanted, self._waits(), time.monotonic())
            time.sleep(SAMPLE)

    def note(self, used: Mapping[str, int], wanted: set[str], waits: bool, now: float) -> None:
        """A node is idle when some of it is free in Slurm, no job there waits for that node, and a
        request waits at cede.
        """
        self.over += [f"{node}: {n}" for node, n in used.items() if n > GPUS]
        for node, n in used.items():
            if waits and n < GPUS and node not in wanted:
                began = self._idle.setdefault(node, now)
                self.times_idle += began == now
                self.longest = max(self.longest, now - began)
            else:
                self._idle.pop(node, None)

    def _used(self) -> dict[str, int]:
        text = self._world.slurm.try_run("scontrol", "-o", "-d", "show", "nodes")
        return {m.name: m.held.get("gpu", 0) for m, _ in machines(text, {}, {})}

    def _wanted(self) -> set[str]:
        text = self._world.slurm.try_run("squeue", "-h", "-t", "PD,CF,CG", "-o", "%n|%N")
        return {
            host for line in text.splitlines() for part in line.split("|") for host in hosts(part)
        }

    def _waits(self) -> bool:
        return bool(list(self._world.client.requests.list(status=["queued"], limit=1)))


@contextmanager
def crowd(world: World, seed: int) -> Iterator[Crowd]:
    made = Crowd(world, seed)
    made.start()
    try:
        yield made
    finally:
        made.stop()


def run(world: World, requests: int = REQUESTS, seed: int = 1) -> dict[str, Any]:
    world.pool()
    world.up()
    world.policy("red")
    notes = world.home / "notes"
    argv = (sys.executable, "-S", str(STEP), str(notes), "0.2")
    watch = Watch(world)
    with crowd(world, seed) as others:
        mine = [world.submit(*argv, gpus=1) for _ in range(requests)]

        def done() -> bool:
            left = world.client.requests.list(status=["queued", "allocated"], limit=1)
            return not list(left)

        watch.until(done)
    ended = [world.get(each)["status"] for each in mine]
    assert ended.count("released") == requests, [each for each in ended if each not in OVER]
    assert not watch.over, watch.over
    assert not tally.twice(notes), tally.twice(notes)
    assert not tally.overlaps(notes), tally.overlaps(notes)
    assert watch.longest <= 2 * POLL, watch.longest
    return {
        "requests": requests,
        "outside jobs": others.submitted,
        "times idle": watch.times_idle,
        "longest idle": round(watch.longest, 2),
        "two polls": 2 * POLL,
    }
