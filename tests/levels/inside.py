"""A whole server in this process, without a socket: its HTTP face, writer and store, and a clock
that can be moved. It can be stopped and started again on the same database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cede.engine.state.state import State
from cede.model.token import Role, Token
from cede.server import clock, tokens
from cede.server.api.app import create_app
from cede.server.config import Config
from cede.server.ids import new_id
from cede.server.writer import Writer
from cede.snapshot.writer import dump
from cede.store import Store
from tests.support import databases

PATIENCE = 60


def stop_the_clock(patch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """No time passes but the milliseconds that are given to what this returns.

    So however slow a machine is, the same steps find the same; before the server is made.
    """
    instant = [clock.boottime()]
    patch.setattr(clock, "boottime", lambda: instant[0])

    def move(milliseconds: int) -> None:
        instant[0] += milliseconds

    return move


class Inside:
    def __init__(self, url: str) -> None:
        self.url = url
        self.runner = asyncio.Runner()
        self.secret, digest = tokens.new_token()
        self.deaths: list[BaseException] = []
        self.start()
        token = Token(new_id(), "admin", Role.ADMIN, (), digest, clock.wall())
        self.writer.execute(lambda tx: tx.put_token(token)).result(PATIENCE)

    def start(self) -> None:
        databases.give_tables(self.url)
        self.store = Store(self.url)
        self.store.migrate()
        self.store.take_over()
        # An unsound state is refused here.
        self.writer = Writer(self.store, self.store.load(), on_fatal=self.deaths.append)
        self.writer.start()
        self.app = create_app(self.store, self.writer, Config(data=Path(), database=self.url))

    def stop(self) -> None:
        self.writer.stop(PATIENCE)
        self.store.close()

    def close(self) -> None:
        self.stop()
        self.runner.close()
        assert not self.deaths, self.deaths

    def call(
        self, method: str, path: str, body: Any = None, key: str | None = None
    ) -> tuple[int, Any]:
        """Status and JSON of one call. Whatever is asked, the server makes no mistake (C10)."""
        status, answer = self.runner.run(self._call(method, path, body, key))
        assert status < 500, (method, path, body, answer)
        return status, answer

    async def _call(self, method: str, path: str, body: Any, key: str | None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self.secret}"}
        if key is not None:
            headers["Idempotency-Key"] = key
        transport = httpx2.ASGITransport(self.app, raise_app_exceptions=True)
        base = "http://127.0.0.1/api/v1"
        async with httpx2.AsyncClient(transport=transport, base_url=base) as client:
            response = await client.request(method, path, json=body, headers=headers)
        return response.status_code, response.json() if response.content else None

    def settle(self) -> None:
        """Return when what is due by now has been done and committed.

        A question is answered before what is due in the same turn; the next one after it.
        """
        for _ in range(2):
            self.writer.query(lambda state, now: None).result(PATIENCE)

    def states(self) -> tuple[State, dict[str, Any], dict[str, Any]]:
        """What the database holds, and snapshots of it and of the writer's own state."""

        def look(state: State, now: int) -> tuple[State, dict[str, Any], dict[str, Any]]:
            # On the writer's thread, so that both are of the same commit.
            stored = self.store.load().state
            return stored, dump(stored, now), dump(state, now)

        return self.writer.query(look).result(PATIENCE)
