"""Exactly one writer.

A deposed one commits nothing, standbys wait, a rolled-back database is refused.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from cede.store import Deposed, RolledBack, StaleIndex, Store, StoreError, connect, term
from cede.store.anchor import Anchor
from cede.store.errors import Stopped
from tests.store.samples import batch, changes, event, pool, started

PATIENCE = 60


class Standby(threading.Thread):
    """A second server's attempt to take over."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.store = Store(url)
        self.stop = threading.Event()
        self.epoch: int | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.epoch = self.store.take_over(self.stop)
        except BaseException as error:
            self.error = error


@pytest.fixture
def standby(database_url: str) -> Iterator[Callable[[], Standby]]:
    made: list[Standby] = []

    def start() -> Standby:
        made.append(Standby(database_url))
        made[-1].start()
        return made[-1]

    yield start
    for each in made:
        each.stop.set()
        each.join(PATIENCE)
        each.store.close()


def execute(url: str, statement: str) -> None:
    """Behind everybody's back."""
    engine = create_engine(connect.parse_url(url))
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()


def test_a_second_store_waits_and_takes_over_when_the_first_lets_go(
    store: Store, standby: Callable[[], Standby]
) -> None:
    second = standby()
    second.join(0.5)
    assert second.is_alive()
    store.let_go()
    second.join(PATIENCE)
    assert second.epoch == store.epoch + 1


def test_a_deposed_writer_commits_nothing(store: Store, standby: Callable[[], Standby]) -> None:
    """S12, K16: it still has its connection and believes in itself; the epoch says no."""
    store.commit(batch(0, changes([pool()], events=[event(1)])))
    store.let_go()
    second = standby()
    second.join(PATIENCE)
    with pytest.raises(Deposed, match="another server has taken over"):
        store.commit(batch(1, changes([pool("pool-2", "more")], events=[event(2)])))
    with pytest.raises(Deposed):
        store.load()
    if not store.sqlite:
        with pytest.raises(Deposed):
            store.renew_lease()
    assert [view.pool.name for view in store.list_pools().items] == ["gpus"]
    loaded = second.store.load()
    assert (loaded.index, loaded.epoch) == (1, store.epoch + 1)
    second.store.commit(batch(1, changes(events=[event(2)])))
    assert store.head() == 2


def test_a_closed_store_is_replaced_at_once(
    store: Store, standby: Callable[[], Standby], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after kill -9: the kernel closes what the process had open, and no lease is waited for."""
    monkeypatch.setattr(term, "LEASE_MILLISECONDS", 100 * 1_000 * PATIENCE)
    store.renew_lease()
    second = standby()
    second.join(0.3)
    assert second.is_alive()
    store.close()
    second.join(PATIENCE)
    assert second.epoch is not None


def test_a_frozen_leader_is_deposed_after_its_lease(
    database_url: str, standby: Callable[[], Standby], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps its session and its advisory lock, and says nothing: the lease is what ends it."""
    monkeypatch.setattr(term, "LEASE_MILLISECONDS", 700)
    frozen, _ = started(database_url)
    if frozen.sqlite:
        frozen.close()
        pytest.skip("on one machine a frozen process is waited for; there is no second one")
    second = standby()
    second.join(PATIENCE)
    assert second.epoch == frozen.epoch + 1
    with pytest.raises(Deposed):
        frozen.commit(batch(0))
    # A third one finds the second's lock, although the first still has its own.
    monkeypatch.setattr(term, "LEASE_MILLISECONDS", 60_000)
    second.store.renew_lease()
    third = standby()
    third.join(0.5)
    assert third.is_alive()
    frozen.close()
    third.join(0.5)
    assert third.is_alive()


def test_a_leader_that_renews_is_left_alone(
    database_url: str, standby: Callable[[], Standby], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(term, "LEASE_MILLISECONDS", 60_000)
    leader, _ = started(database_url)
    if leader.sqlite:
        leader.close()
        pytest.skip("a file is locked, and nothing need be renewed")
    second = standby()
    for _ in range(5):
        leader.renew_lease()
        # Half of its lease goes by, while this machine may pause for the other half.
        execute(database_url, "UPDATE meta SET lease_until = lease_until - 30000")
        second.join(0.5)
    assert second.is_alive()
    leader.commit(batch(0))
    leader.close()


def test_waiting_can_be_stopped(store: Store, standby: Callable[[], Standby]) -> None:
    second = standby()
    second.stop.set()
    second.join(PATIENCE)
    assert isinstance(second.error, Stopped)
    store.commit(batch(0))


def test_of_many_that_start_at_once_one_wins_at_a_time(
    database_url: str, standby: Callable[[], Standby]
) -> None:
    fresh = Store(database_url)
    fresh.migrate()
    fresh.close()
    racers = [standby() for _ in range(5)]
    epochs = []
    waiting = list(racers)
    while waiting:
        deadline = time.monotonic() + PATIENCE
        while not (won := [each for each in waiting if not each.is_alive()]):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        (winner,) = won
        assert winner.error is None, winner.error
        epochs.append(winner.epoch)
        winner.store.load()
        waiting.remove(winner)
        winner.store.let_go()
    assert epochs == [1, 2, 3, 4, 5]


def test_a_journal_that_moved_under_us_is_noticed(store: Store) -> None:
    with pytest.raises(StaleIndex, match="should be at index 7 and is at 0"):
        store.commit(batch(7))
    assert store.head() == 0


def test_only_the_writer_writes(database_url: str) -> None:
    store = Store(database_url)
    store.migrate()
    with pytest.raises(StoreError, match="take_over comes first"):
        store.commit(batch(0))
    store.close()


# S25: the anchor ---------------------------------------------------------------------------------


def test_a_database_older_than_its_anchor_is_refused(database_url: str, tmp_path: Path) -> None:
    path = tmp_path / "anchor"
    store, _ = started(database_url, anchor=path)
    for index in range(3):
        store.commit(batch(index))
    store.witness()
    store.close()
    execute(database_url, "UPDATE meta SET head = 2")
    store = Store(database_url, anchor=path)
    store.take_over()
    with pytest.raises(RolledBack, match=r"index 2.*witnesses epoch 1, index 3.*remove the anchor"):
        store.load()
    path.unlink()
    assert store.load().index == 2
    store.close()


def test_the_anchor_may_lag_and_never_leads(database_url: str, tmp_path: Path) -> None:
    store, _ = started(database_url, anchor=tmp_path / "anchor")
    store.commit(batch(0))
    store.witness()

    def fails(point: str) -> None:
        if point == "during_commit":
            raise OSError("disk full")

    store.at_point = fails
    with pytest.raises(OSError, match="disk full"):
        store.commit(batch(1))
    store.witness()
    store.close()
    store, loaded = started(database_url, anchor=tmp_path / "anchor")
    assert loaded.index == 1
    store.close()


def test_a_torn_anchor_write_leaves_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "anchor"
    anchor = Anchor(path)
    for index in range(1, 6):
        anchor.write(1, index)
    anchor.close()
    whole = path.read_bytes()
    for cut in range(len(whole) // 2):
        # The last write went to slot 0: any part of it may be missing.
        path.write_bytes(whole[:cut] + b"\0" * (64 - cut) + whole[64:])
        witness = Anchor(path).read()
        assert witness is not None and witness.index in (4, 5)
    path.write_bytes(whole)
    again = Anchor(path)
    again.write(2, 9)
    os.truncate(path, 128)
    found = again.read()
    assert found is not None and (found.epoch, found.index) == (2, 9)
    again.close()


def test_a_damaged_anchor_is_named(tmp_path: Path) -> None:
    path = tmp_path / "anchor"
    path.write_bytes(b"\xff" * 128)
    with pytest.raises(RolledBack, match="is damaged"):
        Anchor(path).check(1, 1)
