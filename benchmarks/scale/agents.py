"""Many agents in one process, over the real protocol: each has a connection of its own, and is
always in one heartbeat, which the server answers when something is new for its node or the period
is over.
"""

from __future__ import annotations

import json
import select
from time import perf_counter, process_time

from benchmarks.load import Connection, call_bytes
from benchmarks.scale.filling import node_name

_PATH = "/api/v1/agent/heartbeat"


class Agent:
    """One node's agent: what it has seen, and since when it waits for an answer."""

    def __init__(self, address: tuple[str, int], token: str, number: int, wait: float) -> None:
        self.connection = Connection(address)
        self.wait = wait
        self._token = token
        self._name = node_name(number)
        self._seen = {"epoch": 0, "index": 0, "seen": 0}
        self.quiet = False  # whether the server may wait: it has told this agent everything

    def beat(self) -> None:
        wait = self.wait if self.quiet else 0
        said = {"protocol": 2, "boot": self._name, "session": self._name, "wait": wait}
        self.connection.send_next(iter([call_bytes("POST", _PATH, self._token, said | self._seen)]))

    def answer(self) -> float | None:
        """How late an answer with nothing new is, once all of it is there; None for others."""
        answer = self.connection.receive()
        if answer is None:
            return None
        status, body = answer
        assert status == 200, (status, body[:500])
        told = json.loads(body)
        waited = perf_counter() - self.connection.sent_at
        nothing_new = self.quiet and told["version"] == self._seen["seen"]
        self._seen = {"epoch": told["epoch"], "index": told["index"], "seen": told["version"]}
        self.quiet = True
        self.beat()
        return waited - self.wait if nothing_new else None


class Agents:
    """All of them. `late` has how late each answer was that brought nothing new."""

    def __init__(self, address: tuple[str, int], tokens: list[str], wait: float) -> None:
        self._poll = select.epoll()
        self._agents: dict[int, Agent] = {}
        self.late: list[float] = []
        self.answers = 0
        for number, token in enumerate(tokens):
            agent = Agent(address, token, number, wait)
            agent.beat()
            while not agent.quiet:  # until it is known: a stranger may open few connections
                agent.answer()
            handle = agent.connection.socket.fileno()
            self._agents[handle] = agent
            self._poll.register(handle, select.EPOLLIN)
            self._hear(0)  # who is there goes on: the server closes a connection that rests

    def serve(self, seconds: float) -> float:
        """Be alive for so long; the processor seconds that it took here."""
        began, until = process_time(), perf_counter() + seconds
        while (left := until - perf_counter()) > 0:
            self._hear(left)
        return process_time() - began

    def _hear(self, seconds: float) -> None:
        """The answers that are there, or come in so many seconds."""
        for handle, _ in self._poll.poll(seconds):
            late = self._agents[handle].answer()
            self.answers += 1
            if late is not None:
                self.late.append(max(late, 0.0))

    def close(self) -> None:
        for agent in self._agents.values():
            agent.connection.socket.close()
        self._poll.close()
