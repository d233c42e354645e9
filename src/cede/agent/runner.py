"""The agent's process: passes events to the machine and carries out its instructions.

One thread does both, one after the other, so that nothing happens between an entry on disk and what
depends on it. When it is told to end, it ends and its work goes on: every attempt has a supervisor
of its own, and the next agent adopts it.
"""

from __future__ import annotations

import hashlib
import queue
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import structlog

from cede.agent import crash, detect, identity, wire
from cede.agent.attempts import Attempts
from cede.agent.hands import Hands
from cede.agent.identity import Unusable
from cede.agent.isolation import warnings
from cede.agent.journal import Journal as JournalFile
from cede.agent.journal import JournalDamaged, JournalFull
from cede.agent.link import Introduction, Link
from cede.agent.machine import Machine
from cede.agent.settings import Settings
from cede.agent.values import (
    Agree,
    Entry,
    Event,
    Forget,
    GoOn,
    Hint,
    Instruction,
    Journal,
    JournalFailed,
    Journalled,
    KeepCheckpoint,
    Key,
    Launch,
    Look,
    Order,
    Over,
    Remember,
    Restarted,
    Send,
    SetDeadline,
    Stop,
    Taken,
    Tick,
    key_of,
)
from cede.launch import processes
from cede.launch.clock import boottime
from cede.launch.probe import probe
from cede.model import bounds
from cede.model.errors import CedeError

# How often supervisors and applications are polled, while there are any.
TICK = 0.05
TICK_IDLE = 0.5
# How soon, and at most how late, work that did not die is killed again before the agent is ready.
SWEEP_PAUSE, SWEEP_PAUSE_MAX = 0.5, 30.0
# A call waits so long for the machine to take its answer; then the next call knows less than it
# could.
SEEN_TIMEOUT = 30.0

_log = structlog.get_logger("cede.agent")


class CannotRun(CedeError):
    """This agent cannot start; the message says why."""


def run(settings: Settings) -> None:
    """Serve this node until told to end. Raises errors that are meant for people."""
    processes.close_to_account()
    for text in warnings(settings.isolation, settings.users):
        _log.warning(text)
    try:
        identity.take(settings.data)  # held until this process ends
        runner = Runner(settings)
    except (Unusable, JournalDamaged) as error:
        raise CannotRun(str(error)) from None
    with signals(runner.end):
        runner.serve()


class _Arrived:
    """An answer on its way from the calling thread to the machine's."""

    def __init__(self, answer: wire.Answer) -> None:
        self.answer = answer
        self.seen = threading.Event()


class Runner:
    """`hands` carry out the machine's instructions; without them, supervisors on this machine."""

    def __init__(
        self,
        settings: Settings,
        hands: Hands | None = None,
        introduction: Introduction | None = None,
    ) -> None:
        self._settings = settings
        self._machine = Machine(retained=settings.retained)
        self._lock = threading.Lock()  # the machine, between its own thread and those that call
        self._inbox: queue.SimpleQueue[_Arrived | None] = queue.SimpleQueue()
        self._log_replies: deque[wire.Json] = deque()
        # Requests with old checkpoints here, of which the server is asked whether they have ended.
        self._old: list[str] = []
        known = identity.opened(identity.load(settings.data))
        self._journal = JournalFile(settings.data / "journal")
        self._attempts = hands or Attempts(settings, probe(_group_name(settings)), boottime)
        said = introduction or _introduction(settings)
        self._link = Link(settings, known, said, body=self._body, take=self._take)
        self._index = known.index
        self._quarantined = False  # whether the server asks for strays

    def serve(self) -> None:
        if not self._restart():
            return
        self._link.start()
        kind, name = self._settings.kind, self._settings.name
        sys.stdout.write(f"cede {kind} {name} serves {self._settings.server}\n")
        sys.stdout.flush()
        while not self._link.stopping.is_set():
            self._turn()
        self._attempts.close()
        if self._link.fatal is not None:
            raise self._link.fatal

    def end(self) -> None:
        """End the agent; safe in a signal handler. Its work goes on under its supervisors."""
        self._link.stop()
        self._inbox.put(None)

    def _wake(self) -> None:
        self._inbox.put(None)

    # The machine's thread

    def _restart(self) -> bool:
        """Take over the journal's orders; False if the agent was told to end before it is ready."""
        entries = self._journal.entries
        over = {key_of(each) for each in entries if not isinstance(each, Taken)}
        taken = [e.order for e in entries if isinstance(e, Taken) and e.order.key not in over]
        found = self._attempts.adopt(taken)
        pause = SWEEP_PAUSE
        while True:
            swept = self._attempts.sweep_unexplained([key_of(each) for each in entries])
            for report in swept.reports:
                self._journal.append(Over(report))
                entries = (*entries, Over(report))
            if not swept.survivors:
                break
            # S15: units that a survivor may still use must not be granted to others.
            for name, why in swept.survivors.items():
                _log.error("not ready: unexplained work does not die", attempt=name, why=why)
            if self._link.stopping.wait(pause):
                self._attempts.close()
                return False
            pause = min(2 * pause, SWEEP_PAUSE_MAX)
        self._handle(Restarted(entries, found, self._link.known.epoch))
        return True

    def _turn(self) -> None:
        try:
            arrived = self._inbox.get(timeout=TICK if self._machine.jobs else TICK_IDLE)
        except queue.Empty:
            arrived = None
        if arrived is not None:
            self._note(arrived.answer)
            self._handle(arrived.answer.orders)
            arrived.seen.set()
        for event in self._attempts.poll(boottime()):
            self._handle(event)
        self._handle(Tick())
        if self._attempts.has_changed:
            self._link.introduce_again()
        if self._attempts.has_news:
            self._link.tell()
        self._attempts.look_for_old(self._ask)
        if self._journal.has_grown:
            self._compact()

    def _handle(self, event: Event) -> None:
        """Handle one event, and all that follows from it. The entries of one event are written
        together: nothing depends on an entry before the machine was told that it is on disk.
        """
        events = deque([event])
        while events:
            with self._lock:
                instructions = self._machine.handle(events.popleft(), boottime())
            entries = [each.entry for each in instructions if isinstance(each, Journal)]
            for each in instructions:
                self._do(each)
            events += self._write(entries)

    def _do(self, instruction: Instruction) -> None:
        attempts = self._attempts
        match instruction:
            case Launch(order, deadline):
                attempts.launch(order, deadline, self._wake)
            case Look(order):
                attempts.look(order)
            case Remember(epoch):
                self._link.remember(epoch, self._index)
            case SetDeadline(key, deadline):
                attempts.set_deadline(key, deadline)
            case Hint(key, number, seconds_left, goes_on):
                attempts.hint(key, number, seconds_left, goes_on=goes_on)
            case Agree(key, number, step):
                attempts.agree(key, number, step)
            case GoOn(key):
                attempts.go_on(key)
            case Stop(key, grace):
                attempts.stop(key, grace)
            case KeepCheckpoint(key, checkpoint):
                attempts.keep_checkpoint(self._order(key), checkpoint)
            case Forget(key):
                attempts.forget(key)
            case Send():
                self._link.tell()

    def _write(self, entries: Sequence[Entry]) -> Iterator[Event]:
        """Write entries with one sync, and yield the result of each."""
        lines: list[Entry] = []
        for entry in entries:
            # The entry is final: no supervisor that was asked for may come after it.
            is_final = isinstance(entry, Over) and entry.report.never_started
            came = self._attempts.fence(key_of(entry)) if is_final else None
            if came is None:
                lines.append(entry)
            else:
                yield came
        if not lines:
            return
        crash.at("journal_before")
        try:
            self._journal.append(*lines)
        except JournalFull as error:
            if len(lines) > 1:  # there may be room for some of them
                for entry in lines:
                    yield from self._write([entry])
                return
            _log.error("the journal is full", why=str(error))
            yield JournalFailed(lines[0], str(error))
            return
        crash.at("journal_after")
        yield from map(Journalled, lines)

    def _order(self, key: Key) -> Order:
        return self._machine.jobs[key].order

    def _compact(self) -> None:
        entries = self._machine.entries()
        try:
            self._journal.rewrite(entries)
        except JournalFull as error:
            _log.error("cannot rewrite the journal", why=str(error))

    # Between the threads

    def _body(self, news: bool) -> wire.Json:
        """Return the body of a heartbeat, as of now."""
        body: wire.Json = {}
        with self._lock:
            machine = self._machine
            body |= {"epoch": machine.epoch, "index": self._index, "seen": machine.version}
            if self._quarantined:  # older servers do not know the field
                body["strays"] = machine.strays
            reports = list(machine.outbox.items())[: bounds.REPORTS_MAX] if news else []
        body["reports"] = [wire.report_json(*each) for each in reports]
        # If the call that carries them is lost, the server asks again.
        most = min(len(self._log_replies), bounds.LOG_REPLIES_MAX) if news else 0
        if news and (old := self._old):
            body["saved"], self._old = old, []
        body["logs"] = [self._log_replies.popleft() for _ in range(most)]
        return body | (self._attempts.news() if news else {})

    def _ask(self, requests: list[str]) -> None:
        """Ask with the next news; if that call is lost, they are asked about another time."""
        if requests:
            self._old = requests
            self._link.tell()

    def _take(self, answer: wire.Answer, said: wire.Json) -> bool:
        """Wait, in the thread that called the server, until the machine has seen the answer;
        return whether there is more to report.
        """
        if answer.heard:
            self._attempts.told(said)
        arrived = _Arrived(answer)
        self._inbox.put(arrived)
        arrived.seen.wait(SEEN_TIMEOUT)
        return bool(self._machine.outbox or self._log_replies)

    def _note(self, answer: wire.Answer) -> None:
        if answer.orders.epoch >= self._machine.epoch:
            self._index = max(self._index, answer.index)
            self._quarantined = answer.quarantined
        for question in answer.logs:
            self._log_replies.append(self._attempts.answer(question))
            self._link.tell()
        if answer.over:
            self._attempts.remove_checkpoints(answer.over)


def _introduction(settings: Settings) -> Introduction:
    boot = detect.boot_id()
    return Introduction(
        "/agent/register", boot, lambda known: wire.registration(settings, known, boot)
    )


def _group_name(settings: Settings) -> str:
    """Return a name that no other agent on this machine has."""
    digest = hashlib.sha256(str(settings.data.absolute()).encode()).hexdigest()
    return f"cede-{digest[:12]}"


@contextmanager
def signals(end: Any) -> Iterator[None]:
    def handler(_: int, __: FrameType | None) -> None:
        end()

    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
