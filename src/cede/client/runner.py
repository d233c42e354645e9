"""Runs work in a child process for as long as it holds its units, across attempts.

One attempt: wait for the grant, start the work, renew, and end it in one of four ways: it ends by
itself, it is told to stop (SIGTERM, grace, SIGKILL), its lease is lost (dead before the lease's
end), or the runner's parent sends a signal. Work that can save itself is asked to before it is told
to stop (`stop`), and its next attempt goes on from there. Only when all processes of the work are
gone are the units given back.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NoReturn
from uuid import uuid4

from cede.checkpoint.line import conversation_of
from cede.client import clock, devices
from cede.client.child import Child, containment
from cede.client.client import Client
from cede.client.devices import Taken
from cede.client.errors import (
    CedeClientError,
    Conflict,
    LeaseLost,
    Preempted,
    ServerUnreachable,
    ending,
)
from cede.client.http import Json
from cede.client.interruptions import Interrupted, Interruptions
from cede.client.lease import Lease
from cede.client.stopping import Stopping, checkpoints
from cede.client.waiting import HOLDING, WAITING, Waited, give_up, wait_for_grant
from cede.client.watch import INTERRUPT_GRACE, Notify, Watch, reason_of
from cede.launch.here import boot_id, hostname

# Between two tries to give units back to a server that is away.
GIVE_BACK_PAUSE = 1.0

Work = Callable[[], NoReturn]
MakeWork = Callable[[dict[str, str]], Work]


@dataclass(frozen=True, slots=True)
class Ended:
    """How an attempt ended. `exit_code` is negative for a signal; `told`: it was asked to stop.

    `sent_at` is when the report was sent: the lease of a next attempt may count from there.
    """

    exit_code: int
    request: Json
    told: bool = False
    sent_at: float = 0.0


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The agent of another machine runs the work; the caller follows it there."""

    request: Json


class Runner:
    """One request and the work that holds it. `interrupt` may be called from a signal handler."""

    def __init__(
        self,
        client: Client,
        body: Json,
        *,
        on_wait: Callable[[Json], None] | None = None,
        notify: Notify | None = None,
        wait_timeout: float | None = None,
        whole_story: bool = False,
        checkpoint_dir: Path | None = None,
        work: Callable[[], Json] | None = None,
    ) -> None:
        """`work` is what the agent of a node runs if the grant is on another machine than this;
        without it everything runs here.
        """
        self._client = client
        self._body = body
        self._work = work
        self._on_wait = on_wait
        self._notify = notify or (lambda kind, text: None)
        self._wait_timeout = wait_timeout
        self._whole_story = whole_story
        self._checkpoint_dir = checkpoint_dir
        self.interruptions = Interruptions()

    def interrupt(self, number: int) -> None:
        """Pass a signal on to the work; see `Interruptions` for what a second one does."""
        self.interruptions.signal(number)

    def cancel(self) -> None:
        """End the work and the request; any thread may call it, repeatedly."""
        self.interruptions.cancel(signal.SIGTERM, INTERRUPT_GRACE)

    def run(self, make_work: MakeWork) -> Ended | HandedOver:
        """Submit, then run attempt after attempt until the request is over or handed over.

        Raises the cause of the end, unless that was the work itself.
        """
        if self.interruptions.waiting.is_set():
            raise Interrupted(self.interruptions.number)
        sent_at = clock.now()
        request = self._client.requests.create(self._body)
        if request.get("tracked") is False:
            return self._run_untracked(request, make_work)
        while True:
            request, sent_at = self._wait(request, sent_at)
            if (elsewhere := self._hand_over(request)) is not None:
                return elsewhere
            ended = self._attempt(request, sent_at, make_work)
            request = ended.request
            if error := _outside_cause(ended):
                raise error
            if request["status"] not in (*WAITING, *HOLDING):
                return ended
            if self.interruptions.passed_on and not ended.told:
                # It ended by a signal that was passed on: retries are not for that.
                give_up(self._client, request)
                return ended
            # Back in the queue, or already granted again by the pass that took the units back.
            self._notify("requeued", reason_of(request))
            sent_at = ended.sent_at

    def _wait(self, request: Json, sent_at: float) -> Waited:
        # In a thread, because the user is told meanwhile why the request waits.
        ready = threading.Thread(target=self._get_ready, args=(request,), daemon=True)
        if request["status"] in WAITING:
            ready.start()
        try:
            waited = wait_for_grant(
                self._client,
                request,
                sent_at=sent_at,
                on_wait=self._on_wait,
                timeout=self._wait_timeout,
                interrupted=self.interruptions.waiting,
                whole_story=self._whole_story,
            )
        except KeyboardInterrupt:
            give_up(self._client, request)
            raise
        if self.interruptions.waiting.is_set():
            give_up(self._client, request)
            raise Interrupted(self.interruptions.number)
        if ready.ident is not None:
            ready.join()  # the work is forked from this process: no other thread may be at it
        return waited

    def _get_ready(self, request: Json) -> None:
        """Find out what a start needs, before the grant: containment and GPUs."""
        with contextlib.suppress(Exception):  # the start asks again, and reports the error
            containment()
            if _gpus(request):
                _ = self._devices

    def _hand_over(self, request: Json) -> HandedOver | None:
        """Hand a grant on another machine to the agent there; None if it is to run here."""
        if self._work is None or not _members(request):
            return None
        here = {"name": hostname(), "boot": boot_id()}
        try:
            after = self._client.requests.hand_over(
                request["id"], self._work(), attempt=int(request["attempt"]), here=here
            )
        except Conflict:
            return None  # it is to stop already: the attempt begins, learns of it and ends
        except CedeClientError:
            give_up(self._client, request)
            raise
        return None if after["work"] is None else HandedOver(after)

    @cached_property
    def _devices(self) -> tuple[str, ...]:
        """The GPUs of this machine that work may get; asking a driver takes a while."""
        return devices.known() if devices.can_take() else ()

    def _take_devices(self, request: Json) -> Taken:
        """Take GPUs of this machine for a pool that only counts them; notifies where none are
        known."""
        count = _gpus(request)
        if not count or _members(request):
            return Taken({})
        names = self._devices
        if len(names) < count:
            has = f"none are assigned: {count} were granted, and this machine has {len(names)}"
            self._notify("devices", has if names else devices.UNKNOWN)
            return Taken({})
        try:
            return devices.take(count, names)
        except CedeClientError:
            give_up(self._client, request)
            raise

    def _run_untracked(self, request: Json, make_work: MakeWork) -> Ended:
        """Run without a policy: nothing is held, and the retries are counted here, not by the
        server."""
        self._notify("untracked", reason_of(request))
        retry = request.get("retry") or {}
        pause = float(retry.get("delay", 0))
        for attempt in range(1, int(retry.get("max_retries", 0)) + 2):
            facts = {"CEDE_ATTEMPT": str(attempt), "CEDE_SERVER": self._client.server}
            child = Child(make_work(facts))
            watch = Watch(child, None, self.interruptions, self._notify, self._client)
            exit_code = watch.guarded()
            if (number := self._ended_by(exit_code)) is not None:
                raise Interrupted(number)
            if exit_code == 0 or self.interruptions.passed_on:
                break
            if self.interruptions.waiting.wait(pause):
                raise Interrupted(self.interruptions.number)
            pause *= int(retry.get("backoff", 1))
        return Ended(exit_code, {**request, "status": "released"})

    def _attempt(self, request: Json, sent_at: float, make_work: MakeWork) -> Ended:
        stopping, sent_at = self._stop_progress(request, sent_at)
        # Forked before any thread starts: a fork copies one thread and every lock.
        told = {} if stopping is None else stopping.environment()
        taken = self._take_devices(request)
        facts = self._environment(request, taken) | told
        with contextlib.closing(taken):
            child = Child(make_work(facts), kept=taken.descriptors)
        lease = Lease(
            self._client,
            request,
            sent_at=sent_at,
            on_renewed=lambda until: child.lease(until - _margin(request)),
        )
        if lease.ends_at is not None:
            child.lease(lease.ends_at - _margin(request))
        self._notify("granted", f"attempt {request['attempt']} in pool {request.get('pool')}")
        lease.start()
        watch = Watch(child, lease, self.interruptions, self._notify, self._client)
        try:
            if stopping is not None:
                stopping.start(lease, child.processes)
            exit_code = watch.guarded()
            is_cancelled = self.interruptions.cancelled is not None
            if stopping is not None and exit_code != 0 and not (watch.lost or is_cancelled):
                stopping.hear_the_rest(self.interruptions.waiting)
        except BaseException:
            give_up(self._client, lease.request)
            raise
        finally:
            if stopping is not None:
                stopping.close()
            lease.stop()
        if (number := self._ended_by(exit_code, told=watch.told)) is not None:
            give_up(self._client, lease.request)
            raise Interrupted(number)
        saved = stopping is not None and stopping.saved
        outcome = _outcome(lease.request, exit_code, told=watch.told)
        after = self._give_back(lease, watch, exit_code, outcome)
        return Ended(exit_code, after.request, outcome == "stopped" or saved, after.sent_at)

    def _ended_by(self, exit_code: int, *, told: bool = False) -> int | None:
        """Return the signal by which the runner's parent ended the work; None if it ended by
        itself, or was `told` to stop for others.
        """
        if self.interruptions.cancelled is not None:
            return self.interruptions.cancelled
        died = exit_code < 0 and not told
        return -exit_code if died and self.interruptions.passed_on else None

    def _stop_progress(self, request: Json, sent_at: float) -> tuple[Stopping | None, float]:
        """Open the conversation with the work; return it and when the lease was last renewed, since
        verifying where to start may take longer than a lease.
        """
        if not checkpoints(request):
            return None, sent_at
        verifying = _Verifying(self._client, request, sent_at, self.interruptions)
        try:
            stopping = Stopping(
                self._client, request, self._checkpoint_dir, self._notify, verifying.go_on
            )
            return stopping, verifying.sent_at
        except (OSError, ImportError) as error:
            give_up(self._client, request)
            raise CedeClientError(f"no checkpoints can be made: {error}") from error
        except CedeClientError:
            give_up(self._client, request)
            raise

    def _give_back(self, lease: Lease, watch: Watch, exit_code: int, outcome: str) -> Waited:
        """Report the end of an attempt; return the request as it is after that."""
        request = lease.request
        key = str(uuid4())
        # Several tries fit into the shortest lease, so that a request that may go on does.
        pause = min(GIVE_BACK_PAUSE, lease.interval / 4)
        is_said = False
        while not (watch.lost or lease.lost):
            sent_at = clock.now()
            try:
                after = self._client.requests.release(
                    request["id"],
                    outcome=outcome,
                    attempt=int(request["attempt"]),
                    exit_code=_shell_code(exit_code),
                    key=key,
                    attempts=1,
                )
                return Waited(after, sent_at)
            except Conflict:
                break
            except ServerUnreachable:
                lease.unanswered(sent_at)
            if lease.away and not is_said:
                is_said = True
                self._notify("server away", "the work has ended; waiting to give its units back")
            if self.interruptions.waiting.wait(pause):
                raise Interrupted(self.interruptions.number)
        return self._after_loss(lease)

    def _after_loss(self, lease: Lease) -> Waited:
        """Return the request if it lives on in a next attempt, else raise why it was lost."""
        sent_at = clock.now()
        request = lease.request
        with contextlib.suppress(CedeClientError):
            request = self._client.requests.renew(request["id"])
            if request["status"] in (*WAITING, *HOLDING):
                return Waited(request, sent_at)
        raise ending(request) or LeaseLost(
            f"the lease of request {request['id']} was lost, and its work was killed",
            fix="check the network between this machine and the server, or ask for a longer lease",
        )

    def _environment(self, request: Json, taken: Taken) -> dict[str, str]:
        told = {
            "CEDE_REQUEST_ID": str(request["id"]),
            "CEDE_ATTEMPT": str(request["attempt"]),
            "CEDE_POOL": str((request.get("allocation") or request).get("pool") or ""),
            "CEDE_SERVER": self._client.server,
        }
        for member in _members(request):
            told["CEDE_NODE"] = member["node"]
            # A step is granted a node that may be another machine, whose devices mean nothing here.
            if self._work is not None or member["node"] == hostname():
                told[devices.VISIBLE] = ",".join(member["devices"].get("gpu") or ())
        if taken.names:
            told[devices.VISIBLE] = ",".join(taken.names)
        return told


class _Verifying:
    """Renews a lease in the thread that verifies: no other may run before the work is forked."""

    def __init__(
        self, client: Client, request: Json, sent_at: float, interruptions: Interruptions
    ) -> None:
        self.sent_at = sent_at
        self._lease = Lease(client, request, sent_at=sent_at)
        self._next = sent_at + self._lease.interval
        self._interruptions = interruptions

    def go_on(self) -> None:
        """Renew if it is time; raise if the attempt cannot go on."""
        if self._interruptions.waiting.is_set():
            raise Interrupted(self._interruptions.number)
        if clock.now() < self._next:
            return
        self.sent_at = self._lease.renew()
        interval = self._lease.interval
        self._next = max(self.sent_at + interval, clock.now() + interval / 4)
        if self._lease.refused is not None:
            raise self._lease.refused


def _outcome(request: Json, exit_code: int, *, told: bool) -> str:
    """Return the outcome to report. Whether an exit code after an unasked end is a failure, the
    server judges: it knows what was announced, and what was saved.
    """
    if told:
        is_victim = (request.get("reason") or {}).get("code") != "cancelled"
        done = exit_code == 0 and is_victim and request.get("interruptible")
        return "done" if done else "stopped"
    return "done" if exit_code == 0 else "failed"


def _outside_cause(ended: Ended) -> CedeClientError | None:
    """Return the error of a request that was ended by something other than its work."""
    status = ended.request["status"]
    error = ending(ended.request)
    if status == "failed" and ended.told:
        # Preemptions used up its retries, or this one came after the last of them.
        return Preempted(str(error), reason=ended.request.get("reason"))
    return error if status in ("rejected", "preempted", "cancelled") else None


def _gpus(request: Json) -> int:
    return int((request.get("resources") or {}).get("gpu", 0))


def _members(request: Json) -> list[Json]:
    """The members of its allocation, in a pool of nodes."""
    return list((request.get("allocation") or {}).get("members") or ())


def _margin(request: Json) -> float:
    """Return how long before the end of the lease the work must be dead."""
    lease = request.get("lease")
    return min(1.0, lease / 20) if isinstance(lease, int | float) else 0.0


def _shell_code(exit_code: int) -> int:
    """Return the code as a shell tells it: 128 + n for signal n."""
    return exit_code if exit_code >= 0 else 128 - exit_code


def child_environment(extra: dict[str, str]) -> dict[str, str]:
    """Return our environment without the token and without the conversation of our own parent,
    which are not the child's, plus `extra`."""
    ours = {"CEDE_TOKEN", *conversation_of(os.environ)}
    return {key: value for key, value in os.environ.items() if key not in ours} | extra
