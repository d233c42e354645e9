"""The one writer: takes every command that is waiting, decides once, commits once, answers all
(group commit).

A refused command is undone and fails alone. A storage error ends the process: what is on disk is
then unknown to us, and the next start reads it and audits it. Two errors are known to have written
nothing, a full disk and a damaged database: the transaction is undone and its commands are refused,
but leases are renewed in memory, so that what runs goes on. Nothing else is answered before it is
committed (law 5).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from time import perf_counter
from typing import Any, TypeVar

import structlog

from cede.engine.audit import audit
from cede.engine.decide import decide
from cede.engine.state.changes import Changes
from cede.engine.state.state import State
from cede.engine.state.trial import whole
from cede.model import bounds
from cede.model.errors import CedeError, Conflict
from cede.server import clock
from cede.server.budgets import Budgets
from cede.server.clock import Clock
from cede.server.clocks import PoolClocks
from cede.server.crash import crash_hook
from cede.server.leadership import Leadership
from cede.server.order_board import OrderBoard
from cede.server.queue import Job, Overloaded, Queue, Stopping, resolve
from cede.server.tx import Tx, Undecided
from cede.store.errors import Damaged, DiskFull
from cede.store.json_text import decode, encode
from cede.store.store import Store
from cede.store.term import RENEW_MILLISECONDS
from cede.store.values import Batch, Idempotency, Loaded, Remembered

__all__ = ["Overloaded", "Stopping", "Tx", "Unsound", "Writer"]

T = TypeVar("T")
R = TypeVar("R")

# More than this in one transaction would make the first of them wait for the last.
BATCH_MAX = 1_000
AUDIT_EVERY = bounds.MINUTE
# Counting more than this many again takes long enough for callers to notice, so it waits for a
# second in which nobody calls. A server that never has one goes without until its next start.
AUDIT_BUSY_MAX = 20_000
AUDIT_QUIET = bounds.SECOND
# How often a server that could not write looks whether it can.
_TRY_EVERY = bounds.SECOND

_log = structlog.get_logger("cede.writer")


class Unsound(Exception):
    """The database breaks its own invariants; each is named. No write is taken on top of that."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("the stored state is unsound: " + "; ".join(problems[:20]))
        self.problems = problems


def _end_process(error: BaseException) -> None:
    _log.critical("the writer cannot go on", error=str(error), exc_info=error)
    os._exit(70)  # not sys.exit: nothing may run after a write whose fate is unknown


class Writer:
    """`execute` and `query` may be called from any thread; `run` and `ask` from an event loop."""

    def __init__(
        self,
        store: Store,
        loaded: Loaded,
        *,
        on_fatal: Callable[[BaseException], None] = _end_process,
        waiting_max: int = bounds.COMMANDS_MAX,
    ) -> None:
        store.at_point = crash_hook(os.environ) or store.at_point
        problems = audit.check(loaded.state)
        if problems:
            raise Unsound(problems)
        self.index = loaded.index  # committed; safe to read from any thread
        self.commits = 0  # how many; moved before anybody is told of one
        # What the last audit found; while there is any, nothing is granted.
        self.trouble: list[str] = []
        self._full: DiskFull | None = None
        self._damage: Damaged | None = None
        self.listeners: list[Callable[[int], None]] = []  # told the new index after each commit
        # Told the seconds that deciding and writing took, for each transaction, on our thread.
        self.on_turn: Callable[[float, float], None] = lambda deciding, writing: None
        # Told how often a pass judged, by pool and answer, whether running work should save itself.
        self.on_judged: Callable[[Mapping[tuple[str, str], int]], None] = lambda judged: None
        self._store = store
        self._state = loaded.state
        self._clock = Clock(loaded.moment)
        # Leases and stops of clients count from here: they may have been out of reach.
        self._state.since = self._clock.now()
        self.order_board = OrderBoard(loaded.state, self._clock.now(), store.former_term)
        self.leadership = Leadership(store.term_lasts)
        self._on_fatal = on_fatal
        self._queue = Queue(waiting_max)
        self._thread = threading.Thread(target=self._main, name="cede-writer", daemon=True)
        now = self._clock.now()
        self._next_timer: int | None = now  # the first pass looks at what was loaded
        self._next_audit = now + AUDIT_EVERY
        self._called = now
        self._renewed = now
        self._budgets = Budgets(store, self.query)
        self._clocks = PoolClocks(loaded.clocks, loaded.state)
        loaded.state.settle()  # nothing to write or to undo

    # For everybody ------------------------------------------------------------------------------

    def start(self) -> None:
        # What was loaded may have taken longer than the term: nothing is answered on an old one.
        self._renew(self._clock.now())
        self._budgets.first(self._state, self._clock.now())
        self._thread.start()

    def stop(self, seconds: float = 60) -> None:
        """Finish what is waiting, keep the instant, and end.

        Later commands are refused with `Stopping`.
        """
        self._queue.close()
        if self._thread.is_alive():
            self._thread.join(seconds)
        self._budgets.stop(seconds)

    def now(self) -> int:
        """The instant on the server's one clock."""
        return self._clock.now()

    @property
    def waiting(self) -> int:
        """Commands that the next transactions will take."""
        return len(self._queue)

    @property
    def unwritable(self) -> DiskFull | Damaged | None:
        """Why nothing can be written, while that is so: damage, or no space. A new error each time:
        one that is raised again and again collects the places.
        """
        if self._damage is not None:
            return Damaged(self._damage.findings)
        return None if self._full is None else DiskFull()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def execute(
        self,
        command: Callable[[Tx], T],
        *,
        idempotency: Idempotency | None = None,
        answer: Callable[[T, Tx], Any] | None = None,
    ) -> Future[Any]:
        """Run a command in the next transaction; the future is resolved once it is committed.

        `answer(result, tx)` is called after the pass and before the commit, and what it returns is
        the future's result instead: it sees what the pass made of the command. With `idempotency`
        the result must be JSON; a repetition gets the same one without running anything.
        """
        job = Job(command, Future(), idempotency=idempotency, answer=answer)
        self._queue.put(job)
        assert isinstance(job.future, Future)
        return job.future

    def query(self, read: Callable[[State, int], T]) -> Future[T]:
        """Look at the committed state between two commits; `read` must not change it."""
        job = Job(read, Future(), query=True)
        self._queue.put(job)
        assert isinstance(job.future, Future)
        return job.future

    def run(
        self,
        command: Callable[[Tx], T],
        *,
        idempotency: Idempotency | None = None,
        answer: Callable[[T, Tx], Any] | None = None,
        urgent: bool = False,
        weight: int = 1,
        lasting: bool = True,
    ) -> asyncio.Future[Any]:
        """`execute` for an event loop: all answers of a batch come back in one hand-over. What is
        `urgent` is in the next transaction, whatever waits; `weight` bounds what else is in it. A
        command that is not `lasting` is answered also while nothing can be written.
        """
        future = asyncio.get_running_loop().create_future()
        job = Job(command, future, idempotency=idempotency, answer=answer, lasting=lasting)
        job.urgent, job.weight = urgent, weight
        self._queue.put(job)
        return future

    def ask(self, read: Callable[[State, int], T]) -> asyncio.Future[T]:
        """`query` for an event loop."""
        future = asyncio.get_running_loop().create_future()
        self._queue.put(Job(read, future, query=True))
        return future

    def found_damage(self, damage: Damaged) -> None:
        """Write nothing more; from any thread."""
        _log.error("the database is damaged; nothing is written", findings=damage.findings)
        self._damage = damage

    # The thread ---------------------------------------------------------------------------------

    def _main(self) -> None:
        jobs: list[Job] = []
        try:
            while not self._queue.finished:
                jobs = self._queue.take(BATCH_MAX, self._patience())
                self._turn(jobs)
            self._finish()
        except BaseException as error:  # nothing may pass by: a half-known state must not go on
            for job in jobs:
                job.error = error
            self._queue.close()
            self._on_fatal(error)
            resolve(jobs + self._queue.take(bounds.COMMANDS_MAX + 1, 0))

    def _patience(self) -> float:
        """Seconds until something is due by itself."""
        due = [self._audit_due()]
        if (clocks := self._clocks.due(self._state)) is not None:
            due.append(clocks)
        if self._next_timer is not None:
            due.append(self._next_timer)
        if not self._store.sqlite:
            due.append(self._renewed + RENEW_MILLISECONDS)
        return max(0, min(due) - self._clock.now()) / 1000

    def _turn(self, jobs: list[Job]) -> None:
        """One transaction: commands, pass, commit, answers."""
        now = self._clock.now()
        if jobs:
            self._called = now
        commands = [job for job in jobs if not job.query]
        for job in jobs:
            if job.query:
                _attempt(job, self._state, now)
        resolve(job for job in jobs if job.query)
        if commands or (self._next_timer is not None and self._next_timer <= now):
            while left := self._decide_and_commit(commands, now):
                commands = left
        self._look_after(now)

    def _decide_and_commit(self, commands: list[Job], now: int) -> list[Job]:
        """One transaction; the commands that are left for another."""
        if self._damage is not None:
            return self._without_writing(commands, now)
        try:
            with whole(self._state):
                return self._try_to_commit(commands, now)
        except DiskFull as full:
            if self._full is None:
                _log.error("the disk is full; nothing is written until there is space")
            self._full = full
            return self._without_writing(commands, now)
        except Damaged as damage:
            self.found_damage(damage)
            return self._without_writing(commands, now)

    def _try_to_commit(self, commands: list[Job], now: int) -> list[Job]:
        tx = Tx(self._state, now, clock.wall())
        expected = self.index
        self._state.now = now
        self.order_board.collect(self._state)
        done, repeated, left = self._apply(commands, tx)
        began = perf_counter()
        self._pass(now)
        decided = perf_counter()
        answers = [each for job in done if (each := _answer(job, tx, now)) is not None]
        changes = self._state.pending()
        batch = Batch(
            changes,
            expected,
            self._state.index,
            self._clock.moment(now),
            audit=tx.notes,
            tokens=tx.tokens,
            answers=answers,
            deleted_requests=tx.deleted_requests,
            run=tx.run,
            removal=tx.removal,
            noted=tx.noted,
        )
        if not changes.empty or tx.wrote or answers or self._full is not None:
            writing = perf_counter()
            sent_at = clock.boottime()
            self._store.commit(batch)
            self.leadership.renewed(sent_at)
            self._state.settle()
            self._after_commit(batch, now)
            self.order_board.publish(self._state, changes)
            self.on_turn(decided - began, perf_counter() - writing)
        else:
            self._state.settle()
        for job, first in repeated:
            job.result, job.error = first.result, first.error
        resolve(commands[: len(commands) - len(left)])
        if batch.index != expected:
            self._tell_listeners()
        return left

    def _after_commit(self, batch: Batch, now: int) -> None:
        self._renewed = now
        self.index = batch.index
        self.commits += 1
        if self._full is not None:
            _log.warning("there is space again; commands are taken")
            self._full = None

    def _without_writing(self, commands: list[Job], now: int) -> list[Job]:
        """Answer from memory what need not last, and refuse the rest.

        A lease is such a thing: a server that starts counts every lease from its start, so that one
        which was renewed and not written down ends no earlier. What is renewed here is written with
        the next commit.
        """
        self._next_timer = now + _TRY_EVERY
        tx = Tx(self._state, now, clock.wall())
        for job in commands:
            job.result = job.error = None
            if job.lasting:
                job.error = self.unwritable
            elif self._run_one(job, tx):
                _answer(job, tx, now)
        self._state.keep()
        resolve(commands)
        return []

    def _tell_listeners(self) -> None:
        for listener in self.listeners:
            try:
                listener(self.index)
            except Exception:
                # They learn of commits and have no part in them.
                _log.exception("a listener failed")

    def _apply(
        self, commands: list[Job], tx: Tx
    ) -> tuple[list[Job], list[tuple[Job, Job]], list[Job]]:
        """Run each command; a refused one is undone and fails alone. From the first on that must
        know what the pass makes of those before it, they are left for the next transaction.

        S19: a repetition runs nothing. It gets the answer that is stored, or that of the command in
        this same transaction which it repeats.
        """
        keyed = [job.idempotency for job in commands if job.idempotency is not None]
        known = self._store.recall(keyed) if keyed else {}
        done: list[Job] = []
        first: dict[tuple[str, str, str], Job] = {}
        repeated: list[tuple[Job, Job]] = []
        for at, job in enumerate(commands):
            of = job.idempotency
            if of is None:
                if self._run_one(job, tx):
                    done.append(job)
            elif of.place in known:
                _repeat(job, of, known[of.place])
            elif of.place in first:
                earlier = first[of.place]
                if _same_body(job, of, earlier.idempotency):
                    repeated.append((job, earlier))
            elif self._run_one(job, tx):
                done.append(job)
                first[of.place] = job
            if isinstance(job.error, Undecided):
                job.error = None
                return done, repeated, commands[at:]
        return done, repeated, []

    def _run_one(self, job: Job, tx: Tx) -> bool:
        mark, sizes = self._state.mark(), tx.sizes()
        if _attempt(job, tx):
            return True
        self._state.undo(mark)
        tx.cut(sizes)
        return False

    def _pass(self, now: int) -> None:
        """Decide, unless an audit has found the state unsound.

        Then what runs goes on and nothing is granted.
        """
        if self.trouble:
            self._next_timer = None
            return
        try:
            with whole(self._state):
                plan = decide(self._state, now)
                if plan.judged:
                    self.on_judged(plan.judged)
            due = plan.next_timer
            # Not before the next millisecond: a timer that is never satisfied must not spin.
            self._next_timer = None if due is None else max(due, now + 1)
        except Exception as error:
            # Our own mistake. Commands are kept, work goes on, and the pass is tried again after an
            # audit.
            self._next_timer = None
            self.trouble = [f"the pass failed: {error!r}"]
            _log.exception("the pass failed; nothing is granted until the next audit")

    def _look_after(self, now: int) -> None:
        """Periodic housekeeping, whatever commands come."""
        if now >= self._audit_due():
            self._next_audit = now + AUDIT_EVERY
            was, self.trouble = self.trouble, audit.check(self._state)
            if was and not self.trouble:
                self._next_timer = now
            if self.trouble:
                _log.error("the state is unsound; nothing is granted", problems=self.trouble[:20])
        self._budgets.look_after(self._state, now)
        if (due := self._clocks.due(self._state)) is not None and now >= due:
            self._write_clocks(now)
        if not self._store.sqlite and now >= self._renewed + RENEW_MILLISECONDS:
            self._renew(now)

    def _write_clocks(self, now: int) -> None:
        """A commit of its own; where nothing can be written it is tried again later."""
        rows = self._clocks.rows(self._state, now)
        if rows.empty or self.unwritable is not None:
            return
        batch = Batch(Changes(), self.index, self.index, self._clock.moment(now), clocks=rows)
        sent_at = clock.boottime()
        try:
            self._store.commit(batch)
        except DiskFull:
            return
        except Damaged as damage:
            self.found_damage(damage)
            return
        self.leadership.renewed(sent_at)
        self._clocks.wrote(rows)
        self._after_commit(batch, now)

    def _renew(self, now: int) -> None:
        """Prolong the term while there is nothing to commit.

        On a full disk it is not prolonged, and ends unless there is space in time.
        """
        sent_at = clock.boottime()
        self._renewed = now
        with contextlib.suppress(DiskFull):
            self._store.renew_lease()
            self.leadership.renewed(sent_at)

    def _audit_due(self) -> int:
        """When to count everything again; an unsound state is looked at whoever calls."""
        state = self._state
        if self.trouble or len(state.requests) + len(state.allocations) <= AUDIT_BUSY_MAX:
            return self._next_audit
        return max(self._next_audit, self._called + AUDIT_QUIET)

    def _finish(self) -> None:
        """Leave the clock where it is, so that time spent stopped counts from now."""
        now = self._clock.now()
        clocks = self._clocks.rows(self._state, now)
        moment = self._clock.moment(now)
        batch = Batch(self._state.drain(), self.index, self._state.index, moment, clocks=clocks)
        if self._damage is not None:
            return
        try:
            self._store.commit(batch)
        except DiskFull:
            _log.warning("the disk is full: the next start counts time from the last commit")


def _attempt(job: Job, *arguments: Any) -> bool:
    """Run a job's function and keep its outcome; whether it went well."""
    try:
        job.result = job.run(*arguments)
    except CedeError as error:
        job.error = error
    except Exception as error:
        _log.exception("a command failed", command=getattr(job.run, "__qualname__", "?"))
        job.error = error
    return job.error is None


def _answer(job: Job, tx: Tx, now: int) -> Remembered | None:
    """The answer for the caller, once the pass is over, and its record under the caller's key."""
    try:
        if job.answer is not None:
            job.result = job.answer(job.result, tx)
        if job.idempotency is None:
            return None
        return Remembered(job.idempotency, encode(job.result), now)
    except Exception as error:
        # The command itself stands: it cannot be undone any more without undoing its neighbours.
        _log.exception("an answer could not be made")
        job.error = error
        return None


def _repeat(job: Job, given: Idempotency, known: Remembered) -> None:
    if _same_body(job, given, known.idempotency):
        job.result = decode(known.response)


def _same_body(job: Job, given: Idempotency, known: Idempotency | None) -> bool:
    """S19: one key, one body."""
    if known is not None and known.body_hash == given.body_hash:
        return True
    problem = f"the idempotency key {given.key!r} was used for another request; use a new one"
    job.error = Conflict("idempotency_key_reused", problem)
    return False
