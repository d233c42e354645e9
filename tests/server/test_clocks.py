"""Clocks of starvation and of limits, and what is saved up, go on after a restart."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import func, select

from cede.engine.admin.edits import attach_policy, create_pool
from cede.engine.lifecycle.commands import Submission, cancel, submit
from cede.engine.shares import clocks
from cede.engine.state.state import State
from cede.model.subject import Subject
from cede.server import clocks as server_clocks
from cede.server.tx import Tx
from cede.server.writer import Writer
from cede.store import Store, schema
from tests.server.helpers import PATIENCE, running, until

RED, BLUE = Subject("team", "red"), Subject("team", "blue")
SETTINGS = {
    "fair_share_update_period": 0,
    "fair_share_starvation_timeout": 3600,
    "fair_share_aggressive_starvation_timeout": 7200,
}
SAVED_UP = {
    "guarantee_type": "burst",
    "resource_flow": {"gpu": 1},
    "burst_guarantee_resources": {"gpu": 4},
}


def contest(writer: Writer, **blue: Any) -> None:
    """Red holds everything; blue waits and is below its share."""

    def hold(tx: Tx) -> None:
        gpus = {"capacity": {"gpu": 8}, "preset": "fair_share", "settings": SETTINGS}
        create_pool(tx.state, id="pool", name="gpus", **gpus)
        attach_policy(tx.state, id="red", pool_id="pool", subject=RED)
        attach_policy(tx.state, id="blue", pool_id="pool", subject=BLUE, **blue)
        held = Submission("held", RED, {"gpu": 8}, lease=None)
        submit(tx.state, held, tx.now)

    def wait(tx: Tx) -> None:
        submit(tx.state, Submission("waits", BLUE, {"gpu": 4}, lease=None), tx.now)

    writer.execute(hold).result(PATIENCE)
    writer.execute(wait).result(PATIENCE)


def shown(writer: Writer) -> dict[str, Any]:
    def read(state: State, now: int) -> dict[str, Any]:
        return clocks.shown(state, "pool")

    return writer.query(read).result(PATIENCE)


def below(writer: Writer) -> dict[str, Any]:
    """The clocks, once blue's runs."""
    found: dict[str, Any] = until(lambda: shown(writer).get("below") and shown(writer))
    assert set(found["below"]) == {"blue", "waits"}
    return found


def written(store: Store) -> int:
    with store._readers.begin() as connection:
        found: int = connection.execute(
            select(func.count()).select_from(schema.pool_clocks)
        ).scalar_one()
    return found


def test_a_restart_goes_on_where_the_server_stopped(database_url: str) -> None:
    with running(database_url) as (_, writer):
        contest(writer, integral=SAVED_UP)
        before = below(writer)
    with running(database_url) as (_, writer):
        after = below(writer)
        assert after["below"] == before["below"]
        assert after["saved"]["blue"][0]["gpu"] >= before["saved"]["blue"][0]["gpu"]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clocks are written whenever they moved."""
    monkeypatch.setattr(server_clocks, "CLOCKS_EVERY", 0)


@pytest.mark.usefixtures("at_once")
def test_a_crash_costs_only_what_was_not_written(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Writer, "_finish", lambda self: None)  # as after a kill
    with running(database_url) as (store, writer):
        contest(writer)
        before = below(writer)
        until(lambda: written(store))
    with running(database_url) as (_, writer):
        assert below(writer)["below"] == before["below"]


@pytest.mark.usefixtures("at_once")
def test_a_clock_that_stands_still_is_written_no_more(database_url: str) -> None:
    with running(database_url) as (store, writer):
        contest(writer)
        below(writer)
        until(lambda: written(store))
        ends = writer.execute(lambda tx: cancel(tx.state, "waits", tx.now, actor="alice").id)
        ends.result(PATIENCE)
        until(lambda: not written(store))
