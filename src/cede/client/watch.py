"""The conversation with one child while it holds its units: signals, notice, grace, lost leases."""

from __future__ import annotations

import signal
from collections.abc import Callable

from cede.client import clock
from cede.client.child import Child
from cede.client.client import Client
from cede.client.errors import CedeClientError
from cede.client.http import Json
from cede.client.lease import Lease
from cede.model import bounds

Notify = Callable[[str, str], None]

TICK = 0.2
# What the Ctrl-C of a library's caller gives the work; `cede run` passes signals on and waits.
INTERRUPT_GRACE = 5.0


class Watch:
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

    def guarded(self) -> int:
        """Wait for the end; whatever interrupts us, the work is gone before we are."""
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
            self._notify("preempting", reason_of(lease.request))
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


def reason_of(request: Json) -> str:
    """The sentence of a request's reason, if it has one."""
    return str((request.get("reason") or {}).get("text", ""))
