"""Calls between hosts: lost, late, doubled, out of order, or cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.simulation.answers import Answer, Away
from tests.simulation.hosts import Host
from tests.simulation.world import World

# A call as it arrives at a host: what to do there, and what it answers.
Handle = Callable[[], Awaitable[Answer]]


class Network:
    def __init__(self, world: World) -> None:
        self._world = world
        self.loss = 0.0
        self.doubling = 0.0
        self.slowness = 0.02  # seconds that a message takes, on average

    def reaches(self, one: Host, other: Host) -> bool:
        return other.name not in one.unreachable and one.name not in other.unreachable

    async def call(self, from_: Host, to: Host, handle: Handle, timeout: float) -> Answer:
        """What `to` answers; raises Away after `timeout`, whatever became of the call."""
        loop = self._world.loop
        answered: asyncio.Future[Answer] = loop.create_future()

        def arrive() -> None:
            self._world.note("arrives", from_.name, to.name)
            if self.reaches(from_, to):
                task = loop.create_task(self._serve(from_, to, handle, answered))
                del task

        self._send(from_, to, arrive)
        if self._world.chance(self.doubling):
            self._send(from_, to, arrive)
        try:
            return await asyncio.wait_for(answered, timeout)
        except TimeoutError:
            raise Away(f"no answer from {to.name}") from None

    async def _serve(
        self, from_: Host, to: Host, handle: Handle, answered: asyncio.Future[Answer]
    ) -> None:
        def arrive(answer: Answer | None) -> None:
            self._world.note("answers", to.name, from_.name, answer.status if answer else "away")
            if not answered.done() and self.reaches(from_, to):
                if answer is None:
                    answered.set_exception(Away(f"{to.name} refuses the connection"))
                else:
                    answered.set_result(answer)

        try:
            found: Answer | None = await handle()
        except Away:
            found = None
        self._send(to, from_, lambda: arrive(found))

    def _send(self, from_: Host, to: Host, arrive: Callable[[], None]) -> None:
        world = self._world
        if world.chance(self.loss) or not self.reaches(from_, to):
            world.note("lost", from_.name, to.name)
            return
        world.loop.call_later(world.dice.expovariate(1 / self.slowness), arrive)
