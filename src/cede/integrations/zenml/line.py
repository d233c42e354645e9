"""Calls to cede with a time limit, safe to repeat.

A ZenML server creates steps while its clients wait, so no call may hang: a server that refuses
connections is tried again until the time is over, one that is silent twice at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

from cede.client import clock
from cede.client.client import Client
from cede.client.errors import (
    CedeClientError,
    Conflict,
    Forbidden,
    ServerBroken,
    ServerUnreachable,
    Unauthorized,
)
from cede.client.http import Http
from cede.integrations.zenml import mapping
from cede.integrations.zenml.settings import Settings

Json = dict[str, Any]
T = TypeVar("T")

PAUSE = 0.3
# The longest pause that a busy server's `Retry-After` can ask for: a client of ZenML waits.
PAUSE_MAX = 1.0


class Line:
    """Requests of one cede server, within the time that the settings give."""

    def __init__(self, settings: Settings) -> None:
        self._timeout = settings.timeout
        http = Http(
            settings.connection,
            timeout=settings.timeout / 2,
            attempts=1,
            sleep=lambda seconds: time.sleep(min(seconds, PAUSE_MAX)),
        )
        self.client = Client(http=http)

    @property
    def server(self) -> str:
        return self.client.server

    def create(self, body: Mapping[str, Any], *, key: str) -> Json:
        """Create one request for one key, whichever replica calls and however often."""
        return self._patiently(lambda: _known(self.client.requests.create(body, key=key)))

    def renew(self, request_id: str, *, running: bool, patient: bool = False) -> Json:
        """Renew once, since renewals come often; until the time is over if `patient`."""

        def call() -> Json:
            return _known(self.client.requests.renew(request_id, running=running or None))

        return self._patiently(call) if patient else call()

    def get(self, request_id: str) -> Json:
        return _known(self.client.requests.get(request_id))

    def release(self, request_id: str, outcomes: tuple[str, ...]) -> Json:
        """Release with the first of the outcomes that cede accepts; an ended request stays as it
        is."""
        for outcome in outcomes:
            try:
                return _known(self.client.requests.release(request_id, outcome=outcome))
            except Conflict as error:
                if error.code != "not_preempting":
                    break
        return self.get(request_id)

    def find(self, most: int, **filters: Any) -> list[Json]:
        """Return at most so many requests, newest first."""
        found: Iterator[Json] = self.client.requests.list(**filters)
        return list(islice(found, most))

    def whoami(self) -> Json:
        return self.client.whoami()

    def _patiently(self, call: Callable[[], T]) -> T:
        give_up_at = clock.now() + self._timeout
        while True:
            try:
                return call()
            except ServerUnreachable:
                if clock.now() + PAUSE >= give_up_at:
                    raise
            time.sleep(PAUSE)


def _known(request: Json) -> Json:
    """Check that this plug-in can read an answer. Of one that it cannot, nothing is concluded: a
    missing field would look to ZenML like a request that is gone, and it would stop the step."""
    if request.get("status") in mapping.STATUSES and request.keys() >= mapping.FIELDS:
        return request
    raise ServerBroken(
        f"an answer with the status {request.get('status')!r:.80} is no request that this plug-in "
        "knows"
    )


# The remedy for the operator of the ZenML server; other errors come with a fix of their own.
_REMEDIES: dict[type[CedeClientError], str] = {
    ServerUnreachable: "start the cede server, or correct CEDE_SERVER of the ZenML server; "
    "CEDE_ZENML_FAIL_OPEN=true there would let steps run uncounted meanwhile",
    ServerBroken: "see the cede server's log, and whether CEDE_SERVER names a cede server of the "
    "version that the ZenML server has",
    Unauthorized: "give the ZenML server a valid token in CEDE_TOKEN",
    Forbidden: "give the ZenML server a token that is bound to it, or one of role operator",
}


def advice(error: CedeClientError, server: str) -> str:
    """Say in one line, for the pipeline's user, what went wrong and what to do."""
    remedy = _REMEDIES.get(type(error), error.fix)
    if isinstance(error, ServerUnreachable) and error.status is not None:
        remedy = "it is busy or being restarted; run the step again, or give it retries"
    text = f"cede at {server}: {error.message}"
    return f"{text}; {remedy}" if remedy else text
