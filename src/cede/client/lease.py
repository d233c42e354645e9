"""Renews one attempt's lease, and knows when it is lost.

A renewal counts from when it was SENT: whatever the network did in between, the server's count
started later, so the client's end of the lease is never after the server's. Whether the lease is
over is read from the clock, never from the renewing thread, because a thread can hang in a call.

Where one server has a database for itself, every client in its network namespace can see whether
some server has it (`cede.launch.presence`). While none has, no server can grant the units to
others, and a server that starts gives each holder its whole lease anew. So each call that fails
then starts the lease again. A server that hangs still has its database, and prolongs nothing.

The server holds an answer back until it has news, so that a hint or a stop comes at once and no
more calls are made.
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
    ServerUnreachable,
    Unauthorized,
    ending,
)
from cede.client.http import Json
from cede.launch.presence import is_shown

# The order to stop comes in these answers, so a holder asks this often, whatever its lease; an
# older server holds none of them back.
INTERVAL_MOST = 10.0
# After a lost answer: soon enough for several tries inside the shortest lease.
RETRY_MOST = 2.0
# Between two renewals, if the server holds none of them back.
PAUSE_LEAST = 0.2
# The part of a lease that the server may hold an answer back: if the next one is lost, its time-out
# and one more try still fit in.
HELD_BACK = 1 / 6


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
        self._unanswered = 0  # calls in a row
        self._client = client
        self._attempt = int(request["attempt"])
        seconds = request.get("lease")
        self.seconds = float(seconds) if isinstance(seconds, int | float) else None
        self._sent_at = sent_at
        self._on_preempting = on_preempting
        self._on_renewed = on_renewed
        self._told_presence = self._presence = ""  # the server's sign, told and seen from here
        self._see(str(request.get("presence") or ""))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="cede-lease", daemon=True)

    @property
    def interval(self) -> float:
        return INTERVAL_MOST if self.seconds is None else min(self.seconds / 3, INTERVAL_MOST)

    @property
    def hint(self) -> Json | None:
        """The pending hint, as the server tells it: its number, and the seconds left."""
        return hint_of(self.request)

    @property
    def _held_back(self) -> float:
        if self.preempting.is_set():
            return 0.0
        return min(self.interval, (self.seconds or INTERVAL_MOST / HELD_BACK) * HELD_BACK)

    @property
    def ends_at(self) -> float | None:
        """When the units may be granted to others, on the client's clock.

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

    @property
    def away(self) -> bool:
        """Whether the server is away: more than one answer in a row was lost."""
        return self._unanswered > 1

    @property
    def outlives_server(self) -> bool:
        """Whether the absence of the server cannot end this lease."""
        return self.ends_at is None or self._presence != ""

    def unanswered(self, sent_at: float) -> None:
        """Note that a call sent at `sent_at` failed. If no server has the database, the lease
        counts from then.

        A lease that is over stays over: the units may have been granted to others before the server
        went.
        """
        self._unanswered += 1
        if not self._presence or is_shown(self._presence):
            return
        if self.ends_at is None or clock.now() >= self.ends_at:
            return
        self._count_from(sent_at)

    def _count_from(self, sent_at: float) -> None:
        self._sent_at = sent_at
        if self._on_renewed is not None and self.ends_at is not None:
            self._on_renewed(self.ends_at)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        # An answer that is held back may come later; the fence makes it harmless.
        is_near = not self._held_back and self._thread is not threading.current_thread()
        if is_near and self._thread.is_alive():
            self._thread.join(timeout=1)

    def _keep(self) -> None:
        # The first renewal goes out at once: it says that the work is running.
        pause = 0.0
        while not self._stop.wait(pause) and self.refused is None:
            sent_at = clock.now()
            pause = self._renew_once(sent_at)

    def renew(self) -> float:
        """Renew once, before `start`, in the caller's thread; return the instant the lease counts
        from."""
        self._renew_once(clock.now(), running=False)
        return self._sent_at

    def _renew_once(self, sent_at: float, *, running: bool = True) -> float:
        """Renew once; return the pause before the next renewal."""
        timeout = 10.0 if self.seconds is None else max(min(10.0, self.seconds / 3), 0.5)
        held_back = self._held_back if running else 0.0
        try:
            request = self._client.requests.renew(
                self.request["id"],
                attempt=self._attempt,
                running=running or None,
                wait=held_back or None,
                hint=(self.hint or {}).get("hint"),
                timeout=timeout + held_back,
                attempts=1,
            )
        except (Conflict, NotFound, Forbidden, Unauthorized) as error:
            if not self._stop.is_set():  # else released here while this renewal was held back
                self._refuse(error)
            return 0.0
        except ServerUnreachable:
            self.unanswered(sent_at)
            return min(RETRY_MOST, self.interval / 4)
        except CedeClientError:
            return min(RETRY_MOST, self.interval / 4)
        if self._stop.is_set():
            return 0.0
        self._accept(request, sent_at)
        pause = PAUSE_LEAST if self._held_back else self.interval
        return max(sent_at + pause - clock.now(), 0.0)

    def _accept(self, request: Json, sent_at: float) -> None:
        self.request = request
        self._unanswered = 0
        self._see(str(request.get("presence") or ""))
        holding = request["status"] in ("allocated", "preempting")
        if not holding or int(request["attempt"]) != self._attempt:
            said = f"attempt {self._attempt} of request {request['id']} is over"
            self._refuse(ending(request) or LeaseLost(said))
            return
        if request["status"] == "preempting" and self.hint is None:
            self._sent_at = sent_at
            if not self.preempting.is_set():
                self.preempting.set()
                if self._on_preempting is not None:
                    self._on_preempting(request)
        else:
            self._count_from(sent_at)

    def _see(self, presence: str) -> None:
        """Note the sign of the server that answered, which may be another one than before. A sign
        that cannot be seen from here while its server lives is of no use.
        """
        if presence != self._told_presence:
            self._told_presence = presence
            self._presence = presence if presence and is_shown(presence) else ""

    def _refuse(self, error: CedeClientError) -> None:
        self.refused = error


def hint_of(request: Json) -> Json | None:
    """Return the hint of a stop, or of an ask to save itself and go on."""
    held = request.get("allocation") or {}
    return held["parting"] if held.get("state") == "checkpointing" else held.get("asked")


def goes_on(hint: Json) -> bool:
    """Whether the work goes on once it has saved itself."""
    return "asked_at" in hint
