"""Watches one child while it holds its units: signals, notice, grace, lost leases."""

from __future__ import annotations

import signal
from collections.abc import Callable

from cede.client import clock
from cede.client.child import Child
from cede.client.client import Client
from cede.client.errors import CedeClientError
from cede.client.http import API, Json, segment
from cede.client.interruptions import AGAIN_WITHIN, Interruptions
from cede.client.lease import Lease
from cede.model import bounds

Notify = Callable[[str, str], None]

TICK = 0.2
# The time that work has to end when a library's caller presses Ctrl-C; `cede run` passes signals on
# and waits.
INTERRUPT_GRACE = 5.0
# Asking for the pool's grace must not use it up: well below the server's margin for stops.
GRACE_TIMEOUT = 2.0


class Watch:
    """Watches one child, passes signals and stops on to it, and waits for its end."""

    def __init__(
        self,
        child: Child,
        lease: Lease | None,
        interruptions: Interruptions,
        notify: Notify,
        client: Client,
    ) -> None:
        self.told = False
        self.lost = False
        self._child = child
        self._lease = lease
        self._interruptions = interruptions
        self._cancelling = False
        self._away = False
        self._notify = notify
        self._client = client

    def until_over(self) -> int:
        while (exit_code := self._child.wait(TICK)) is None:
            self._pass_signals_on()
            if self._lease is not None:
                self._mind(self._lease)
        if self.told and exit_code == -signal.SIGKILL:
            self._notify("killed", "it did not stop in time")
        return exit_code

    def guarded(self) -> int:
        """Wait for the end; when that is interrupted, the work is ended before this returns."""
        try:
            return self.until_over()
        except BaseException:
            self._child.signal(signal.SIGTERM)
            if self._child.wait(INTERRUPT_GRACE) is None:
                self._child.kill()
                self._child.wait(INTERRUPT_GRACE)
            raise
        finally:
            self._child.close()

    def _pass_signals_on(self) -> None:
        given = self._interruptions
        if given.cancelled is not None:
            if clock.now() >= given.kill_at:
                self._child.kill()
            elif not self._cancelling:
                self._child.signal(given.cancelled)
            self._cancelling = True
            return
        if given.is_survived():
            self._notify(
                "Ctrl-C", f"it went to the command; twice within {AGAIN_WITHIN:g} s cancels"
            )
        for number in given.take():
            self._child.signal(number)

    def _mind(self, lease: Lease) -> None:
        self._tell_absence(lease)
        if lease.refused is not None and not self.lost:
            self.lost = True
            self._notify("lost", lease.refused.message)
            self._child.kill()
        elif lease.preempting.is_set() and not self.told:
            self.told = True
            self._child.signal(signal.SIGTERM)
            self._notify(_word(lease.request), reason_of(lease.request))
            # From now on the grace is the bound, and the supervisor holds it without us.
            told_at = clock.now()
            self._child.lease(told_at + self._grace(lease.request))
        elif self._nearly_over(lease) and not self.lost:
            self.lost = True
            self._notify("lost", "no renewal reached the server, and the lease is nearly over")
            self._child.signal(signal.SIGTERM)

    def _tell_absence(self, lease: Lease) -> None:
        """Notify once per absence of the server what becomes of the work."""
        before, self._away = self._away, lease.away
        if before or not self._away or lease.refused is not None:
            return
        if lease.outlives_server:
            self._notify("server away", "the work goes on")
        elif lease.ends_at is not None:
            left = max(lease.ends_at - clock.now(), 0.0)
            self._notify("server away", f"the work goes on while its lease lasts: {left:.0f} s")

    def _nearly_over(self, lease: Lease) -> bool:
        """Whether to ask the work to stop; the supervisor kills it at the end of the lease in any
        case.
        """
        if lease.ends_at is None or lease.seconds is None:
            return False
        return clock.now() >= lease.ends_at - min(lease.seconds / 6, bounds.GRACE_DEFAULT / 1000)

    def _grace(self, request: Json) -> float:
        default = bounds.GRACE_DEFAULT / 1000
        pool = (request.get("allocation") or request).get("pool")
        try:
            path = f"{API}/pools/{segment(str(pool))}"
            found = self._client.http.call("GET", path, timeout=GRACE_TIMEOUT, attempts=1)
            return float(found["settings"]["grace"])
        except (CedeClientError, KeyError, TypeError, ValueError):
            return default


def _word(request: Json) -> str:
    """Return the word for a stop: a cancelled request is not preempted for another."""
    code = (request.get("reason") or {}).get("code")
    return "cancelling" if code == "cancelled" else "preempting"


def reason_of(request: Json) -> str:
    """Return the sentence of a request's reason, or an empty text."""
    return str((request.get("reason") or {}).get("text", ""))
