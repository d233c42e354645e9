"""Decides what an agent does next: events in, instructions out; no clock, no disk, no network.

It promises, whatever is lost, repeated or reordered and wherever the agent dies:
a task of an allocation is launched at most once, and never before its journal entry is on disk;
an order that was taken up is either started or refused, never both (K5);
an answer of an older writer, or an older answer of this one, changes no running task (S12);
a task that runs and is in no order is stopped; a report is repeated until it is acknowledged;
two live tasks never have the same device (S3);
nothing is launched when the lease is over (S14), nor before the server has said from which
checkpoint, if it wants to know which are here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from cede.agent.values import (
    FINAL,
    INFRASTRUCTURE,
    NEVER_STARTED,
    Agree,
    Do,
    Ended,
    Entry,
    Event,
    Forget,
    Found,
    GoOn,
    Heard,
    Hint,
    Instruction,
    Journal,
    JournalFailed,
    Journalled,
    KeepCheckpoint,
    Key,
    Kind,
    Launch,
    LaunchFailed,
    Look,
    Looked,
    Order,
    Orders,
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
    key_of,
)

# Ended tasks whose output is kept, and which are known not to be started again.
RETAINED = 200
# A supervisor that has not ended its work so long after its deadline is stuck itself.
WATCHDOG = 2.0

# A deadline that moves less than this is not told to the application: the answers' delay moves it
# too.
HINT_MOVED = 2.0


class Phase(StrEnum):
    TAKEN = "taken"  # its entry is being written to disk
    NOTED = "noted"  # on disk; nothing was started
    LAUNCHED = "launched"  # a supervisor exists, or will
    RUNNING = "running"
    REFUSING = "refusing"  # its refusal is being written to disk
    ENDED = "ended"  # reported, or about to be
    LEAVING = "leaving"  # its last entry is being written to disk


UNSTARTED = (Phase.TAKEN, Phase.NOTED)
ALIVE = (Phase.LAUNCHED, Phase.RUNNING)


@dataclass(slots=True)
class Job:
    """One task on this node. `order` is the newest one; `wanted` is whether there still is one.

    Until the server has named it again, an adopted task has only the order with which it was taken
    up: a hint that stands must not be withdrawn for that.
    """

    order: Order
    phase: Phase = Phase.TAKEN
    wanted: bool = True
    is_named: bool = True
    stopping: bool = False
    hint: int | None = 0  # None: the previous agent may have asked
    hint_until: float = 0.0
    agreed: tuple[int, int] = (0, 0)  # the hint and step that it was told
    looked: bool = False  # whether its checkpoints were asked for
    kept: str = ""
    why: str = ""  # why it is refused
    final: Report | None = None


class Machine:
    """Handle events with `handle`; `outbox` has the reports that the next heartbeat must carry."""

    def __init__(self, *, retained: int = RETAINED) -> None:
        self.epoch = 0
        self.version = 0
        self.lease_until = 0.0
        self.jobs: dict[Key, Job] = {}
        self.over: dict[Key, Report] = {}  # oldest first
        self.outbox: dict[str, Report] = {}
        self.journal_is_full = ""
        self._retained = retained
        self._number = 0
        self._told_at: dict[Key, int] = {}  # version at which the end was last reported
        self._out: list[Instruction] = []
        self._now = 0.0

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Handle an event and return instructions. They must be carried out in order, and before
        long: `now` is the clock as it was read for this event (S14).
        """
        self._out = []
        self._now = now
        self._dispatch(event)
        self._launch_ready()
        return self._out

    def _dispatch(self, event: Event) -> None:
        match event:
            case Orders():
                self._on_orders(event)
            case Journalled():
                self._on_journalled(event)
            case JournalFailed():
                self._on_journal_failed(event)
            case LaunchFailed():
                self._on_launch_failed(event)
            case Started():
                self._on_started(event)
            case Ended():
                self._on_ended(event)
            case Looked():
                self._on_looked(event)
            case Heard():
                self._on_heard(event)
            case Tick():
                self._on_tick()
            case Restarted():
                self._on_restarted(event)

    @property
    def strays(self) -> int:
        """The number of tasks that live here and that the newest orders do not name."""
        alive = [job for job in self.jobs.values() if job.phase in ALIVE]
        return sum(not (job.wanted and job.is_named) for job in alive)

    # Orders

    def _on_orders(self, event: Orders) -> None:
        if event.epoch < self.epoch:
            return  # S12: a deposed writer's; it grants no lease either
        for report_id in event.acknowledged:
            self.outbox.pop(report_id, None)
        self._renew(event.sent_at + event.lease)
        if (event.epoch, event.version) < (self.epoch, self.version):
            return  # an older answer that was late
        if event.epoch > self.epoch:
            self.epoch = event.epoch
            self._out.append(Remember(event.epoch))
            for job in self.jobs.values():
                job.looked = False  # another writer may not have the reports that the last one got
        self.version = event.version
        self.journal_is_full = ""  # the disk may have room again: one try per answer
        named = {order.key: order for order in event.orders}
        for key, job in list(self.jobs.items()):
            if key not in named:
                self._drop(key, job)
        for key, order in named.items():
            self._obey(key, order)

    def _renew(self, until: float) -> None:
        if until <= self.lease_until:
            return
        self.lease_until = until
        for key, job in self.jobs.items():
            if job.phase in ALIVE:
                self._out.append(SetDeadline(key, self._deadline(job)))

    def _deadline(self, job: Job) -> float | None:
        return None if job.order.keeps_in_silence else self.lease_until

    def _obey(self, key: Key, order: Order) -> None:
        if key in self.over:
            self._tell_again(self.over[key])
            return
        job = self.jobs.get(key)
        if job is None:
            self._take_up(key, order)
            return
        job.wanted = job.is_named = True
        if job.phase in UNSTARTED:
            job.order = order
        else:  # what to run was fixed at its launch; later orders say only how it goes on
            job.order = replace(order, body=job.order.body, devices=job.order.devices)
        if order.keep and order.keep != job.kept:
            job.kept = order.keep
            self._out.append(KeepCheckpoint(key, order.keep))
        if job.phase is Phase.NOTED and order.do is not Do.RUN:
            self._leave_unstarted(job)
        elif job.phase is Phase.RUNNING:
            self._converse(key, job)
        elif job.phase is Phase.LAUNCHED and order.do is Do.STOP:
            self._stop(key, job)

    def _take_up(self, key: Key, order: Order) -> None:
        job = self.jobs[key] = Job(order)
        if order.do is Do.RUN:
            self._out.append(Journal(Taken(order)))
        else:
            # Not to be started, and it must stay so: the refusal is an entry of its own.
            self._leave_unstarted(job)

    def _converse(self, key: Key, job: Job) -> None:
        """Ask a running job to save, to go on, or to stop."""
        order = job.order
        if job.stopping:
            return  # a stop that has begun ends
        if order.do is Do.STOP:
            self._stop(key, job)
        elif order.hint:  # to be stopped afterwards, or to go on
            self._hint(key, job, order)
        elif order.do is Do.RUN and job.hint != 0:
            job.hint = 0
            self._out.append(GoOn(key))

    def _hint(self, key: Key, job: Job, order: Order) -> None:
        until = self._now + order.seconds_left
        is_new = order.hint > (job.hint or 0)
        was_moved = order.hint == job.hint and abs(until - job.hint_until) > HINT_MOVED
        if is_new or was_moved:
            job.hint, job.hint_until = order.hint, until
            goes_on = order.do is Do.RUN
            self._out.append(Hint(key, order.hint, order.seconds_left, goes_on))
        if order.step and job.agreed != (order.hint, order.step):
            job.agreed = (order.hint, order.step)
            self._out.append(Agree(key, *job.agreed))

    def _stop(self, key: Key, job: Job, grace: float | None = None) -> None:
        if not job.stopping:
            job.stopping = True
            self._out.append(Stop(key, job.order.grace if grace is None else grace))

    def _drop(self, key: Key, job: Job) -> None:
        """Stop or let go of a job that the newest orders do not name."""
        job.wanted = False
        if job.phase in ALIVE:
            self._stop(key, job)
        elif job.phase is Phase.NOTED:
            self._leave_unstarted(job)
        else:
            self._let_go(key, job)

    # The journal

    def _on_journalled(self, event: Journalled) -> None:
        self.journal_is_full = ""
        key = key_of(event.entry)
        job = self.jobs.get(key)
        if isinstance(event.entry, Removed) or job is None:
            return
        if isinstance(event.entry, Over):
            self._over(key, job, event.entry.report)
        elif job.phase is Phase.TAKEN:
            job.phase = Phase.NOTED
            if not job.wanted or job.order.do is not Do.RUN:
                self._leave_unstarted(job)

    def _over(self, key: Key, job: Job, report: Report) -> None:
        """Mark a job as over once its entry is on disk. A refusal is reported now; an end has
        been."""
        if job.phase is Phase.REFUSING:
            job.phase, job.final = Phase.ENDED, report
            self._report(report)
        elif job.phase is Phase.LEAVING:
            self._bury(key, report)

    def _on_journal_failed(self, event: JournalFailed) -> None:
        self.journal_is_full = event.why
        job = self.jobs.get(key_of(event.entry))
        if job is None:
            return
        if job.phase is Phase.LEAVING:
            job.phase = Phase.ENDED  # it stays until there is room for its entry
        elif job.phase in (Phase.TAKEN, Phase.REFUSING):
            # This process remembers that it refused. A later one might not; then the server names a
            # new attempt and not this one, and the order is dropped before it runs.
            job.phase = Phase.ENDED
            text = job.why or f"the agent cannot write its journal: {event.why}"
            job.final = self._final(job, Kind.REFUSED, cause=INFRASTRUCTURE, text=text)
            self._report(job.final)

    def _refuse(self, job: Job, why: str) -> None:
        """Refuse a job that this node cannot run."""
        job.phase, job.why = Phase.REFUSING, why
        self._out.append(Journal(Over(self._final(job, Kind.REFUSED, text=why))))

    def _leave_unstarted(self, job: Job) -> None:
        job.phase, job.why = Phase.REFUSING, "it was told to stop before it was started"
        over = self._final(job, Kind.ENDED, cause=NEVER_STARTED, text=job.why)
        self._out.append(Journal(Over(over)))

    # Supervisors

    def _launch_ready(self) -> None:
        if self._now >= self.lease_until:
            return  # S14: it would not be stopped in time
        noted = [job for job in self.jobs.values() if job.phase is Phase.NOTED]
        if not noted:
            return  # as after most events
        busy = {
            device
            for job in self.jobs.values()
            if job.phase in ALIVE
            for device in _devices_of(job)
        }
        for job in noted:
            can = job.wanted and job.order.do is Do.RUN
            if can and job.order.looks:
                if not job.looked:
                    job.looked = True
                    self._out.append(Look(job.order))
            elif can and busy.isdisjoint(_devices_of(job)):
                busy |= _devices_of(job)
                job.phase = Phase.LAUNCHED
                self._out.append(Launch(job.order, self._deadline(job)))

    def _on_launch_failed(self, event: LaunchFailed) -> None:
        job = self.jobs[event.key]
        if event.refused:
            self._refuse(job, event.why)
            return
        self._ended(job, self._final(job, Kind.ENDED, cause=INFRASTRUCTURE, text=event.why))

    def _on_started(self, event: Started) -> None:
        job = self.jobs.get(event.key)
        if job is None or job.phase is not Phase.LAUNCHED:
            return
        job.phase = Phase.RUNNING
        attempt, devices = job.order.attempt, event.devices
        self._report(Report(event.key, attempt, Kind.STARTED, devices=devices))
        if job.wanted and job.is_named:
            self._converse(event.key, job)

    def _on_ended(self, event: Ended) -> None:
        job = self.jobs.get(event.key)
        # Not alive, and yet ended: a supervisor that the previous agent asked for came too late,
        # and was killed.
        late = (Phase.NOTED, Phase.REFUSING)
        if job is not None and (job.phase in ALIVE or job.phase in late):
            self._ended(job, _ending(event, job.order.attempt))

    def _ended(self, job: Job, final: Report) -> None:
        job.phase, job.final = Phase.ENDED, final
        self._report(final)

    def _on_looked(self, event: Looked) -> None:
        job = self.jobs.get(event.key)
        if job is not None and job.phase is Phase.NOTED and job.order.looks:
            found, text = event.ids, event.problems
            report = Report(event.key, job.order.attempt, Kind.FOUND, ids=found, text=text)
            self._report(report)

    def _on_heard(self, event: Heard) -> None:
        job = self.jobs.get(event.report.key)
        if job is not None and job.phase is Phase.RUNNING:
            self._report(event.report)

    def _on_tick(self) -> None:
        """Watch the supervisors, which watch the lease."""
        # Before the first answer the lease is the deadline that the previous agent told
        # supervisors.
        late = 0 < self.lease_until <= self._now - WATCHDOG
        for key, job in list(self.jobs.items()):
            if job.phase in ALIVE and late and not job.order.keeps_in_silence:
                self._stop(key, job, grace=0)
            elif not job.wanted and not self.journal_is_full:
                self._let_go(key, job)

    # Reports and leaving

    def _report(self, report: Report) -> None:
        """Report until it is acknowledged. Newer progress replaces older."""
        if report.kind in (Kind.PROGRESS, Kind.REACH, Kind.FOUND):
            stale = [i for i, each in self.outbox.items() if _same_subject(each, report)]
            for each in stale:
                del self.outbox[each]
        self._number += 1
        self.outbox[f"{report.key.directory}/{report.kind}/{self._number}"] = report
        if report.kind in FINAL:
            self._told_at[report.key] = self.version
        self._out.append(Send())

    def _tell_again(self, report: Report) -> None:
        """Report an end again that the server asks for: it may have been restored from a copy."""
        waiting = any(_same_subject(each, report) for each in self.outbox.values())
        if not waiting and self._told_at.get(report.key) != self.version:
            self._report(report)

    def _final(self, job: Job, kind: Kind, *, cause: str = "", text: str = "") -> Report:
        return Report(job.order.key, job.order.attempt, kind, cause=cause, text=text)

    def _let_go(self, key: Key, job: Job) -> None:
        """Let go of a job that is over, reported, and in no order: write that to the journal."""
        told = not any(each.key == key for each in self.outbox.values())
        if job.phase is Phase.ENDED and told and job.final is not None:
            job.phase = Phase.LEAVING
            self._out.append(Journal(Over(job.final)))

    def _bury(self, key: Key, report: Report) -> None:
        del self.jobs[key]
        self.over[key] = report
        self._forget_the_oldest()

    def _forget_the_oldest(self) -> None:
        while len(self.over) > self._retained:
            oldest = next(iter(self.over))
            del self.over[oldest]
            self._told_at.pop(oldest, None)
            # The directory first: an entry without one is harmless, while a directory without an
            # entry would be swept as unexplained.
            self._out += [Forget(oldest), Journal(Removed(oldest))]

    # Restart

    def _on_restarted(self, event: Restarted) -> None:
        assert not self.jobs and not self.over, "a machine is restarted before anything else"
        self.epoch = event.epoch
        taken: dict[Key, Order] = {}
        for entry in event.entries:
            _replay(entry, taken, self.over)
        self._forget_the_oldest()
        for key, order in taken.items():
            self._adopt(key, order, event.found.get(key, Found.NEVER))

    def _adopt(self, key: Key, order: Order, found: Found | Ended) -> None:
        job = self.jobs[key] = Job(order, Phase.NOTED)
        if found is Found.ALIVE:
            # It may be running or about to: its supervisor reports `started` once more.
            job.phase, job.hint, job.is_named = Phase.LAUNCHED, None, False
        elif isinstance(found, Ended):
            self._ended(job, _ending(found, order.attempt))
        else:
            # No supervisor, and no order either until the server has named it again.
            job.wanted = False

    def entries(self) -> list[Entry]:
        """Return the entries of a journal with the same content, without obsolete ones."""
        living: list[Entry] = [
            Taken(job.order)
            for job in self.jobs.values()
            if job.phase not in (Phase.TAKEN, Phase.REFUSING)
            and not (job.final is not None and job.final.never_started)
        ]
        refused: list[Entry] = [
            Over(job.final)
            for job in self.jobs.values()
            if job.final is not None and job.final.never_started
        ]
        return [*(Over(report) for report in self.over.values()), *refused, *living]


def _replay(entry: Entry, taken: dict[Key, Order], over: dict[Key, Report]) -> None:
    match entry:
        case Taken(order):
            taken[order.key] = order
        case Over(report):
            taken.pop(report.key, None)
            over[report.key] = report
        case Removed(key):
            over.pop(key, None)


def _ending(event: Ended, attempt: int) -> Report:
    return Report(
        event.key,
        attempt,
        Kind.ENDED,
        event.exit_code,
        cause=event.cause,
        text=event.text,
        unread=event.unread,
    )


def _devices_of(job: Job) -> frozenset[str]:
    return job.order.devices


def _same_subject(one: Report, other: Report) -> bool:
    return one.key == other.key and one.kind is other.kind
