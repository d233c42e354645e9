"""Keeping one attempt's lease, and knowing when it is lost.

A renewal counts from when it was SENT: whatever the network did in between, the server's count
started later, so our end of the lease is never after the server's. Whether the lease is over is
read from the clock, never from this thread, because a thread can hang in a call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from cede.client import clock
from cede.client.client import Client
from cede.client.errors import (
    CedeClientError,
    Conflict,
    Forbidden,
    LeaseLost,
    NotFound,
    Unauthorized,
    ending,
)
from cede.client.http import Json

# The notice to stop travels in these answers, so a holder asks this often, whatever its lease.
INTERVAL_MOST = 10.0
# After a lost answer: soon enough for several tries inside the shortest lease.
RETRY_MOST = 2.0


class Lease:
    """Renews one attempt in a thread from `start` to `stop`."""

    def __init__(
        self,
        client: Client,
        request: Json,
        *,
        sent_at: float,
        on_preempting: Callable[[Json], None] | None = None,
        on_renewed: Callable[[float], None] | None = None,
    ) -> None:
        self.request = request
        self.preempting = threading.Event()
        self.refused: CedeClientError | None = None
        self._client = client
        self._attempt = int(request["attempt"])
        seconds = request.get("lease")
        self.seconds = float(seconds) if isinstance(seconds, int | float) else None
        self._sent_at = sent_at
        self._on_preempting = on_preempting
        self._on_renewed = on_renewed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="cede-lease", daemon=True)

    @property
    def interval(self) -> float:
        return INTERVAL_MOST if self.seconds is None else min(self.seconds / 3, INTERVAL_MOST)

    @property
    def ends_at(self) -> float | None:
        """When the units may become somebody else's, on the client's clock.

        None without a lease, and for a holder that was told to stop: its deadline counts then.
        """
        if self.seconds is None or self.preempting.is_set():
            return None
        return self._sent_at + self.seconds

    @property
    def lost(self) -> bool:
        return self.refused is not None or (
            self.ends_at is not None and clock.now() >= self.ends_at
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=1)

    def _keep(self) -> None:
        # The first one goes out at once: it says that the work is running.
        pause = 0.0
        while not self._stop.wait(pause) and self.refused is None:
            sent_at = clock.now()
            pause = self._renew_once(sent_at)

    def _renew_once(self, sent_at: float) -> float:
        """One renewal; the pause before the next."""
        timeout = 10.0 if self.seconds is None else max(min(10.0, self.seconds / 3), 0.5)
        try:
            request = self._client.requests.renew(
                self.request["id"],
                attempt=self._attempt,
                running=True,
                timeout=timeout,
                attempts=1,
            )
        except (Conflict, NotFound, Forbidden, Unauthorized) as error:
            self._refuse(error)
            return 0.0
        except CedeClientError:
            return min(RETRY_MOST, self.interval / 4)
        if self._stop.is_set():
            return 0.0
        self._accept(request, sent_at)
        return max(sent_at + self.interval - clock.now(), 0.0)

    def _accept(self, request: Json, sent_at: float) -> None:
        self.request = request
        holding = request["status"] in ("allocated", "preempting")
        if not holding or int(request["attempt"]) != self._attempt:
            said = f"attempt {self._attempt} of request {request['id']} is over"
            self._refuse(ending(request) or LeaseLost(said))
            return
        self._sent_at = sent_at
        if request["status"] == "preempting":
            if not self.preempting.is_set():
                self.preempting.set()
                if self._on_preempting is not None:
                    self._on_preempting(request)
        elif self._on_renewed is not None and self.ends_at is not None:
            self._on_renewed(self.ends_at)

    def _refuse(self, error: CedeClientError) -> None:
        self.refused = error
