"""Calls to the server: joining, heartbeats, and the pause after a failure.

Two threads call. One waits at the server for something new; the other brings news there at once.
Each answer is the whole truth of its version, so the order of arrival does not matter.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace

import structlog

from cede.agent import crash, identity, wire
from cede.agent.identity import Identity
from cede.agent.settings import Settings
from cede.client.config import Connection
from cede.client.errors import CedeClientError, Conflict, NotFound, Unauthorized
from cede.client.http import API, Http
from cede.launch.clock import boottime
from cede.model import bounds

# Seconds that an answer may take on top of the time that the server was asked to hold it back.
TIMEOUT = 10.0
PAUSE_FIRST = 0.1
PAUSE_MAX = 10.0
# Seconds in which further news gather after a report: a call and its commit cost the same for many.
GATHER = 0.015

_log = structlog.get_logger("cede.agent")

# Body: makes the next heartbeat's body, with news or without. Take: uses its answer, and returns
# whether there is more to report.
Body = Callable[[bool], wire.Json]
Take = Callable[[wire.Answer, wire.Json], bool]


@dataclass(frozen=True, slots=True)
class Introduction:
    """An agent's registration: its path, its boot, and its body."""

    path: str
    boot: str
    body: Callable[[Identity], wire.Json]


class Link:
    def __init__(
        self,
        settings: Settings,
        known: Identity,
        introduction: Introduction,
        *,
        body: Body,
        take: Take,
    ) -> None:
        self._settings = settings
        self._introduction = introduction
        self._body = body
        self._take = take
        self.known = known
        self.heartbeat = bounds.HEARTBEAT_DEFAULT / bounds.SECOND
        self.stopping = threading.Event()
        self.fatal: CedeClientError | None = None
        self._joined = threading.Event()
        self._news = threading.Event()
        self._http: Http | None = None
        # From the start where the node is known, else from when it has joined.
        self._machine = identity.hold_machine(known.node) if known.node else None

    def start(self) -> None:
        for work in (self._listen, self._tell):
            threading.Thread(target=work, name=work.__name__, daemon=True).start()

    def tell(self) -> None:
        """Report news at once, without waiting for the next heartbeat."""
        self._news.set()

    def introduce_again(self) -> None:
        """Register again: the facts of the registration have changed."""
        self._joined.clear()

    def stop(self) -> None:
        self.stopping.set()
        self._news.set()

    def remember(self, epoch: int, index: int) -> None:
        """Keep on disk the epoch and index that must not be forgotten."""
        self.known = replace(self.known, epoch=epoch, index=index)
        identity.save(self._settings.data, self.known)

    # The thread that waits at the server

    def _listen(self) -> None:
        pause = _Pause()
        while not self.stopping.is_set():
            try:
                if not self._joined.is_set():
                    self._join()
                self._beat(wait=self.heartbeat)
                pause.reset()
            except CedeClientError as error:
                self._failed(error, pause)

    def _failed(self, error: CedeClientError, pause: _Pause) -> None:
        if isinstance(error, Unauthorized) and not self._joined.is_set():
            self.fatal = error
            self.stop()
            return
        if isinstance(error, Conflict | NotFound | Unauthorized):
            self._joined.clear()  # the server does not know this agent as it is: register again
        pause.say("no heartbeat", error)
        self.stopping.wait(pause.next(self.heartbeat))

    def _join(self) -> None:
        token = self.known.token or self._settings.join_token
        identity.save(self._settings.data, self.known)  # the session, before the server knows it
        try:
            found = self._register(token)
        except Unauthorized:
            # Its node was deleted; with a join token it may come back as a new one.
            if not self.known.token or not self._settings.join_token:
                raise
            found = self._register(self._settings.join_token)
            token = self._settings.join_token
        self.heartbeat = float(found["heartbeat"])
        # Bridges of other servers, or of other clusters, may have the same name on this machine.
        node = str(found.get("node") or f"bridge {found['bridge']} {self._introduction.boot}")
        if self._machine is None or self.known.node != node:
            self._hold_machine(node)
        if self.known.next_session:
            self.known = identity.confirmed(self.known)
        self.known = replace(self.known, node=node, token=str(found.get("token") or token))
        identity.save(self._settings.data, self.known)
        self._http = _http(self._settings.server, self.known.token)
        self._joined.set()
        _log.info("joined", node=self.known.node, name=self._settings.name)
        for note in found.get("notes") or ():
            _log.warning("note", text=note)

    def _hold_machine(self, node: str) -> None:
        try:
            self._machine = identity.hold_machine(node)
        except identity.Unusable as error:
            # The server knows that the other agent is silent and has nothing: this one is the node
            # now.
            _log.warning("a silent agent is in the way", why=str(error))

    def _register(self, token: str) -> wire.Json:
        with closing(_http(self._settings.server, token)) as http:
            body = self._introduction.body(self.known)
            found: wire.Json = http.call("POST", API + self._introduction.path, body=body)
            return found

    # The thread that brings news

    def _tell(self) -> None:
        pause = _Pause()
        while not self.stopping.is_set():
            self._news.wait()
            if not self._joined.wait(PAUSE_MAX):
                continue
            self._news.clear()
            try:
                crash.at("report_before")
                self._beat(wait=0, news=True)
                crash.at("report_after")
                pause.reset()
                self.stopping.wait(GATHER)
            except CedeClientError as error:
                pause.say("cannot report", error)
                self._news.set()
                self.stopping.wait(pause.next(self.heartbeat))

    def _beat(self, *, wait: float, news: bool = False) -> None:
        assert self._http is not None
        boot = self._introduction.boot
        body: wire.Json = {"protocol": wire.PROTOCOL, "boot": boot, "wait": wait}
        body["session"] = self.known.session
        body |= self._body(news)
        # Counted from here: the server counts from later, whatever the network adds.
        sent_at = boottime()
        data = self._http.call(
            "POST", f"{API}/agent/heartbeat", body=body, timeout=wait + TIMEOUT, attempts=1
        )
        found = wire.answer(data, sent_at)
        self.heartbeat = found.heartbeat
        if self._take(found, body):
            self._news.set()


class _Pause:
    """The pause after a failure: longer with every failure in a row, and random, so that agents
    differ."""

    def __init__(self) -> None:
        self._dice = random.Random()
        self.reset()

    def reset(self) -> None:
        self._next = PAUSE_FIRST
        self._said = ""

    def say(self, what: str, error: CedeClientError) -> None:
        """Log each reason once: a server that is away for a night is one line."""
        if error.message != self._said:
            self._said = error.message
            _log.warning(what, why=error.message)

    def next(self, most: float) -> float:
        pause, self._next = self._next, min(self._next * 2, PAUSE_MAX, max(most, PAUSE_FIRST))
        return pause * self._dice.uniform(0.5, 1.0)


def _http(server: str, token: str) -> Http:
    return Http(Connection(server, token), timeout=TIMEOUT, attempts=1)
