"""The outermost layer: which Host is ours, which headers every answer has, and what is counted.

Plain ASGI, so that streams pass through it untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import perf_counter

import structlog
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cede.model.durations import seconds
from cede.server.api.errors import problem_of, respond
from cede.server.api.problem import Problem

API_POLICY = "default-src 'none'; frame-ancestors 'none'"
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")

_PAGE_PATHS = frozenset({"/", "/page.js", "/page.css"})
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]
_API_HEADERS = [*_HEADERS, (b"content-security-policy", API_POLICY.encode())]
_PAGE_HEADERS = [*_HEADERS, (b"content-security-policy", PAGE_POLICY.encode())]

_log = structlog.get_logger("cede.api")

Observe = Callable[[str, str, int, float], None]


class Edge:
    """Wraps the app. `hosts` is empty where any name is fine, which it is not on loopback (C12)."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Iterable[str],
        index: Callable[[], int],
        now: Callable[[], int],
        observe: Observe,
    ) -> None:
        self.app = app
        self.hosts = frozenset(host.lower() for host in hosts)
        self.index = index
        self.now = now
        self.observe = observe

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = perf_counter()
        status = 0
        always = _PAGE_HEADERS if scope["path"] in _PAGE_PATHS else _API_HEADERS

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [
                    *message["headers"],
                    *always,
                    (b"cede-index", str(self.index()).encode()),
                    # Fields such as `at` are on this clock; with it they become times of day.
                    (b"cede-now", str(seconds(self.now())).encode()),
                ]
            await send(message)

        try:
            if self._is_ours(scope):
                await self.app(scope, receive, send_with_headers)
            else:
                await respond(_WRONG_HOST)(scope, receive, send_with_headers)
        except ClientDisconnect:
            return  # nobody is there to be answered
        except Exception as error:
            problem = problem_of(error)
            if status or problem.status == 500:
                _log.error("a handler failed", path=scope["path"], exc_info=error)
            if status:
                raise  # half an answer cannot be taken back: the connection ends
            await respond(problem)(scope, receive, send_with_headers)
        finally:
            route = scope.get("route")
            template = getattr(route, "path", "other")
            self.observe(scope["method"], template, status, perf_counter() - started)

    def _is_ours(self, scope: Scope) -> bool:
        """A foreign page whose name a browser resolves to our address is given away by its Host."""
        given = [value for name, value in scope["headers"] if name == b"host"]
        if len(given) != 1:
            return False
        return not self.hosts or _without_port(given[0].decode("latin-1").lower()) in self.hosts


_WRONG_HOST = Problem(421, "wrong_host", "this server does not answer to that Host", field="Host")


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


def allowed_hosts(bind: str, extra: Iterable[str]) -> list[str]:
    """Loopback's own names and those configured; elsewhere any, unless some are configured."""
    shown = f"[{bind}]" if ":" in bind else bind
    loopback = shown in LOOPBACK_NAMES or bind.startswith("127.")
    if loopback:
        return [*LOOPBACK_NAMES, shown, *extra]
    return list(extra)
