"""One HTTP core: sends, retries what may be retried, and turns answers into values or typed errors.

A call may be retried when doing it twice is the same as doing it once: reads, edits and deletions
by nature, POSTs because each carries an `Idempotency-Key` of its own. The token appears in one
header and nowhere else: not in errors, not in `repr`.

Of several servers of one database one leads. Each try asks the one that answered last, then those
after it, until one answers that is not away.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from cede import __version__
from cede.client import errors
from cede.client.config import Connection
from cede.client.transport import Response, Transport, TransportError, Untrusted, quoted

Json = dict[str, Any]

API = "/api/v1"
# A server is asked this often; with the pauses below that is about two seconds when none listens.
ATTEMPTS = 4
PAUSE_FIRST = 0.2
# The longest pause that a server's `Retry-After` can ask for: callers wait for an answer.
RETRY_AFTER_MAX = 30.0

# With another server to ask, an address that does not answer is left after so many seconds.
CONNECT_TIMEOUT = 3.0

# "Later", from cede, or from a proxy while cede starts.
_LATER = (429, 502, 503, 504, 507)
# Answers that another server may better: this one does not lead, ends, or cannot reach its
# database.
_AWAY = (502, 503, 504)
_UNAUTHENTICATED = 401
_PROBLEM = "urn:cede:problem:"
_STATUS_ERRORS: dict[int, type[errors.CedeClientError]] = {
    400: errors.Invalid,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    413: errors.Invalid,
    422: errors.Invalid,
    **dict.fromkeys(_LATER, errors.ServerUnreachable),
}


def _transport(server: str, token: str, ca: str) -> Transport:
    return Transport(
        server,
        {
            "Authorization": f"Bearer {token}",
            "Accept": "application/json",
            "User-Agent": f"cede/{__version__}",
        },
        ca,
    )


class Http:
    """Calls to one server, from any thread; keeps the highest index seen, so that a caller reads
    its own writes."""

    def __init__(
        self,
        connection: Connection,
        *,
        timeout: float = 10.0,
        attempts: int = ATTEMPTS,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.server = connection.server
        self._attempts = attempts
        self._sleep = sleep
        self._index = 0
        self._lock = threading.Lock()
        self._timeout = timeout
        self._source, self._expires = connection.source, connection.expires
        self._servers = [
            _transport(each, connection.token, connection.ca) for each in connection.servers
        ]
        self._leader = 0  # which of them answered last

    def close(self) -> None:
        for each in self._servers:
            each.close()

    def call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        timeout: float | None = None,
        attempts: int | None = None,
        key: str | None = None,
    ) -> Any:
        """Return the parsed answer of one call, tried again as often as it may be.

        A `key` of the caller's own makes repeated POSTs the same call.
        """
        return self._parse(self.send(method, path, params, body, timeout, attempts, key))

    def send(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        timeout: float | None = None,
        attempts: int | None = None,
        key: str | None = None,
    ) -> Response:
        headers = {"Idempotency-Key": key or _new_key()} if method == "POST" else {}
        known = {key: value for key, value in (params or {}).items() if value is not None}
        content = None if body is None else _json(body)
        last = attempts or self._attempts
        for attempt in range(1, last + 1):
            response: Response | None = None
            before = self._leader
            try:
                with ExitStack() as opened:
                    response = self._ask(
                        lambda server: opened.enter_context(
                            server.open(
                                method,
                                path,
                                params=known,
                                headers=headers | self._seen(),
                                body=content,
                                connect=self._connect_timeout(timeout or self._timeout),
                                read=timeout or self._timeout,
                            )
                        ),
                        whole=True,
                    )
            except TransportError as error:
                if attempt == last or isinstance(error, Untrusted):
                    raise self._unreachable(error) from None
            else:
                repeated = attempt > 1 or self._leader != before
                if method == "DELETE" and repeated and response.status_code == 404:
                    # The try whose answer was lost deleted it.
                    return Response(204, {}, iter(()))
                if response.status_code not in _LATER or attempt == last:
                    return response
            self._sleep(self._pause(attempt, response))
        raise AssertionError("the loop above returns or raises")

    def _ask(self, call: Callable[[Transport], Response], *, whole: bool = False) -> Response:
        """Return the first answer of a server that is not away; if all are, that of the first."""
        first, refused, failed = self._leader, None, None
        for step in range(len(self._servers)):
            at = (first + step) % len(self._servers)
            try:
                response = call(self._servers[at])
                if whole:
                    response.read()
            except TransportError as error:
                failed = error
                continue
            self._note_index(response)
            if response.status_code not in _AWAY:
                self._leader = at
                return response
            if refused is None:
                refused = response
        if refused is not None:
            return refused
        assert failed is not None, "there is at least one server"
        raise failed

    def _connect_timeout(self, seconds: float) -> float:
        return min(seconds, CONNECT_TIMEOUT) if len(self._servers) > 1 else seconds

    @contextmanager
    def stream(
        self, path: str, params: Mapping[str, Any], *, silence: float
    ) -> Iterator[Iterator[str]]:
        """Open an endless answer as lines; more than `silence` seconds without one is a lost
        connection."""
        with self._open(path, params, "text/event-stream", silence) as response:
            yield response.iter_lines()

    @contextmanager
    def stream_bytes(
        self, path: str, params: Mapping[str, Any], *, silence: float | None = None
    ) -> Iterator[tuple[int, Iterator[bytes]]]:
        """Open an endless answer as bytes, with its offset. Without `silence` it may pause for any
        time: quiet work prints nothing.
        """
        with self._open(path, params, "text/plain", silence) as response:
            yield int(response.headers.get("cede-log-offset", 0)), response.iter_bytes()

    @contextmanager
    def _open(
        self, path: str, params: Mapping[str, Any], kind: str, silence: float | None
    ) -> Iterator[Response]:
        headers = {"Accept": kind} | self._seen()
        try:
            with ExitStack() as opened:
                response = self._ask(
                    lambda server: opened.enter_context(
                        server.open(
                            "GET",
                            path,
                            params=params,
                            headers=headers,
                            connect=self._connect_timeout(self._timeout),
                            read=silence,
                        )
                    )
                )
                if response.status_code != 200:
                    response.read()
                    self._parse(response)
                yield response
        except TransportError as error:
            raise self._unreachable(error) from None

    def _seen(self) -> dict[str, str]:
        return {"Cede-Index-Seen": str(self._index)} if self._index else {}

    def _note_index(self, response: Response) -> None:
        text = response.headers.get("cede-index", "")
        if text.isdecimal():
            with self._lock:
                self._index = max(self._index, int(text))

    def _pause(self, attempt: int, response: Response | None) -> float:
        asked = response.headers.get("retry-after", "") if response is not None else ""
        if asked.isdecimal():
            return min(float(asked), RETRY_AFTER_MAX)
        from random import uniform  # slow to import, and few calls are repeated

        pause: float = PAUSE_FIRST * 2 ** (attempt - 1)
        return pause / 2 + uniform(0, pause / 2)

    def _unreachable(self, error: Exception) -> errors.ServerUnreachable:
        said = str(error) or type(error).__name__
        if isinstance(error, Untrusted):
            return errors.NotTrusted(
                f"the certificate of {self.server} is not trusted here: {said}; its fingerprint is "
                f"{error.fingerprint}",
                fix=f"if that is what the server printed: cede login {self.server} --trust "
                f"{error.fingerprint}, or with its authority: --ca FILE",
            )
        return errors.ServerUnreachable(
            f"no answer from {self.server}: {said}",
            fix="is the server running (`cede up`), and is CEDE_SERVER right?",
        )

    def _parse(self, response: Response) -> Any:
        if response.status_code == 204:
            return None
        try:
            data = json.loads(response.content)
        except ValueError:
            data = None
        if not isinstance(data, dict):
            raise self._foreign(response)
        if response.is_success:
            return data
        # A proxy's own answer, "no such route" above all, says nothing of what cede has.
        if response.status_code in _LATER or str(data.get("type")).startswith(_PROBLEM):
            if response.status_code == _UNAUTHENTICATED:
                raise self._wrong_token(data)
            raise problem(response.status_code, data)
        raise self._foreign(response)

    def _wrong_token(self, data: Json) -> errors.CedeClientError:
        error = problem(_UNAUTHENTICATED, data)
        source = f" of {self._source}" if self._source.startswith("context ") else ""
        why = "it is wrong, was revoked or has expired"
        if self._expires:
            why = f"it is wrong, was revoked, or has expired ({self._expires})"
        error.message = f"{self.server} does not accept the token{source}: {why}"
        error.fix = f"ask for a new one (`cede token create`), then: cede login {self.server}"
        error.args = (error.message,)
        return error

    def _foreign(self, response: Response) -> errors.CedeClientError:
        said = f"{self.server} answered {response.status_code}"
        if response.status_code in _LATER:
            return errors.ServerUnreachable(said, status=response.status_code)
        return errors.ServerBroken(
            f"{said} with something that is not cede's",
            fix="check that CEDE_SERVER names a cede server of a fitting version",
            status=response.status_code,
        )


def _new_key() -> str:
    """Return a key so random that no two calls ever share it. `uuid` is slow to import."""
    return os.urandom(16).hex()


def _json(body: Any) -> bytes:
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode()


def problem(status: int, data: Json) -> errors.CedeClientError:
    """Return the typed error of a problem+json answer."""
    reason = data.get("reason") if isinstance(data.get("reason"), dict) else None
    kind = _STATUS_ERRORS.get(status, errors.ServerBroken)
    if reason is not None and kind in (errors.Forbidden, errors.Conflict, errors.Invalid):
        kind = errors.Rejected
    text = str(data.get("detail") or data.get("title") or f"the server answered {status}")
    several = data.get("errors")
    if isinstance(several, list) and len(several) > 1:
        text += "".join(f"\n  {_line(each)}" for each in several)
    code = str(data.get("code") or data.get("type") or "").rstrip("/").rpartition("/")[2]
    return kind(
        text,
        reason=reason,
        status=status,
        code=code.rpartition(":")[2],
        field=str(data.get("field") or ""),
    )


def _line(each: Any) -> str:
    if isinstance(each, dict):
        return ": ".join(str(each[key]) for key in ("field", "problem", "detail") if each.get(key))
    return str(each)


def segment(name: str) -> str:
    """Quote a name or id as one path segment."""
    return quoted(name)
