"""A server removes what is too old by itself, and goes on meanwhile."""

from __future__ import annotations

from typing import Any

from cede.model import bounds
from cede.model.bounds import DAY
from cede.server.retention import Retention
from cede.store import retention
from cede.store.values import Keep
from tests.server.helpers import PATIENCE, ask_for, give_back, key, make_pool, running, until


def age(writer: Any, days: int) -> None:
    """So much later on the server's clock."""
    writer._clock._base += days * DAY


def test_old_history_goes_while_the_server_works(database_url: str) -> None:
    with running(database_url) as (store, writer):
        writer.execute(make_pool()).result(PATIENCE)
        old = [writer.execute(ask_for(1), idempotency=key(f"k{n}")) for n in range(5)]
        ids = [each.result(PATIENCE) for each in old]
        for each in ids[1:]:
            writer.execute(give_back(each)).result(PATIENCE)
        age(writer, 40)
        cleaner = Retention(store, writer, Keep())
        cleaner.start()
        until(lambda: len(store.list_requests().items) == 1, "removal")
        until(lambda: not store.next_removal(Keep(), writer.now()), "the end of the run")
        # What is alive is as old, and stays; and the server still grants.
        assert [each.request.id for each in store.list_requests().items] == ids[:1]
        writer.execute(ask_for(1)).result(PATIENCE)
        cleaner.stop(PATIENCE)
        entry = store.list_audit().items[0].note
        assert (entry.action, entry.detail["requests"]["count"]) == (retention.ACTION, 4)
        assert store.verify_audit().broken is None


def test_every_turn_removes_no_more_than_its_bound(database_url: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(bounds, "REMOVED_REQUESTS_MAX", 2)
    with running(database_url) as (store, writer):
        writer.execute(make_pool()).result(PATIENCE)
        for _ in range(5):
            made = writer.execute(ask_for(1)).result(PATIENCE)
            writer.execute(give_back(made)).result(PATIENCE)
        age(writer, 40)
        cleaner = Retention(store, writer, Keep(events=None))
        left = []
        while cleaner.turn():
            left.append(len(store.list_requests().items))
        assert left == [5, 3, 1, 0]
        # Nothing is left, so nothing is written any more.
        assert [each.note.action for each in store.list_audit().items].count(retention.ACTION) == 1
        assert not cleaner.turn()
