"""S19.

One key and one body is one request and one answer, however often and from wherever it is sent.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import pytest

from cede.model.errors import Conflict
from cede.server.retention import Retention
from cede.server.tx import Tx
from cede.store.values import Keep
from tests.server.helpers import PATIENCE, ask_for, key, make_pool, running


def test_a_repetition_gets_the_same_answer_and_makes_nothing(database_url: str) -> None:
    with running(database_url) as (store, writer):
        writer.execute(make_pool()).result(PATIENCE)
        ids = [
            writer.execute(ask_for(1), idempotency=key("once")).result(PATIENCE) for _ in range(3)
        ]
        assert len(set(ids)) == 1
        assert len(store.list_requests().items) == 1


def test_it_survives_a_restart(database_url: str) -> None:
    with running(database_url) as (_, writer):
        writer.execute(make_pool()).result(PATIENCE)
        first = writer.execute(ask_for(1), idempotency=key("once")).result(PATIENCE)
    with running(database_url) as (store, writer):
        again = writer.execute(ask_for(1), idempotency=key("once")).result(PATIENCE)
        assert again == first
        assert len(store.list_requests().items) == 1


def test_another_body_under_the_same_key_is_refused(database_url: str) -> None:
    with running(database_url) as (store, writer):
        writer.execute(make_pool()).result(PATIENCE)
        writer.execute(ask_for(1), idempotency=key("once")).result(PATIENCE)
        with pytest.raises(Conflict) as refusal:
            writer.execute(ask_for(2), idempotency=key("once", "other")).result(PATIENCE)
        assert refusal.value.code == "idempotency_key_reused"
        assert len(store.list_requests().items) == 1


def test_keys_of_two_callers_are_two_keys(database_url: str) -> None:
    with running(database_url) as (store, writer):
        writer.execute(make_pool()).result(PATIENCE)
        for token in ("token-1", "token-2"):
            writer.execute(ask_for(1), idempotency=key("once", token=token)).result(PATIENCE)
        assert len(store.list_requests().items) == 2


def test_a_refused_command_leaves_its_key_free(database_url: str) -> None:
    def refused(tx: Tx) -> None:
        raise Conflict("no", "not now")

    with running(database_url) as (store, writer):
        writer.execute(make_pool()).result(PATIENCE)
        with pytest.raises(Conflict):
            writer.execute(refused, idempotency=key("once")).result(PATIENCE)
        writer.execute(ask_for(1), idempotency=key("once")).result(PATIENCE)
        assert len(store.list_requests().items) == 1


def test_a_hundred_at_once_are_one(database_url: str) -> None:
    """From ten threads, so that some meet in one transaction and others do not."""
    with running(database_url) as (store, writer):
        writer.execute(make_pool()).result(PATIENCE)
        futures: list[Future[Any]] = []
        start = threading.Barrier(10)

        def send() -> None:
            start.wait(PATIENCE)
            for _ in range(10):
                futures.append(writer.execute(ask_for(1), idempotency=key("storm")))

        threads = [threading.Thread(target=send) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        ids = [future.result(PATIENCE) for future in futures]
        assert len(ids) == 100 and len(set(ids)) == 1
        assert [view.request.id for view in store.list_requests().items] == ids[:1]


def test_old_answers_are_forgotten(database_url: str) -> None:
    with running(database_url) as (store, writer):
        writer.execute(make_pool()).result(PATIENCE)
        writer.execute(ask_for(1), idempotency=key("once")).result(PATIENCE)
        writer._clock._base += 25 * 3_600 * 1_000  # a day and an hour later
        assert Retention(store, writer, Keep()).turn()
        assert writer.query(lambda state, now: store.recall([key("once")])).result(PATIENCE) == {}
