"""Clients of a storm: each asks again until it is answered, and writes down what it was told."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

from cede import CedeClientError, Client, Conflict, Forbidden, NotFound
from cede.client.errors import ServerBroken, ServerUnreachable, Unauthorized
from cede.client.http import API
from tests.storm.books import Books, Held

COUNTED = "counted"
CAPACITY = 12
CALLERS = "callers"
OTHERS = "others"
LEASE = 8.0
HOLDS = (0.0, 3.0)  # seconds
PAUSE = 0.3
HOPELESS = (Unauthorized, Forbidden, NotFound)

Answer = TypeVar("Answer")


@dataclass
class Caller:
    """One thread with a token of its own."""

    url: str
    admin: str
    own: str  # of a submitter bound to its team
    foreign: str  # of one bound to another team
    team: str  # whose policy only this thread edits
    books: Books
    dice: random.Random
    over: threading.Event
    deadline: float = float("inf")

    def run(self) -> None:
        deeds = {self.hold: 6, self.change_mind: 3, self.edit: 1, self.mint: 1, self.intrude: 2}
        with Client(self.url, self.own) as self.client, Client(self.url, self.admin) as self.boss:
            while not self.over.is_set():
                deed = self.dice.choices(list(deeds), list(deeds.values()))[0]
                try:
                    deed()
                except ServerUnreachable:
                    if time.monotonic() > self.deadline:
                        self.books.wrong(f"stuck: {deed.__name__} was not answered")
                        return
                except CedeClientError as error:
                    self.books.wrong(f"refused: {deed.__name__}: {error}")
                time.sleep(self.dice.uniform(0, PAUSE))

    def hold(self) -> None:
        """Wait for units, keep them for a while, give them back."""
        units = self.dice.choice([1, 1, 2, 5])
        made, sent_at = self._create(units)
        wait = partial(self.client.requests.renew, made["id"], wait=2.0)
        while made["status"] == "queued":
            sent_at = time.monotonic()
            made = self._sure(wait)
        if made["status"] != "allocated":
            self.books.count(f"not granted: {made['status']}")
            return
        granted_at = time.monotonic()
        until = granted_at + self.dice.uniform(*HOLDS)
        while time.monotonic() < min(until, sent_at + LEASE):
            time.sleep(0.2)
            asked_at = time.monotonic()
            with suppress(ServerUnreachable, ServerBroken):
                self.client.requests.renew(made["id"], attempt=made["attempt"], attempts=1)
                sent_at = asked_at
        end = min(time.monotonic(), sent_at + LEASE)
        if end > granted_at:
            self.books.held.append(Held(made["id"], units, granted_at, end))
        self._release(made)

    def change_mind(self) -> None:
        made, sent_at = self._create(self.dice.choice([1, 3, CAPACITY]))
        time.sleep(self.dice.uniform(0, 1))
        self._cancel(made, sent_at)

    def edit(self) -> None:
        policy = self._sure(lambda: self.boss.policies.of(COUNTED, self.team, "team"))["id"]
        priority = self.dice.randrange(1000)
        self._sure(lambda: self.boss.policies.update(policy, priority=priority))
        self.books.priorities[policy] = priority
        self.books.count("edited")

    def mint(self) -> None:
        """A token that is revoked is refused from then on."""
        name = f"short-{uuid4()}"
        made = self._sure(lambda: self.boss.tokens.create(name, "viewer"))
        self._sure(lambda: self.boss.tokens.revoke(made["id"]))
        self.books.revoked.append(made["token"])
        self.books.count("revoked")

    def intrude(self) -> None:
        """What nobody may do, tried with the token of another team, and with none."""
        made, sent_at = self._create(1)
        path = f"{API}/requests/{made['id']}"
        tries: list[tuple[str, str, Any]] = [
            ("POST", f"{path}/cancel", {}),
            ("GET", path, None),
            ("DELETE", path, None),
            ("POST", f"{API}/pools", {"name": "mine", "capacity": {"gpu": 1}}),
            ("POST", f"{API}/tokens", {"name": "mine", "role": "admin"}),
            ("POST", f"{API}/agent/heartbeat", {}),
        ]
        for token in (self.foreign, "cede_nobody"):
            method, at, body = self.dice.choice(tries)
            with Client(self.url, token) as intruder:
                try:
                    # Once: a DELETE that is repeated and finds nothing counts as done.
                    self._sure(partial(intruder.http.call, method, at, body=body, attempts=1))
                except HOPELESS:
                    self.books.count("kept out")
                else:
                    self.books.wrong(f"let in: {method} {at}")
        self._cancel(made, sent_at)

    def _cancel(self, made: dict[str, Any], sent_at: float) -> None:
        """Its lease may be over, but not before its time."""
        try:
            self._sure(lambda: self.client.requests.cancel(made["id"]))
        except Conflict:
            if time.monotonic() < sent_at + LEASE:
                raise
            self.books.count("cancelled too late")
            return
        self.books.count("cancelled")

    def _create(self, units: int) -> tuple[dict[str, Any], float]:
        key = str(uuid4())
        body = {
            "kind": "work",
            "resources": {"gpu": units},
            "pool": COUNTED,
            "component": CALLERS,
            "component_type": "team",
            "lease": LEASE,
            "comment": key,
        }
        sent: list[float] = []

        def create() -> dict[str, Any]:
            sent.append(time.monotonic())
            return self.client.requests.create(body, key=key)

        made = self._sure(create)
        self.books.made(key, made["id"])
        return made, sent[0]  # its lease may have begun with a call that was not answered

    def _release(self, made: dict[str, Any]) -> None:
        key = str(uuid4())
        try:
            self._sure(
                lambda: self.client.requests.release(made["id"], attempt=made["attempt"], key=key)
            )
        except Conflict:
            self.books.count("released too late")  # its lease was over
            return
        self.books.ended(made["id"], "released")

    def _sure(self, ask: Callable[[], Answer]) -> Answer:
        """Ask until it is answered. An error inside the server is noted, and asked again."""
        while True:
            try:
                return ask()
            except ServerBroken as error:
                self.books.wrong(f"broken: {error.status} {error}")
            except ServerUnreachable:
                self.books.count("asked again")
                if time.monotonic() > self.deadline:
                    raise
            time.sleep(0.2)
