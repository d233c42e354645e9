"""Kills: agents, supervisors and servers, by SIGKILL, SIGTERM, and SIGSTOP past the lease; and
links between them that lose everything for a while.

Knows pids and files and asks no server anything, so that no absence holds it up. Never hurts what
is being hurt already. The number of kills follows the number of stops, whatever their pace, and
most of them come in the middle of one.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from cede.model import bounds
from tests.agent.relay import DOWN, UP, Relay
from tests.soak.agents import Agent
from tests.soak.servers import Server, Servers

LOOK = 0.1
AWAY = (0.1, 2.5)  # seconds until what was killed comes back
FROZEN = (6.0, 16.0)  # seconds of SIGSTOP, or of a link that loses; the lease is shorter
# A supervisor is frozen for less than killing may take: it is what enforces the lease.
BRIEF = (0.2, 1.5)
# More than LOST_MAX losses fail a request for good, by design. Leases that run out on a busy
# machine are losses too, and are not counted here.
LOSSES_MOST = bounds.LOST_MAX - 4
LINK_PART = 0.3  # of the faults, where there are links
TARGETS = {"agent": 55, "supervisor": 25, "server": 20}
WAYS = {
    "agent": {signal.SIGKILL: 45, signal.SIGTERM: 25, signal.SIGSTOP: 30},
    "supervisor": {signal.SIGKILL: 70, signal.SIGTERM: 10, signal.SIGSTOP: 20},
    "server": {signal.SIGKILL: 50, signal.SIGTERM: 25, signal.SIGSTOP: 25},
}


Kind = TypeVar("Kind")


@dataclass(eq=False)
class Link:
    """A network, and the agents whose heartbeats go through it."""

    relay: Relay
    agents: list[Agent]


@dataclass
class Faults:
    agents: list[Agent]
    servers: Servers
    wanted: int
    part: Callable[[], float]  # how much of the soak is over, from 0 to 1
    dice: random.Random
    links: Sequence[Link] = ()
    done: Counter[tuple[str, str]] = field(default_factory=Counter)
    _losses: Counter[str] = field(default_factory=Counter)
    # Who comes back when.
    _away: dict[Agent | Server | Link | int, float] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Kill and bring back until told to end; then everything runs again."""
        next_at = 0.0
        while not self._over.wait(LOOK):
            now = time.monotonic()
            self._bring_back(now)
            if now >= next_at and self.done.total() < self.wanted * self.part():
                self._hurt(now)
                next_at = now + self.dice.uniform(0, 1.5)
        self._bring_back(float("inf"))

    def end(self) -> None:
        self._over.set()

    def _bring_back(self, now: float) -> None:
        processes: list[Agent | Server] = [*self.agents, *self.servers.all]
        for each in processes:
            # Told to end, it took its time; or it ended by itself, as a frozen writer does.
            if each not in self._away and each.has_ended():
                each.start()
        for who in [who for who, at in self._away.items() if at <= now]:
            del self._away[who]
            if isinstance(who, int):
                with suppress(ProcessLookupError):
                    os.kill(who, signal.SIGCONT)
            elif isinstance(who, Link):
                who.relay.heal()
            else:
                who.signal(signal.SIGCONT)
                if who.has_ended():
                    who.start()

    def _hurt(self, now: float) -> None:
        if self.links and self.dice.random() < LINK_PART:
            self._lose_link(now)
            return
        target = self._draw(TARGETS)
        way = self._draw(WAYS[target])
        if target == "supervisor":
            hurt = self._hurt_supervisor(way, now)
        elif target == "agent":
            hurt = self._hurt_process(self.agents, way, now)
        else:
            hurt = self._hurt_process(self.servers.all, way, now)
        if hurt:
            self.done[(target, way.name)] += 1

    def _lose_link(self, now: float) -> None:
        link = self.dice.choice(self.links)
        if link in self._away or not self._may_lose(link.agents):
            return
        directions = self.dice.choice([(UP,), (DOWN,), (UP, DOWN)])
        link.relay.lose(*directions)
        self._away[link] = now + self.dice.uniform(*FROZEN)
        self.done[("link", " and ".join(directions))] += 1

    def _may_lose(self, silent: list[Agent]) -> bool:
        """Whether what these agents run may be lost once more; it is counted as lost then."""
        lost = [who for each in silent for who in each.supervisors().values()]
        if any(self._losses[each] >= LOSSES_MOST for each in lost):
            return False
        self._losses.update(lost)
        return True

    def _draw(self, weights: dict[Kind, int]) -> Kind:
        return self.dice.choices(list(weights), list(weights.values()))[0]

    def _hurt_process(
        self, among: Sequence[Agent | Server], way: signal.Signals, now: float
    ) -> bool:
        free = [each for each in among if each not in self._away]
        if not free:
            return False
        chosen = self.dice.choice(free)
        if chosen.has_ended():
            return False
        silent = [chosen] if isinstance(chosen, Agent) else self.agents
        if way is signal.SIGSTOP and not self._may_lose(silent):
            return False
        chosen.signal(way)
        times = FROZEN if way is signal.SIGSTOP else AWAY
        self._away[chosen] = now + self.dice.uniform(*times)
        return True

    def _hurt_supervisor(self, way: signal.Signals, now: float) -> bool:
        # Beside an agent that runs: it is what notices.
        free = [each for each in self.agents if each not in self._away and not each.has_ended()]
        found = {pid: who for agent in free for pid, who in agent.supervisors().items()}
        pids = [
            pid
            for pid, who in found.items()
            if pid not in self._away and self._losses[who] < LOSSES_MOST
        ]
        if not pids:
            return False
        pid = self.dice.choice(sorted(pids))
        with suppress(ProcessLookupError):
            os.kill(pid, way)
        if way is signal.SIGSTOP:
            self._away[pid] = now + self.dice.uniform(*BRIEF)
        elif way is signal.SIGKILL:
            self._losses[found[pid]] += 1
        return True
