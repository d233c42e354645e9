"""`with client.allocation(gpu=2): …`: units for the length of a block.

The block is the caller's own code in the caller's own process, so no other process can stop it: it
learns of a stop (`should_stop`, `preempted`, `on_preempting`) and has the pool's grace to leave.
Work that may need a SIGKILL belongs into `cede run` or a step. With `checkpoint="auto"` the block's
own `cede.checkpoint` is asked first; a process has one of those, so one such block at a time.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import cede.checkpoint as checkpoint
from cede.client import clock
from cede.client.client import Client
from cede.client.errors import CedeClientError, Conflict, LeaseLost, NotFound, ending
from cede.client.http import Json
from cede.client.interruptions import Interrupted
from cede.client.lease import Lease
from cede.client.stopping import Stopping, checkpoints
from cede.client.waiting import HOLDING, WAITING, give_up, wait_for_grant
from cede.model.errors import Invalid


class Allocation:
    """One request held by `with`. Enter it again for the next attempt while `ended` is False."""

    def __init__(
        self,
        client: Client,
        body: Json,
        *,
        wait_timeout: float | None = None,
        on_wait: Callable[[Json], None] | None = None,
        on_preempting: Callable[[Json], None] | None = None,
        checkpoint_dir: Path | None = None,
    ) -> None:
        if body.get("array"):
            raise Invalid("array", "is for work that nodes run: client.requests.create")
        self.request: Json = {}
        self._client = client
        self._body = body
        self._wait_timeout = wait_timeout
        self._on_wait = on_wait
        self._on_preempting = on_preempting
        self._checkpoint_dir = checkpoint_dir
        self._lease: Lease | None = None
        self._stop_progress: Stopping | None = None
        self._finished = False
        self._given_up = threading.Event()
        self._sent_at = 0.0

    @property
    def id(self) -> str:
        return str(self.request.get("id", ""))

    @property
    def pool(self) -> str | None:
        return (self._held or self.request).get("pool")

    @property
    def attempt(self) -> int:
        return int((self._held or self.request).get("attempt", 0))

    @property
    def preempted(self) -> threading.Event:
        """Set once the holder was told to stop. Wait on it in another thread, or poll
        `should_stop`."""
        return self._lease.preempting if self._lease is not None else threading.Event()

    @property
    def should_stop(self) -> bool:
        """Whether to leave the block now: the holder was told to stop, or the lease is over."""
        return self._lease is not None and (self._lease.preempting.is_set() or self._lease.lost)

    @property
    def ended(self) -> bool:
        """Whether the request is over for good; False before the first attempt and between
        attempts."""
        return bool(self.request) and self.request["status"] not in (*WAITING, *HOLDING)

    def finish(self) -> None:
        """Report the work as complete although it was told to stop: no further attempt."""
        self._finished = True

    def give_up(self) -> None:
        """Cancel the request while another thread waits for its grant."""
        self._given_up.set()

    def __enter__(self) -> Allocation:
        if not self.request:
            self._sent_at = clock.now()
            self.request = self._client.requests.create(self._body)
        try:
            self.request, self._sent_at = wait_for_grant(
                self._client,
                self.request,
                sent_at=self._sent_at,
                on_wait=self._on_wait,
                timeout=self._wait_timeout,
                interrupted=self._given_up,
            )
        except KeyboardInterrupt:
            give_up(self._client, self.request)
            raise
        if self._given_up.is_set():
            give_up(self._client, self.request)
            raise Interrupted(signal.SIGTERM)
        self._lease = Lease(
            self._client, self.request, sent_at=self._sent_at, on_preempting=self._on_preempting
        )
        if checkpoints(self.request):
            self._talk(self._lease)
        self._lease.start()
        return self

    def _talk(self, lease: Lease) -> None:
        try:
            stopping = Stopping(
                self._client, self.request, self._checkpoint_dir, lambda kind, text: None
            )
        except BaseException:
            give_up(self._client, self.request)
            raise
        self._stop_progress = stopping
        checkpoint.begin(stopping.environment())
        stopping.start(lease, list)  # no process to wake: the block polls

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        lease = self._lease
        assert lease is not None, "left without having been entered"
        saved = self._end_talk(lease, error)
        lease.stop()
        if lease.lost:
            self._lease_lost(lease, raising=error is None)
            return
        # The pass that takes the units may grant the next attempt; its lease counts from here.
        self._sent_at = clock.now()
        try:
            self.request = self._client.requests.release(
                self.id, outcome=self._outcome(error, saved), attempt=self.attempt
            )
        except (Conflict, NotFound):
            self._lease_lost(lease, raising=error is None)

    @property
    def _held(self) -> Json | None:
        return self._lease.request if self._lease is not None else None

    def _end_talk(self, lease: Lease, error: BaseException | None) -> bool:
        """End the conversation; whether the server has the checkpoint that it asked for."""
        stopping, self._stop_progress = self._stop_progress, None
        if stopping is None:
            return False
        try:
            if lease.hint is not None or error is not None:
                stopping.hear_the_rest(threading.Event())
        finally:
            stopping.close()
            checkpoint.begin(os.environ)
        return stopping.saved

    def _outcome(self, error: BaseException | None, saved: bool) -> str:
        if self._finished:
            return "done"
        if self.preempted.is_set() or saved:
            return "stopped"
        return "done" if error is None else "failed"

    def _lease_lost(self, lease: Lease, *, raising: bool) -> None:
        """Mark the request as over; raise unless the block raised an error, which says more."""
        self.request = {**lease.request, "status": "cancelled"}
        if not raising:
            return
        cause: CedeClientError | None = lease.refused
        if cause is not None and ending(lease.request) is not None:
            raise cause
        raise LeaseLost(
            f"the lease of request {self.id} ran out while its block was running",
            fix="keep the network up, or ask for a longer lease",
        ) from cause
