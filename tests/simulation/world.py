"""What everything in one run shares: the seed's dice, the loop, the record of what happened."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

from tests.simulation.account import Account
from tests.simulation.hosts import Host
from tests.simulation.loop import VirtualLoop


class World:
    def __init__(self, seed: int, folder: Path) -> None:
        self.seed = seed
        self.folder = folder
        self.dice = random.Random(seed)
        self.loop = VirtualLoop()
        self.account = Account(self.loop.time)
        self.events = 0
        self.calm = False  # no fault happens any more
        self._trace = hashlib.sha256()
        self.lines: list[str] | None = None  # kept for whoever reads a run

    def note(self, *what: object) -> None:
        """One event of the simulation; the same seed gives the same ones."""
        self.events += 1
        line = f"{self.loop.time():.3f} {' '.join(map(str, what))}"
        self._trace.update(line.encode())
        if self.lines is not None:
            self.lines.append(line)

    @property
    def trace(self) -> str:
        return self._trace.hexdigest()

    def host(self, name: str) -> Host:
        # Clocks that differ by less than what leases allow for.
        rate = self.dice.uniform(0.997, 1.003)
        return Host(name, self.loop.time, rate, self.dice.uniform(100, 100_000))

    def chance(self, of: float) -> bool:
        """Whether a fault happens; never once the run is calm."""
        return not self.calm and self.dice.random() < of
