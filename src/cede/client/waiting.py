"""Waits for a grant: learns of it at once, keeps the place in the queue, and says why it takes
long.

Asking is renewing: the renewal keeps the waiter's lease, so a client that dies stops waiting by
itself. The server holds the answer back until the request waits no longer, or until the pause is
over that the client would have made without that. An older server answers at once; then the pause
is made here.
"""

from __future__ import annotations

import contextlib
import queue
import random
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from cede.client import clock
from cede.client.client import HELD_TIMEOUT, Client
from cede.client.errors import CedeClientError, ServerUnreachable, WaitTimeout, ending
from cede.client.http import Json
from cede.model import bounds

FIRST = 1.0
MOST = 20.0
# Without a callback to tell why, the server may hold the answer as long as it will.
HELD_MOST = bounds.NEWS_WAIT_MAX / bounds.SECOND
# How often the event of an interruption is checked.
LOOK = 0.1
# A number that no request's hint has. An older server, to which this is a holder's renewal, would
# hold back a grant from a caller that says it knows of no hint.
NO_HINT = bounds.AMOUNT_MAX
WAITING = ("queued", "suspended")
HOLDING = ("allocated", "preempting")


class Waited(NamedTuple):
    """A request after waiting, and when the call that got it was sent, where its lease begins."""

    request: Json
    sent_at: float


class BackOff:
    """1 s, 2 s, 4 s … 20 s, each shortened by up to half so that waiters do not ask in step."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)
        self._next = FIRST

    def reset(self) -> None:
        self._next = FIRST

    def pause(self) -> float:
        full, self._next = self._next, min(self._next * 2, MOST)
        return full / 2 + self._random.uniform(0, full / 2)


def wait_for_grant(
    client: Client,
    request: Json,
    *,
    sent_at: float,
    on_wait: Callable[[Json], None] | None = None,
    timeout: float | None = None,
    interrupted: threading.Event | None = None,
    whole_story: bool = True,
) -> Waited:
    """Return the request once it is allocated; any other end raises its typed error.

    `interrupted` ends the wait early: the request is returned as it is, still waiting. Without
    `whole_story` the caller is told the reason only, which costs the server much less.
    """
    stop = interrupted or threading.Event()
    back_off = BackOff()
    latest = None if timeout is None else clock.now() + timeout
    told = ""
    while request["status"] in WAITING:
        why = _why(client, request, on_wait, whole_story)
        # A changed reason means that something moves: ask soon again.
        if why != told:
            told = why
            back_off.reset()
        if latest is not None and clock.now() >= latest:
            give_up(client, request)
            raise WaitTimeout(
                f"request {request['id']} was not granted within {timeout:g} seconds: {why}",
                reason=request.get("reason"),
            )
        pause, asked_at = back_off.pause(), clock.now()
        held = _bounded(pause if on_wait else HELD_MOST, request, latest)
        renewed = _renewed(client, request["id"], held, stop)
        if renewed is not None:
            request, sent_at = renewed, asked_at
        rest = asked_at + min(pause, held) - clock.now()
        if request["status"] in WAITING and stop.wait(max(rest, 0.0)):
            return Waited(request, sent_at)
    if error := ending(request):
        raise error
    return Waited(request, sent_at)


def _renewed(client: Client, request_id: str, seconds: float, stop: threading.Event) -> Json | None:
    """Return the request when it waits no longer, or as it is after so many seconds.

    None when `stop` is set meanwhile, and when no server answers: one that restarts finds its
    waiters again, and the lease decides, not one lost answer.
    """
    told: queue.SimpleQueue[Json | BaseException] = queue.SimpleQueue()

    def ask() -> None:
        try:
            told.put(
                client.requests.renew(
                    request_id,
                    wait=seconds,
                    hint=NO_HINT,
                    timeout=seconds + HELD_TIMEOUT,
                    attempts=1,
                )
            )
        except BaseException as error:
            told.put(error)

    # In a thread, because a call that is held back cannot be interrupted; it does no harm later.
    threading.Thread(target=ask, name="cede-waiting", daemon=True).start()
    while not stop.is_set():
        with contextlib.suppress(queue.Empty):
            found = told.get(timeout=LOOK)
            if isinstance(found, ServerUnreachable):
                return None
            if isinstance(found, BaseException):
                raise found
            return found
    return None


def give_up(client: Client, request: Json) -> None:
    """End the client's own request: a waiter at once, a holder with its units given back."""
    # If no server answers, the lease ends by itself.
    with contextlib.suppress(CedeClientError):
        after = client.requests.cancel(request["id"])
        if after["status"] in HOLDING:
            client.requests.release(after["id"], outcome="stopped", attempt=int(after["attempt"]))


def _bounded(pause: float, request: Mapping[str, Any], latest: float | None) -> float:
    """Bound a pause by a third of the lease and by the time that the caller waits at most."""
    lease = request.get("lease")
    if isinstance(lease, int | float):
        pause = min(pause, lease / 3)
    if latest is not None:
        pause = min(pause, max(latest - clock.now(), 0.05))
    return pause


def _why(
    client: Client, request: Json, on_wait: Callable[[Json], None] | None, whole_story: bool
) -> str:
    """Tell the caller why the request waits; a missing answer is no reason to stop waiting."""
    if on_wait is None:
        return str((request.get("reason") or {}).get("text", ""))
    try:
        requests = client.requests
        why = (
            requests.why(request["id"], changes=False)
            if whole_story
            else requests.get(request["id"])
        )
    except ServerUnreachable as error:
        why = {"text": error.message}
    if why.get("status", "queued") in WAITING:  # else it was granted, or has ended, meanwhile
        on_wait(why)
    return reason_text(why)


def reason_text(why: Mapping[str, Any]) -> str:
    """Return the one sentence of a `why` answer."""
    reason = why.get("reason")
    if isinstance(reason, Mapping) and reason.get("text"):
        return str(reason["text"])
    return str(why.get("text") or "")
