"""What the writer and the agents leave for each other."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from cede.engine.admin import fleet
from cede.engine.admin.edits import attach_policy, create_pool
from cede.model.node import Node
from cede.model.work import Work
from cede.server.ids import new_id
from cede.server.tx import Tx
from cede.server.writer import Writer
from tests.server.helpers import PATIENCE, RED, ask_for, running, until

HEARTBEAT = 10_000
WORK: dict[str, Any] = {"work": Work(("true",))}


def machine(name: str) -> Any:
    def command(tx: Tx) -> Node:
        return fleet.register(
            tx.state,
            id=name,
            name=name,
            amounts={"gpu": 1},
            labels={"farm": "yes"},
            heartbeat=HEARTBEAT,
            now=tx.now,
        )

    return command


def farm(tx: Tx) -> None:
    pool = create_pool(tx.state, id=new_id(), name="farm", nodes={"farm": "yes"})
    attach_policy(tx.state, id=new_id(), pool_id=pool.id, subject=RED)


def filled(writer: Writer, *names: str) -> None:
    writer.execute(farm).result(PATIENCE)
    for name in names:
        writer.execute(machine(name)).result(PATIENCE)


def test_what_a_node_should_do_is_posted_with_the_commit(database_url: str) -> None:
    with running(database_url) as (_, writer):
        filled(writer, "a", "b")
        posted = writer.order_board.posted
        before = {name: posted[name].version for name in ("a", "b")}
        asked = writer.execute(ask_for(1, **WORK)).result(PATIENCE)
        (on,) = [name for name in before if posted[name].orders]
        assert [each.request_id for each in posted[on].orders] == [asked]
        other = "b" if on == "a" else "a"
        assert posted[on].version > before[on] and posted[other].version == before[other]
    with running(database_url) as (_, writer):
        # K3: whoever starts next posts the same.
        assert [each.request_id for each in writer.order_board.posted[on].orders] == [asked]
        writer.execute(
            lambda tx: fleet.delete(tx.state, other, tx.now)  # nothing is on it
        ).result(PATIENCE)
        assert other not in writer.order_board.posted


def test_who_starts_grants_every_node_a_whole_lease_from_then(database_url: str) -> None:
    """K17: never shorter than what was promised, whoever was heard of last and when."""
    with running(database_url) as (_, writer):
        filled(writer, "a")
        before = until(
            lambda: writer.now() if writer.now() > writer.order_board.heard_at("a") else 0
        )
    with running(database_url) as (store, writer):
        now = writer.now()
        heard = writer.query(lambda state, _: state.beats["a"]).result(PATIENCE)
        # The one before let go of nothing: it may answer until its own clock ends its term (S14).
        assert store.former_term == (0 if store.sqlite else 10_100)
        assert before <= heard - store.former_term <= now
        assert writer.order_board.heard_at("a") <= now


def test_beats_reach_the_engine_before_its_next_pass(database_url: str) -> None:
    with running(database_url) as (_, writer):
        filled(writer, "a")
        later = writer.now() + 60_000
        writer.order_board.beat("a", later)
        writer.order_board.beat("nobody", later)
        seen = writer.execute(lambda tx: dict(tx.state.beats)).result(PATIENCE)
        assert seen["a"] == later and "nobody" not in seen


def test_news_that_come_while_somebody_goes_to_wait_are_not_missed(database_url: str) -> None:
    with running(database_url) as (_, writer):
        filled(writer, "a")
        known = writer.order_board.posted["a"]
        writer.execute(ask_for(1, **WORK)).result(PATIENCE)
        assert writer.order_board.posted["a"] is not known

        async def wait() -> float:
            loop = asyncio.get_running_loop()
            began = loop.time()
            await writer.order_board.wait(known, PATIENCE)
            return loop.time() - began

        assert asyncio.run(wait()) < PATIENCE / 2


def test_a_wait_ends_with_the_commit_that_concerns_it(database_url: str) -> None:
    with running(database_url) as (_, writer):
        filled(writer, "a")
        took: list[float] = []

        async def wait() -> None:
            loop = asyncio.get_running_loop()
            began = loop.time()
            await writer.order_board.wait(writer.order_board.posted["a"], PATIENCE)
            took.append(loop.time() - began)

        waiting = threading.Thread(target=lambda: asyncio.run(wait()))
        waiting.start()
        until(lambda: writer.order_board._waiting, "waiting")
        writer.execute(ask_for(1, **WORK)).result(PATIENCE)
        waiting.join(PATIENCE)
        assert took and took[0] < PATIENCE / 2
