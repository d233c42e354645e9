"""Runs work in a child process for as long as it holds its units, across attempts.

One attempt: wait for the grant, start the work, renew, and end it in one of four ways: it ends by
itself, it is told to stop (SIGTERM, grace, SIGKILL), its lease is lost (dead before the lease's
end), or whoever started us sends a signal. Only when the whole tree of the work is gone are the
units given back.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from cede.client import clock
from cede.client.child import Child
from cede.client.client import Client
from cede.client.errors import (
    CedeClientError,
    Conflict,
    LeaseLost,
    Preempted,
    ServerUnreachable,
    ending,
)
from cede.client.http import Json
from cede.client.lease import Lease
from cede.client.waiting import WAITING, wait_for_grant
from cede.model import bounds

Work = Callable[[], NoReturn]
MakeWork = Callable[[dict[str, str]], Work]
Notify = Callable[[str, str], None]

TICK = 0.2
# What `cede run` gives its child after a first signal before it would need a second one: no bound.
# What a library caller's Ctrl-C gives it:
INTERRUPT_GRACE = 5.0


class Interrupted(CedeClientError):
    """A signal came from whoever started us; `number` says which."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by signal {number}")
        self.number = number


@dataclass(frozen=True, slots=True)
class Ended:
    """How an attempt ended. `exit_code` is negative for a signal; `told`: it was asked to stop."""

    exit_code: int
    request: Json
    told: bool = False


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
    ) -> None:
        self._client = client
        self._body = body
        self._on_wait = on_wait
        self._notify = notify or (lambda kind, text: None)
        self._wait_timeout = wait_timeout
        self._signals: list[int] = []
        self._interrupted = threading.Event()

    def interrupt(self, number: int) -> None:
        """Pass a signal on to the work; a second one kills it."""
        self._signals.append(number)
        self._interrupted.set()

    def run(self, make_work: MakeWork) -> Ended:
        """Submit, then attempt after attempt until the request is over.

        Raises what ended it, unless that was the work itself.
        """
        sent_at = clock.now()
        request = self._client.requests.create(self._body)
        if request.get("tracked") is False:
            return self._run_untracked(request, make_work)
        while True:
            request, sent_at = self._wait(request, sent_at)
            ended = self._attempt(request, sent_at, make_work)
            request = ended.request
            if error := _outside_cause(ended):
                raise error
            if request["status"] not in WAITING:
                return ended
            self._notify("requeued", _reason(request))
            sent_at = clock.now()

    def _wait(self, request: Json, sent_at: float) -> tuple[Json, float]:
        try:
            waited = wait_for_grant(
                self._client,
                request,
                sent_at=sent_at,
                on_wait=self._on_wait,
                timeout=self._wait_timeout,
                interrupted=self._interrupted,
            )
        except KeyboardInterrupt:
            self._client.requests.cancel(request["id"])
            raise
        if self._signals:
            self._client.requests.cancel(request["id"])
            raise Interrupted(self._signals[0])
        return waited

    def _run_untracked(self, request: Json, make_work: MakeWork) -> Ended:
        """Nothing is held and nobody counts, so the retries are counted here."""
        self._notify("untracked", _reason(request))
        retry = request.get("retry") or {}
        pause = float(retry.get("delay", 0))
        for attempt in range(1, int(retry.get("max_retries", 0)) + 2):
            facts = {"CEDE_ATTEMPT": str(attempt), "CEDE_SERVER": self._client.server}
            child = Child(make_work(facts))
            watch = _Watch(child, None, self._signals, self._notify, self._client)
            exit_code = _guarded(child, watch)
            if exit_code == 0 or self._signals:
                break
            self._interrupted.wait(pause)
            pause *= int(retry.get("backoff", 1))
        if self._signals:
            raise Interrupted(self._signals[0])
        return Ended(exit_code, {**request, "status": "released"})

    def _attempt(self, request: Json, sent_at: float, make_work: MakeWork) -> Ended:
        # Forked before the lease's thread starts: a fork copies one thread and every lock.
        child = Child(make_work(self._environment(request)))
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
        watch = _Watch(child, lease, self._signals, self._notify, self._client)
        try:
            exit_code = _guarded(child, watch)
        except BaseException:
            self._give_up(lease)
            raise
        finally:
            lease.stop()
        if self._signals:
            self._give_up(lease)
            raise Interrupted(self._signals[0])
        return Ended(exit_code, self._give_back(lease, watch, exit_code), watch.told)

    def _give_back(self, lease: Lease, watch: _Watch, exit_code: int) -> Json:
        """Report the end of an attempt; the request as it is after that."""
        request = lease.request
        if watch.told:
            outcome = "stopped"
        else:
            outcome = "done" if exit_code == 0 else "failed"
        while not (watch.lost or lease.lost):
            try:
                return self._client.requests.release(
                    request["id"],
                    outcome=outcome,
                    attempt=int(request["attempt"]),
                    exit_code=_shell_code(exit_code),
                )
            except Conflict:
                break
            except ServerUnreachable:
                self._interrupted.wait(1.0)
        return self._after_loss(lease)

    def _after_loss(self, lease: Lease) -> Json:
        """Our attempt is no longer ours. It may have gone back to the queue; otherwise it is an
        error."""
        try:
            request = self._client.requests.get(lease.request["id"])
        except CedeClientError:
            request = lease.request
        if request["status"] in WAITING:
            return request
        raise ending(request) or LeaseLost(
            f"the lease of request {request['id']} was lost, and its work was killed",
            fix="check the network between this machine and the server, or ask for a longer lease",
        )

    def _give_up(self, lease: Lease) -> None:
        """We were told to end: the request ends too, and the units go back now, not with the
        lease."""
        request = lease.request
        try:
            self._client.requests.cancel(request["id"])
            self._client.requests.release(
                request["id"], outcome="stopped", attempt=int(request["attempt"])
            )
        except CedeClientError:
            pass  # the lease ends by itself

    def _environment(self, request: Json) -> dict[str, str]:
        return {
            "CEDE_REQUEST_ID": str(request["id"]),
            "CEDE_ATTEMPT": str(request["attempt"]),
            "CEDE_POOL": str((request.get("allocation") or request).get("pool") or ""),
            "CEDE_SERVER": self._client.server,
        }


class _Watch:
    """The conversation with one child while it holds its units."""

    def __init__(
        self,
        child: Child,
        lease: Lease | None,
        signals: list[int],
        notify: Notify,
        client: Client,
    ) -> None:
        self.told = False
        self.lost = False
        self._child = child
        self._lease = lease
        self._signals = signals
        self._passed_on = 0
        self._notify = notify
        self._client = client
        self._kill_at: float | None = None

    def until_over(self) -> int:
        while (exit_code := self._child.wait(TICK)) is None:
            self._pass_signals_on()
            if self._lease is not None:
                self._mind(self._lease)
            if self._kill_at is not None and clock.now() >= self._kill_at:
                self._notify("killed", "it did not stop in time")
                self._child.kill()
                self._kill_at = None
        return exit_code

    def _pass_signals_on(self) -> None:
        for number in self._signals[self._passed_on :]:
            self._passed_on += 1
            if self._passed_on == 1:
                self._child.signal(number)
            else:
                self._child.kill()

    def _mind(self, lease: Lease) -> None:
        if lease.refused is not None and not self.lost:
            self.lost = True
            self._notify("lost", lease.refused.message)
            self._child.kill()
        elif lease.preempting.is_set() and not self.told:
            self.told = True
            self._child.signal(signal.SIGTERM)
            self._notify("preempting", _reason(lease.request))
            self._kill_at = clock.now() + self._grace(lease.request)
            # From now on this is the bound, and the keeper holds it without us.
            self._child.lease(self._kill_at)
        elif self._nearly_over(lease) and not self.lost:
            self.lost = True
            self._notify("lost", "no renewal reached the server, and the lease is nearly over")
            self._child.signal(signal.SIGTERM)

    def _nearly_over(self, lease: Lease) -> bool:
        """Whether to ask the work to stop; the keeper kills it at the end of the lease whatever we
        do."""
        if lease.ends_at is None or lease.seconds is None:
            return False
        return clock.now() >= lease.ends_at - min(lease.seconds / 6, bounds.GRACE_DEFAULT / 1000)

    def _grace(self, request: Json) -> float:
        default = bounds.GRACE_DEFAULT / 1000
        pool = (request.get("allocation") or request).get("pool")
        try:
            return float(self._client.pools.get(str(pool))["settings"].get("grace", default))
        except (CedeClientError, KeyError, TypeError, ValueError):
            return default


def _outside_cause(ended: Ended) -> CedeClientError | None:
    """The error of a request that something other than its work ended."""
    status = ended.request["status"]
    error = ending(ended.request)
    if status == "failed" and ended.told:
        # Its retries were used up by preemptions, or this one came after the last of them.
        return Preempted(str(error), reason=ended.request.get("reason"))
    return error if status in ("rejected", "preempted", "cancelled") else None


def _guarded(child: Child, watch: _Watch) -> int:
    """Wait for the end; whatever interrupts us, the work is gone before we are."""
    try:
        return watch.until_over()
    except BaseException:
        child.signal(signal.SIGTERM)
        if child.wait(INTERRUPT_GRACE) is None:
            child.kill()
            child.wait(INTERRUPT_GRACE)
        raise
    finally:
        child.close()


def _margin(request: Json) -> float:
    """How long before the end of the lease the work must be dead."""
    lease = request.get("lease")
    return min(1.0, lease / 20) if isinstance(lease, int | float) else 0.0


def _shell_code(exit_code: int) -> int:
    """The code as a shell tells it: 128 + n for signal n."""
    return exit_code if exit_code >= 0 else 128 - exit_code


def _reason(request: Json) -> str:
    return str((request.get("reason") or {}).get("text", ""))


def child_environment(extra: dict[str, str]) -> dict[str, str]:
    """What a child sees: our environment without the token, which is ours alone, and its own
    facts."""
    kept = {key: value for key, value in os.environ.items() if key != "CEDE_TOKEN"}
    return kept | extra
