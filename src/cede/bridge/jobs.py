"""Carries out orders as jobs of a cluster: one job for each allocation, on exactly its nodes.

Calls to the cluster are made by threads of their own; `poll` takes their results, so that all
decisions are made in one thread. `docs/design/0016-bridges.md` says why each step is safe.
"""

from __future__ import annotations

import os
import queue
import shutil
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import structlog

import cede
from cede.agent import wire
from cede.agent.accounts import Account, NotAllowed, Refused, account_for
from cede.agent.attempts import NOT_EXECUTED
from cede.agent.hands import Swept
from cede.agent.journal import order_json
from cede.agent.settings import Settings
from cede.agent.shelves import Shelves
from cede.agent.surroundings import checkpoint_directory, give, protocol_of
from cede.agent.values import (
    INFRASTRUCTURE,
    Ended,
    Event,
    Found,
    Heard,
    Key,
    Kind,
    LaunchFailed,
    Order,
    Report,
    Started,
)
from cede.bridge import crash, folder
from cede.bridge.cluster import (
    Cluster,
    End,
    Job,
    JobState,
    NotTaken,
    Seen,
    Unreachable,
    Wanted,
)
from cede.bridge.folder import Said
from cede.bridge.outside import Others
from cede.checkpoint import shelf
from cede.launch import places
from cede.model import bounds
from cede.model.errors import CedeError

PREFIX = "cede-"
JOB_LOG = "job.log"  # output of the job besides its work's; in the folder of its first task
CALLS = 8  # to the cluster at once
# How often members' files are read; the more there are, the less often.
LISTEN, LISTEN_EACH = 0.1, 0.0005
# The cluster is looked at sooner while a change is expected of it, but not all the time.
EAGER, EAGER_TIMES = 0.2, 4.0
# A job that others keep waiting is cancelled at the second look; one that waits for its turn, or
# was not considered yet, has this long.
WAITS, PATIENCE = 2, 60.0
# A stop that has not come true so long after its grace is left to the cluster.
STUCK = 5.0
# A job whose tasks are all over may take so long to leave its cluster; then it is cancelled.
LEAVES = 60.0

STOPPED, KILLED = "stopped", "killed"
BUSY, REFUSED = "cluster_busy", "refused"
CAUSES = {End.FAILED: "cluster_failed", End.ENDED: "cluster_ended", End.ITSELF: INFRASTRUCTURE}
# Causes of ends that a member saw and that stand, whatever the cluster says of the job.
OWN_ENDS = frozenset({STOPPED, KILLED, "walltime"})

_log = structlog.get_logger("cede.bridge")


class Stage(StrEnum):
    GATHERING = "gathering"  # orders of some tasks are missing
    CALLING = "calling"  # a call that submits it is under way
    UNSURE = "unsure"  # it may have been submitted: ask first
    SUBMITTED = "submitted"


@dataclass(slots=True)
class Task:
    """One task of an allocation that has not been reported as over."""

    order: Order
    said: Said
    ended: Ended | None = None  # as its member reported it
    ended_at: float = 0.0  # when the bridge read it
    started: bool = False
    stop_until: float | None = None  # when a requested stop counts as stuck


@dataclass(slots=True)
class Held:
    """One allocation and its job."""

    allocation: str
    size: int
    stage: Stage = Stage.GATHERING
    tasks: dict[int, Task] = field(default_factory=dict)
    id: str = ""
    known_at: float = 0.0  # when its id became known
    job: Job | None = None
    ran_at: float = 0.0  # when the last look that saw it run began
    waits: int = 0
    cancelled: bool = False  # by this bridge
    wants: list[list[Any]] = field(default_factory=list)
    owner: int | None = None

    @property
    def orders(self) -> list[Order]:
        return [self.tasks[each].order for each in sorted(self.tasks)]


@dataclass(frozen=True, slots=True)
class _Leaving:
    """A job whose tasks are reported as over, while its cluster may still have it."""

    nodes: tuple[str, ...]
    amounts: Mapping[str, int]
    known_at: float
    until: float


@dataclass(frozen=True, slots=True)
class _Looked:
    began: float
    seen: Seen | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class _Submitted:
    allocation: str
    id: str = ""
    unsure: str = ""  # why it is not known whether it was submitted
    failed: Event | None = None  # for one task; the same for all
    refused: bool = False


class Jobs(Shelves):
    def __init__(
        self, settings: Settings, cluster: Cluster, clock: Callable[[], float], *, period: float
    ) -> None:
        super().__init__(settings, clock)
        self._cluster = cluster
        self._period = period
        (settings.data / "jobs").mkdir(mode=0o711, exist_ok=True)
        self._held: dict[str, Held] = {}
        self._leaving: dict[str, _Leaving] = {}  # by the job's id
        self._events: deque[Event] = deque()
        self._results: queue.SimpleQueue[_Looked | _Submitted] = queue.SimpleQueue()
        self._callers = ThreadPoolExecutor(CALLS, "caller")
        self._look_soon, self._ending = threading.Event(), threading.Event()
        self._looker: threading.Thread | None = None
        self._listened = 0.0
        self._eager = False
        self.others = Others(settings.data)

    # After a restart

    def adopt(self, orders: Collection[Order]) -> Mapping[Key, Found | Ended]:
        """Take over orders that have an intent: each may be a job, and the first look shows its
        state."""
        return {order.key: self._adopt(order) for order in orders}

    def _adopt(self, order: Order) -> Found | Ended:
        allocation = order.key.allocation
        written = folder.get(folder.job_folder(self._settings.data, allocation) / folder.JOB)
        if written is None:
            return Found.NEVER
        held = self._held.get(allocation)
        if held is None:
            held = self._held[allocation] = Held(allocation, len(order.body["nodes"]))
            held.id, held.cancelled = written.get("id", ""), written.get("cancelled", False)
            held.stage = Stage.SUBMITTED if held.id else Stage.UNSURE
            held.owner = written.get("owner")
            path = folder.job_folder(self._settings.data, allocation) / folder.WANTED
            held.wants = folder.get(path) or []
        held.tasks[order.key.task] = Task(order, Said(self._home / order.key.directory))
        return Found.ALIVE

    def sweep_unexplained(self, known: Collection[Key]) -> Swept:
        """Remove files that no order explains; jobs without one are cancelled when they are
        seen."""
        names = {key.directory for key in known}
        allocations = {key.allocation for key in known}
        for each in self._home.iterdir():
            if each.name not in names:
                shutil.rmtree(each, ignore_errors=True)
        for each in (self._settings.data / "jobs").iterdir():
            if each.name not in allocations:
                shutil.rmtree(each, ignore_errors=True)
        return Swept()

    # Instructions of the machine

    def launch(self, order: Order, deadline: float | None, done: Callable[[], None]) -> None:
        """Note the order; once the orders of all tasks are there, submit them as one job."""
        key = order.key
        held = self._held.setdefault(key.allocation, Held(key.allocation, len(order.body["nodes"])))
        held.tasks[key.task] = Task(order, Said(self._home / key.directory))
        if len(held.tasks) == held.size and held.stage is Stage.GATHERING:
            self._submit(held)

    def set_deadline(self, key: Key, deadline: float | None) -> None:
        """Do nothing: work on bridged nodes outlives silence."""

    def hint(self, key: Key, number: int, seconds_left: float, *, goes_on: bool) -> None:
        self._want(key, "hint", number, seconds_left, goes_on)

    def agree(self, key: Key, number: int, step: int) -> None:
        self._want(key, "agree", number, step)

    def go_on(self, key: Key) -> None:
        self._want(key, "go_on")

    def stop(self, key: Key, grace: float) -> None:
        held = self._held.get(key.allocation)
        task = held.tasks.get(key.task) if held else None
        if held is None or task is None:
            return
        until = self._clock() + grace + STUCK
        task.stop_until = until if task.stop_until is None else min(task.stop_until, until)
        if held.stage is Stage.GATHERING:
            self._over(held, task, Ended(key, None, STOPPED, "it was not submitted yet"))
        elif not task.started and self._forbid(key, STOPPED, "it had not begun"):
            # No task of it will ever run; a job that waits for it is cancelled when it is seen.
            self._over(held, task, Ended(key, None, STOPPED, "it had not begun"))
        else:
            self._want(key, "stop", grace)
        self._look_soon.set()

    def fence(self, key: Key) -> Ended | None:
        home = self._home / key.directory
        if not home.is_dir() or self._forbid(key, STOPPED, ""):
            return None
        held = self._held.get(key.allocation)
        if held is not None and held.id:
            self._call_cancel([held.id], kill=True)
        return Ended(key, None, KILLED, "it came after it had been forbidden")

    def forget(self, key: Key) -> None:
        shutil.rmtree(self._home / key.directory, ignore_errors=True)
        if not any(self._home.glob(f"{key.allocation}.*")):
            path = folder.job_folder(self._settings.data, key.allocation)
            shutil.rmtree(path, ignore_errors=True)

    def _want(self, key: Key, what: str, *given: object) -> None:
        held = self._held.get(key.allocation)
        if held is None or key.task not in held.tasks:
            return
        number = held.wants[-1][0] + 1 if held.wants else 1
        held.wants = [*held.wants, [number, key.task, what, list(given)]][-folder.WANTED_MAX :]
        path = folder.job_folder(self._settings.data, key.allocation) / folder.WANTED
        try:
            folder.put(path, held.wants, held.owner)
        except OSError as error:  # a stop that the member does not get is left to the cluster
            _log.error("cannot tell a member", attempt=key.directory, why=str(error))

    def _forbid(self, key: Key, cause: str, text: str) -> bool:
        """Make sure that no member starts the task; False where one has."""
        ours = {"job": "", "cause": cause, "text": text}
        try:
            return folder.claim(self._home / key.directory, ours).get("job") == ""
        except (OSError, ValueError):
            return False

    # Submitting

    def _submit(self, held: Held) -> None:
        asks_first = held.stage is Stage.UNSURE
        held.stage = Stage.CALLING
        self._callers.submit(self._submitted, held, held.orders, asks_first)

    def _submitted(self, held: Held, orders: list[Order], asks_first: bool) -> None:
        """Submit a job, in a thread of its own, and queue the result."""
        allocation, key = held.allocation, orders[0].key
        try:
            result = self._try_submit(held, orders, asks_first)
        except Unreachable as error:
            result = _Submitted(allocation, unsure=str(error))
        except (NotTaken, Refused) as error:
            result = _Submitted(allocation, failed=LaunchFailed(key, str(error), refused=True))
        except (NotAllowed, ImportError) as error:
            ended = Ended(key, NOT_EXECUTED, "start_failed", str(error))
            result = _Submitted(allocation, failed=ended)
        except (OSError, CedeError) as error:
            failed = LaunchFailed(key, f"cannot start work: {error}")
            result = _Submitted(allocation, failed=failed)
        self._results.put(result)

    def _try_submit(self, held: Held, orders: list[Order], asks_first: bool) -> _Submitted:
        allocation = held.allocation
        jobs = folder.job_folder(self._settings.data, allocation)
        name = PREFIX + allocation
        if asks_first:
            found = self._cluster.find(name)
            claim = folder.claimed(self._home / orders[0].key.directory) or {}
            mine = str(claim.get("job") or "")
            ids = [each.id for each in found]
            if mine.isdigit() or ids:
                id = mine if mine.isdigit() and (mine in ids or not ids) else ids[0]
                folder.put(jobs / folder.JOB, {"id": id, "owner": held.owner})
                return _Submitted(allocation, id)
        account = self._account(orders[0])
        held.owner = None if account.user is None else account.user.uid
        self._prepare(jobs, orders, account)
        crash.at("intent_before")
        folder.put(jobs / folder.JOB, {"owner": held.owner})
        crash.at("intent_after")
        id = self._cluster.submit(self._wanted(name, orders, account))
        folder.put(jobs / folder.JOB, {"id": id, "owner": held.owner})
        crash.at("number_after")
        return _Submitted(allocation, id)

    def _account(self, order: Order) -> Account:
        body, settings = order.body, self._settings
        submitters = [each for each in (body.get("owner"), body.get("subject")) if each]
        asked, root = body["work"].get("user") or "", settings.allow_root_jobs
        return account_for(submitters, asked, settings.users, allow_root=root)

    def _prepare(self, jobs: Path, orders: list[Order], account: Account) -> None:
        """Write everything that a member reads or writes before its job exists."""
        owner = None if account.user is None else account.user.uid
        jobs.mkdir(mode=0o711, exist_ok=True)
        for order in orders:
            give(self._home / order.key.directory, account, 0o711)
            if protocol_of(order):
                checkpoints = checkpoint_directory(order, self._settings)
                checkpoints.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
                give(checkpoints, account)
                shelf.clean(checkpoints, None, idle=True)  # K9: no process writes there now
        told = {
            "orders": [order_json(each) for each in orders],
            "checkpoints": str(self._settings.checkpoints),
            "log_bytes": self._settings.log_bytes,
        }
        folder.put(jobs / folder.ORDER, told, owner)

    def _wanted(self, name: str, orders: list[Order], account: Account) -> Wanted:
        body = orders[0].body
        tasks: dict[str, int] = {}
        for node in body["nodes"]:
            tasks[node] = tasks.get(node, 0) + 1
        data, first = self._settings.data, orders[0].key
        path = Path(cede.__file__).parents[1]
        run = [sys.executable, "-m", "cede.bridge.member", str(data), first.allocation]
        other = account.user if account.user and account.user.uid != os.geteuid() else None
        walltime = body.get("walltime")
        return Wanted(
            name,
            tasks,
            body["amounts"],
            ["env", f"PYTHONPATH={path}", "PYTHONSAFEPATH=1", *run],
            "/",
            str(self._home / first.directory / JOB_LOG),
            None if walltime is None else float(walltime) + orders[0].grace,
            account.name if other else None,
            str(other.gid) if other else "",
        )

    # Events

    def poll(self, now: float) -> Iterator[Event]:
        if self._looker is None:
            self._looker = threading.Thread(target=self._keep_looking, name="looker", daemon=True)
            self._looker.start()
            for held in self._held.values():
                if held.stage is Stage.UNSURE:
                    self._submit(held)
        yield from self.looked()
        while not self._results.empty():
            result = self._results.get()
            if isinstance(result, _Submitted):
                self._take_submitted(result, now)
            else:
                self._take_look(result, now)
        if now >= self._listened:
            self._listened = now + max(LISTEN, LISTEN_EACH * len(self._held))
            for held in list(self._held.values()):
                self._listen(held, now)
        while self._events:
            yield self._events.popleft()

    def _keep_looking(self) -> None:
        """Look at the cluster, in a thread of its own, sooner while a change is expected."""
        while not self._ending.is_set():
            began = self._clock()
            try:
                result = _Looked(began, self._cluster.look())
            except CedeError as error:
                result = _Looked(began, None, str(error))
            except Exception as error:
                # An unreadable answer must not end the thread: the cluster would never be looked at
                # again.
                _log.exception("cannot read what the cluster says")
                result = _Looked(began, None, f"cannot read what it says: {error!r}")
            self._results.put(result)
            took = self._clock() - began
            soon = max(EAGER, EAGER_TIMES * took)
            self._look_soon.wait(min(soon, self._period) if self._eager else self._period)
            self._look_soon.clear()
            self._ending.wait(min(EAGER_TIMES * took, EAGER))

    def _take_submitted(self, result: _Submitted, now: float) -> None:
        held = self._held.get(result.allocation)
        if held is None:  # every task of it was stopped meanwhile: it is cancelled when it is seen
            return
        if result.id:
            held.stage, held.id, held.known_at = Stage.SUBMITTED, result.id, now
        elif result.unsure:
            held.stage = Stage.UNSURE
            _log.warning("not submitted yet", job=result.allocation, why=result.unsure)
        else:
            for task in list(held.tasks.values()):
                self._over(held, task, _for(result.failed, task.order.key))

    def _take_look(self, looked: _Looked, now: float) -> None:
        if looked.seen is None:
            self.others.is_away(looked.why)
            return
        seen = looked.seen
        jobs = {each.id: each for each in seen.jobs}
        self._leaving = {
            id: each
            for id, each in self._leaving.items()
            if each.known_at >= looked.began
            or (id in jobs and jobs[id].job_state is not JobState.OVER)
        }
        for held in list(self._held.values()):
            if held.stage is Stage.UNSURE:
                self._submit(held)
            elif held.stage is Stage.SUBMITTED and held.known_at < looked.began:
                self._judge(held, jobs.get(held.id), now, looked.began)
        self._cancel_strays(seen.jobs, looked.began, now)
        self.others.seen(seen, self._running(jobs))
        self._eager = any(
            held.cancelled or any(task.ended for task in held.tasks.values())
            for held in self._held.values()
        )

    def _judge(self, held: Held, job: Job | None, now: float, began: float) -> None:
        """Note a job's state, and act on what follows from it for its tasks."""
        held.job = job
        if job is None:
            job = Job(held.id, "", JobState.OVER, "it knows the job no more", end=End.FAILED)
        if job.job_state is JobState.OVER:
            self._listen(held, now)
            for task in list(held.tasks.values()):
                if job.end is End.FAILED and task.ended is None:
                    # A node that its cluster gave up may live, and its work with it.
                    self._want(task.order.key, "stop", 0.0)
                self._over(held, task, self._end_of(held, task, job))
        elif job.job_state is JobState.WAITING and not held.cancelled:
            held.waits += not self._waits_for_ours(held)
            turn = job.why in ("None", "Priority")
            if held.waits >= WAITS and not (turn and now < held.known_at + PATIENCE):
                self._take_back(held, job)
        elif job.job_state is JobState.RUNNING:
            held.waits = 0
            held.ran_at = held.ran_at if job.is_ending else began

    def _waits_for_ours(self, held: Held) -> bool:
        """Whether another job of this bridge is about to leave one of its nodes."""
        nodes = held.orders[0].body["nodes"]
        return any(not set(each.nodes).isdisjoint(nodes) for each in self._leaving.values())

    def _take_back(self, held: Held, job: Job) -> None:
        """Cancel a job that its cluster does not start, so that no other waits behind it."""
        why = f"{self._cluster.kind} job {job.id} waits: {job.why}"
        cause = BUSY if job.is_others else REFUSED
        begun = [self._forbid(task.order.key, cause, why) for task in held.tasks.values()]
        if not any(begun):
            return  # it has begun, and the next look sees it
        if job.is_others and job.why == "Priority":
            self.others.keep_off(held.orders[0].body["nodes"])
        self._cancel(held, kill=False)

    def _end_of(self, held: Held, task: Task, job: Job) -> Ended:
        """Return how a task ended: as its member saw it, unless the cluster ended the job
        without being asked to."""
        key, said = task.order.key, task.ended
        claim = folder.claimed(self._home / key.directory) or {}
        asked = task.stop_until is not None or held.cancelled
        by_cluster = job.end is not End.ITSELF and not asked
        if said is not None and (
            not by_cluster or said.exit_code == 0 or said.cause in OWN_ENDS or job.id == ""
        ):
            return said
        if claim.get("job") == "" and claim.get("cause"):
            return Ended(key, None, str(claim["cause"]), str(claim.get("text") or ""))
        if asked:
            return Ended(key, None, KILLED, f"{self._cluster.kind} job {job.id} was cancelled")
        kind, state = self._cluster.kind, job.state.removeprefix("it ")
        if job.end is End.ITSELF:
            why = f"{kind} job {job.id} ended ({job.state}), and nobody says how its work did"
            last = folder.last_line(self._home / f"{held.allocation}.0", JOB_LOG)
            return Ended(key, None, INFRASTRUCTURE, f"{why}: {last}" if last else why)
        more = f" ({job.why})" if job.why not in ("", "None") else ""
        unread = bool(protocol_of(task.order))
        text = f"{kind} job {job.id}: {state}{more}"
        return Ended(key, None, CAUSES[job.end or End.FAILED], text, unread)

    def _over(self, held: Held, task: Task, event: Event) -> None:
        """Report the end of a task and forget it."""
        key = task.order.key
        del held.tasks[key.task]
        if not held.tasks:
            self._held.pop(held.allocation, None)
        if isinstance(event, Ended):
            self._record(key, event)
        self._events.append(event)

    def _record(self, key: Key, ended: Ended) -> None:
        """Record the end in the task's folder, so that readers of its output know that no more
        comes."""
        with suppress(OSError), places.Place(self._home / key.directory) as place:
            place.create(
                places.EXIT,
                {
                    "cause": ended.cause,
                    "code": ended.exit_code,
                    "signal": None,
                    "oom": False,
                    "error": ended.text,
                    "started_at": None,
                    "ended_at": self._clock(),
                },
            )

    def _listen(self, held: Held, now: float) -> None:
        for task in list(held.tasks.values()):
            for line in task.said.read():
                self._hear(task, line)
            if task.stop_until is not None and now >= task.stop_until and task.ended is None:
                task.stop_until = now + STUCK
                self._cancel(held, kill=True)
        if held.stage is not Stage.SUBMITTED or (held.job is not None and held.job.end is not None):
            return
        nodes, amounts = _held_by(held)
        for task in [each for each in held.tasks.values() if each.ended is not None]:
            assert task.ended is not None
            if self._is_own_end(held, task, task.ended):
                self._over(held, task, task.ended)
            elif not self._eager:
                self._eager = True
                self._look_soon.set()
        if not held.tasks:
            # The next job on these nodes is submitted meanwhile: its cluster lets it wait.
            self._leaving[held.id] = _Leaving(nodes, amounts, held.known_at, now + LEAVES)

    def _is_own_end(self, held: Held, task: Task, ended: Ended) -> bool:
        """Whether a task ended by itself or by this bridge. A cluster that ends a job signals
        its tasks one by one, so a failure counts as the task's own once the job was seen to run
        on after it.
        """
        asked = task.stop_until is not None or held.cancelled
        own = ended.exit_code == 0 or ended.cause in OWN_ENDS
        return asked or own or held.ran_at > task.ended_at

    def _hear(self, task: Task, line: folder.Json) -> None:
        """Take in one line of a member, which is believed about its own task only."""
        key, attempt = task.order.key, task.order.attempt
        try:
            match line.get("event"):
                case "started" if not task.started:
                    task.started = True
                    self._events.append(Started(key, _devices(line.get("devices") or {})))
                case "heard":
                    report = _report(key, attempt, line["report"])
                    self._events.append(Heard(report))
                case "ended" if task.ended is None:
                    task.ended, task.ended_at = _ended(key, line), self._clock()
        except (KeyError, TypeError, ValueError) as error:
            _log.warning(
                "a member said something unreadable", attempt=key.directory, why=repr(error)
            )

    # Cancelling

    def _cancel(self, held: Held, *, kill: bool) -> None:
        if not held.id:
            return
        jobs = folder.job_folder(self._settings.data, held.allocation)
        if not held.cancelled:
            held.cancelled = True
            with suppress(OSError):
                told = {"id": held.id, "owner": held.owner, "cancelled": True}
                folder.put(jobs / folder.JOB, told)
        self._call_cancel([held.id], kill=kill)

    def _call_cancel(self, ids: Sequence[str], *, kill: bool) -> None:
        def call() -> None:
            try:
                self._cluster.cancel(ids, kill=kill)
            except CedeError as error:
                _log.warning("cannot cancel", jobs=list(ids), why=str(error))
            self._eager = True
            self._look_soon.set()

        self._callers.submit(call)

    def _cancel_strays(self, jobs: Sequence[Job], began: float, now: float) -> None:
        """Cancel jobs with this bridge's mark that no attempt explains, that come second, or
        that do not leave."""
        strays = []
        for job in jobs:
            held = self._held.get(job.name.removeprefix(PREFIX))
            first = held is not None and (held.id in ("", job.id) or held.known_at >= began)
            leaves = job.id in self._leaving and now < self._leaving[job.id].until
            if job.job_state is not JobState.OVER and not first and not leaves:
                strays.append(job.id)
        if strays:
            _log.warning("cancelling jobs that nothing explains", jobs=strays)
            self._call_cancel(strays, kill=True)

    def _running(self, jobs: Mapping[str, Job]) -> Iterator[tuple[str, Mapping[str, int]]]:
        """Return the node and the amounts of each task of the bridge's running jobs."""
        held = {each.id: _held_by(each) for each in self._held.values()}
        held |= {id: (each.nodes, each.amounts) for id, each in self._leaving.items()}
        for id, (nodes, amounts) in held.items():
            if id in jobs and jobs[id].job_state is JobState.RUNNING:
                yield from ((node, amounts) for node in nodes)

    # Further facts for the server

    @property
    def has_changed(self) -> bool:
        return self.others.take_changed()

    @property
    def has_news(self) -> bool:
        return self.others.take_news()

    def news(self) -> wire.Json:
        found = self.others.untold()
        return {"others": found} if found else {}

    def told(self, said: wire.Json) -> None:
        self.others.told(said.get("others") or ())

    def _is_live(self, key: Key) -> bool:
        held = self._held.get(key.allocation)
        return held is not None and key.task in held.tasks

    def close(self) -> None:
        self._ending.set()
        self._look_soon.set()
        self._callers.shutdown(wait=True, cancel_futures=True)
        self.close_shelves()


def _held_by(held: Held) -> tuple[tuple[str, ...], Mapping[str, int]]:
    """Return the node of each task of a job that is not over, and the amounts of one task."""
    body = next(iter(held.tasks.values())).order.body
    return tuple(body["nodes"]), body["amounts"]


def _for(event: Event | None, key: Key) -> Event:
    """Return the same event for another task."""
    if isinstance(event, LaunchFailed):
        return LaunchFailed(key, event.why, event.refused)
    assert isinstance(event, Ended)
    return Ended(key, event.exit_code, event.cause, event.text)


def _devices(given: Mapping[str, Any]) -> dict[str, list[str]]:
    return {
        str(key): [str(each) for each in names][: bounds.DEVICES_MAX]
        for key, names in given.items()
    }


def _ended(key: Key, line: folder.Json) -> Ended:
    code = line["exit_code"]
    if code is not None and not 0 <= int(code) <= 255:
        raise ValueError(code)
    text = str(line.get("text") or "")[: bounds.DESCRIPTION_LENGTH_MAX]
    return Ended(key, code, str(line["cause"])[:64], text, line.get("unread") is True)


def _report(key: Key, attempt: int, given: folder.Json) -> Report:
    most = bounds.NAME_LENGTH_MAX
    kind = Kind(given["kind"])
    if kind in (Kind.STARTED, Kind.ENDED, Kind.REFUSED, Kind.FOUND):
        raise ValueError(kind)
    return Report(
        key,
        attempt,
        kind,
        checkpoint=str(given["checkpoint"])[:most],
        size=max(0, int(given["size"])),
        hint=max(0, int(given["hint"])),
        seconds=max(0.0, float(given["seconds"])),
        text=str(given["text"])[: bounds.DESCRIPTION_LENGTH_MAX],
        step=max(0, int(given["step"])),
    )
