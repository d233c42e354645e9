"""A node: its processes and what is on its disk outlive the agent; its agent is the real machine
between a simulated network, disk and supervisors.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass, replace
from typing import Any

from cede.agent import wire
from cede.agent.identity import Identity, confirmed
from cede.agent.machine import Machine
from cede.agent.values import (
    Ended,
    Entry,
    Event,
    Forget,
    Found,
    Heard,
    Hint,
    Instruction,
    Journal,
    JournalFailed,
    Journalled,
    Key,
    Kind,
    Launch,
    Look,
    Looked,
    Order,
    Over,
    Remember,
    Removed,
    Report,
    Restarted,
    Send,
    SetDeadline,
    Started,
    Stop,
    Taken,
    Tick,
)
from cede.model import bounds
from tests.simulation.answers import Answer, Away
from tests.simulation.cluster import Cluster
from tests.simulation.hosts import Host

TICK = 0.5
TIMEOUT = 10.0
PAUSE_FIRST, PAUSE_MAX = 0.1, 10.0
RETAINED = 30


class Crash(Exception):
    """The agent's process ended here."""


@dataclass(eq=False)
class Supervisor:
    """One attempt's processes, with the devices that they use."""

    order: Order
    deadline: float | None
    begun_at: float
    runs: bool = False
    ended: Ended | None = None
    stop_at: float | None = None
    saves_at: float | None = None
    hint: int = 0
    ends_at: float = 0.0

    @property
    def alive(self) -> bool:
        return self.ended is None


class Node:
    """One machine: what it has, its disk, and its processes."""

    def __init__(self, cluster: Cluster, name: str, devices: int, join: str) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.name = name
        self.host: Host = self.world.host(name)
        self.devices = tuple(str(number) for number in range(devices))
        self.join = join
        self.supervisors: dict[Key, Supervisor] = {}
        # The disk
        self.known = Identity()
        self.entries: list[Entry] = []
        self.is_full = False
        self.agent: Agent | None = None
        self.task = self.world.loop.create_task(self._live())

    async def _live(self) -> None:
        """The supervisors, which look at the clock themselves."""
        while True:
            await asyncio.sleep(0.1 / self.host.rate)
            for key, each in list(self.supervisors.items()):
                if each.alive:
                    self._watch(key, each)

    def _watch(self, key: Key, each: Supervisor) -> None:
        now = self.host.seconds()
        if not each.runs and now >= each.begun_at:
            each.runs = True
            self._tell(Started(key))
        if each.deadline is not None and now >= each.deadline:
            self._end(key, each, 137, "lease")
        elif each.stop_at is not None and now >= each.stop_at:
            self._end(key, each, 143, "")
        elif each.saves_at is not None and now >= each.saves_at:
            each.saves_at = None
            saved = self.cluster.account.saved(each.order)
            self.world.note("saves", self.name, key.directory, saved)
            report = Report(
                key, each.order.attempt, Kind.SAVED, checkpoint=saved, size=1, hint=each.hint
            )
            self._tell(Heard(report))
        elif each.runs and now >= each.ends_at:
            self._end(key, each, 0, "")

    def _end(self, key: Key, each: Supervisor, code: int, cause: str) -> None:
        each.ended = Ended(key, code, cause)
        self.cluster.account.stopped(each.order)
        self.world.note("ends", self.name, key.directory, code)
        self._tell(each.ended)

    def _tell(self, event: Event) -> None:
        if self.agent is not None:
            self.agent.tell(event)

    def launch(self, order: Order, deadline: float | None) -> None:
        account, now, dice = self.cluster.account, self.host.seconds(), self.world.dice
        account.launched(self.name, order)
        begins = now + dice.uniform(0.01, 0.2)
        lasts = dice.expovariate(1 / dice.choice((5, 20, 120)))
        self.supervisors[order.key] = Supervisor(order, deadline, begins, ends_at=begins + lasts)
        self.world.note("launches", self.name, order.key.directory)

    def start_agent(self) -> None:
        if self.agent is None:
            self.world.note("agent starts", self.name)
            self.agent = Agent(self)
            self.agent.begin()

    def reboot(self) -> None:
        """Everything that runs ends; the disk stays."""
        if self.agent is not None:
            self.agent.die()
        self.world.note("reboots", self.name)
        self.host.boot += 1
        for key, each in self.supervisors.items():
            if each.alive:
                each.ended = Ended(key, None, "infrastructure")
                self.cluster.account.stopped(each.order)


class Agent:
    def __init__(self, node: Node, known: Identity | None = None) -> None:
        self.node = node
        self.world = node.world
        self.machine = Machine(retained=RETAINED)
        self.alive = True
        self.frozen = False
        self.crash_in: int | None = None
        self.heartbeat = 2.0
        self._leader = ""  # the server that answered last
        self.index = 0
        self._inbox: deque[Event] = deque()
        self._news = asyncio.Event()
        self._joined = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._known = known or node.known
        session = f"{self.world.dice.getrandbits(128):032x}"
        self._known = replace(self._known, next_session=self._known.next_session or session)
        self.index = self._known.index

    def begin(self) -> None:
        found: dict[Key, Found | Ended] = {}
        over = {e.report.key for e in self.node.entries if isinstance(e, Over)}
        for entry in self.node.entries:
            if isinstance(entry, Taken) and entry.order.key not in over:
                found[entry.order.key] = self._found(entry.order.key)
        self.tell(Restarted(tuple(self.node.entries), found, self._known.epoch))
        for key, each in list(self.node.supervisors.items()):
            if each.alive and each.runs:
                self.tell(Started(key))
        for work in (self._listen(), self._report(), self._tick()):
            if self.alive:
                self._tasks.append(self.world.loop.create_task(work))
            else:
                work.close()

    def _found(self, key: Key) -> Found | Ended:
        each = self.node.supervisors.get(key)
        if each is None:
            return Found.NEVER
        return Found.ALIVE if each.ended is None else each.ended

    def die(self) -> None:
        if self.alive:
            self.world.note("agent dies", self.node.name)
            self.alive = False
            if self.node.agent is self:
                self.node.agent = None
            for task in self._tasks:
                task.cancel()

    # Events and instructions

    def tell(self, event: Event) -> None:
        """One event, and all that follows from it, unless the agent dies on the way."""
        if self.frozen:
            self._inbox.append(event)
            return
        events = deque([event])
        try:
            while events:
                self.world.note("hears", self.node.name, type(event).__name__)
                for each in self.machine.handle(events.popleft(), self.node.host.seconds()):
                    self._maybe_die()
                    if (result := self._do(each)) is not None:
                        events.append(result)
        except Crash:
            self.die()

    def thaw(self) -> None:
        self.frozen = False
        while self._inbox and self.alive and not self.frozen:
            self.tell(self._inbox.popleft())

    def _maybe_die(self) -> None:
        if self.crash_in is not None:
            self.crash_in -= 1
            if self.crash_in < 0:
                raise Crash

    def _do(self, instruction: Instruction) -> Event | None:
        node = self.node
        match instruction:
            case Journal(entry):
                return self._write(entry)
            case Launch(order, deadline):
                node.launch(order, deadline)
            case Look(order):
                found = node.cluster.account.checkpoints(order.request)
                return Looked(order.key, found[: bounds.CHECKPOINTS_KNOWN_MAX])
            case Remember(epoch):
                self._remember(replace(self._known, epoch=epoch, index=self.index))
            case SetDeadline(key, deadline):
                if key in node.supervisors:
                    node.supervisors[key].deadline = deadline
            case Hint(key, number, seconds_left, _):
                self._hint(node.supervisors[key], number, seconds_left)
            case Stop(key, grace):
                each = node.supervisors[key]
                if each.stop_at is None:
                    least = node.host.seconds()
                    each.stop_at = least + self.world.dice.uniform(0, min(grace, 5))
            case Forget(key):
                if key in node.supervisors and node.supervisors[key].alive:
                    node.cluster.account.broken(f"{key.directory} is forgotten and runs")
                node.supervisors.pop(key, None)
            case Send():
                self._news.set()
        return None

    def _hint(self, each: Supervisor, number: int, seconds_left: float) -> None:
        each.hint = number
        if self.world.dice.random() < 0.7:
            most = max(0.0, min(seconds_left, 10.0))
            each.saves_at = self.node.host.seconds() + self.world.dice.uniform(0, most)

    def _write(self, entry: Entry) -> Event:
        node = self.node
        if isinstance(entry, Over) and entry.report.never_started:
            came = node.supervisors.get(entry.report.key)
            if came is not None:
                if came.alive:
                    node._end(entry.report.key, came, 137, "fenced")
                assert came.ended is not None
                return came.ended
        if node.is_full:
            return JournalFailed(entry, "no space")
        if isinstance(entry, Removed):
            node.entries = [*self.machine.entries(), entry]
        else:
            node.entries.append(entry)
        self._maybe_die()
        return Journalled(entry)

    def _remember(self, known: Identity) -> None:
        self._known = known
        self.node.known = known

    # The link

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            self.tell(Tick())

    async def _listen(self) -> None:
        pause = PAUSE_FIRST
        while True:
            try:
                if not self._joined.is_set():
                    await self._join()
                await self._beat(wait=self.heartbeat, news=False)
                pause = PAUSE_FIRST
            except Away:
                await asyncio.sleep(pause)
                pause = min(pause * 2, PAUSE_MAX, self.heartbeat)

    async def _join(self) -> None:
        known = self._known
        self._remember(known)
        body = {
            "protocol": wire.PROTOCOL,
            "version": "simulated",
            "name": self.node.name,
            "boot": self.node.host.boot_id,
            "amounts": {"gpu": len(self.node.devices)},
            "devices": {"gpu": list(self.node.devices)},
            "labels": {"zone": "a"},
            "group": "",
            "fingerprint": "",
            "folder": "shared",
            "session": known.next_session or known.session,
            "previous": known.session,
            "machine": self.node.host.name,
        }
        found = await self._call("register", body, known.token or self.node.join, TIMEOUT)
        if self._known.next_session:
            self._known = confirmed(self._known)
        token = str(found.get("token") or self._known.token or self.node.join)
        self._remember(replace(self._known, node=str(found["node"]), token=token))
        self._joined.set()

    async def _report(self) -> None:
        pause = PAUSE_FIRST
        while True:
            await self._news.wait()
            await self._joined.wait()
            self._news.clear()
            try:
                await self._beat(wait=0, news=True)
                pause = PAUSE_FIRST
            except Away:
                self._news.set()
                await asyncio.sleep(pause)
                pause = min(pause * 2, PAUSE_MAX, self.heartbeat)

    async def _beat(self, *, wait: float, news: bool) -> None:
        machine = self.machine
        reports = list(machine.outbox.items())[: bounds.REPORTS_MAX] if news else []
        body = {
            "protocol": wire.PROTOCOL,
            "boot": self.node.host.boot_id,
            "wait": wait,
            "session": self._known.session,
            "epoch": machine.epoch,
            "index": self.index,
            "seen": machine.version,
            "reports": [wire.report_json(*each) for each in reports],
            "logs": [],
        }
        sent_at = self.node.host.seconds()
        data = await self._call("heartbeat", body, self._known.token, wait + TIMEOUT)
        found = wire.answer(data, sent_at)
        self.heartbeat = found.heartbeat
        if found.orders.epoch >= machine.epoch:
            self.index = max(self.index, found.index)
        for each in found.orders.acknowledged:
            report = machine.outbox.get(each)
            if report is not None and report.kind is Kind.SAVED:
                request = machine.jobs[report.key].order.request
                self.node.cluster.account.acknowledged_save(request, report.checkpoint)
        self.tell(found.orders)
        if machine.outbox:
            self._news.set()

    async def _call(self, what: str, body: Any, token: str, timeout: float) -> Any:
        """The answer of whichever server leads: the one that answered last is asked first."""
        servers = self.node.cluster.servers_in_turn()
        for server in sorted(servers, key=lambda each: each != self._leader):
            with contextlib.suppress(Away):
                answer = await self.node.cluster.call(
                    self.node.host, server, "POST", f"/api/v1/agent/{what}", token, body, timeout
                )
                if answer.status == 200:
                    self._leader = server
                    return answer.body
                self._refused(answer)
        raise Away("no server answers")

    def _refused(self, answer: Answer) -> None:
        self.world.note("refused", self.node.name, answer.status, answer.code)
        self.node.cluster.account.refused(answer)
        if answer.status in (401, 404, 409):
            self._joined.clear()
