"""Exactly one writer.

A deposed one commits nothing, standbys wait, a rolled-back database is refused.
"""

from __future__ import annotations

import os
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, select, text, update

from cede.store import Deposed, RolledBack, StaleIndex, Store, StoreError, connect, schema, term
from cede.store.anchor import Anchor, Witness
from cede.store.errors import Stopped
from cede.store.sealed import epoch_sum
from tests.server.helpers import until
from tests.store.samples import batch, changes, event, pool, started, token

PATIENCE = 60


class Standby(threading.Thread):
    """A second server's attempt to take over."""

    def __init__(self, url: str, anchor: Path | None = None) -> None:
        super().__init__(daemon=True)
        self.store = Store(url, anchor=anchor)
        self.stop = threading.Event()
        self.epoch: int | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.epoch = self.store.take_over(self.stop)
        except BaseException as error:
            self.error = error


@pytest.fixture
def standby(database_url: str) -> Iterator[Callable[..., Standby]]:
    made: list[Standby] = []

    def start(anchor: Path | None = None) -> Standby:
        made.append(Standby(database_url, anchor))
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
    assert [pool.name for pool in store.list_pools().items] == ["gpus"]
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


def remembered(url: str) -> dict[str, Any]:
    """The row that every commit writes."""
    engine = create_engine(connect.parse_url(url))
    with engine.begin() as connection:
        row = connection.execute(select(schema.meta)).one()
    engine.dispose()
    return dict(row._mapping)


def roll_back(url: str, row: dict[str, Any]) -> None:
    """As after the loss of every commit since that row was written."""
    engine = create_engine(connect.parse_url(url))
    with engine.begin() as connection:
        connection.execute(update(schema.meta).values(row))
    engine.dispose()


def test_a_database_older_than_its_anchor_is_refused(database_url: str, tmp_path: Path) -> None:
    path = tmp_path / "anchor"
    store, _ = started(database_url, anchor=path)
    store.commit(batch(0))
    store.commit(batch(1))
    before = remembered(database_url)
    store.commit(batch(2))
    store.close()
    roll_back(database_url, before)
    store = Store(database_url, anchor=path)
    store.take_over()
    words = r"index 2, commit 2.*witnesses epoch 1, index 3, commit 3.*misses indexes 3 to 3"
    with pytest.raises(RolledBack, match=words + r", commits 3 to 3.*restore --accept"):
        store.load()
    path.unlink()
    assert store.load().index == 2
    store.close()


def test_a_lost_commit_that_moved_no_index_is_noticed(database_url: str, tmp_path: Path) -> None:
    """A revoked token, for one: nothing in the journal tells of it."""
    path = tmp_path / "anchor"
    store, _ = started(database_url, anchor=path)
    before = remembered(database_url)
    store.commit(batch(0, index=0, tokens=[token()]))
    store.close()
    roll_back(database_url, before)
    store = Store(database_url, anchor=path)
    store.take_over()
    with pytest.raises(RolledBack, match="misses commits 1 to 1"):
        store.load()
    store.close()


def test_a_standby_has_an_anchor_from_the_moment_it_follows(
    database_url: str, tmp_path: Path, standby: Callable[..., Standby]
) -> None:
    """It never led, and yet it notices that commits are gone which it has seen."""
    leader, _ = started(database_url, anchor=tmp_path / "anchor")
    leader.commit(batch(0))
    before = remembered(database_url)
    leader.commit(batch(1))
    second = standby(tmp_path / "other")
    own = Anchor(tmp_path / "other")
    until(lambda: (found := own.read()) is not None and found.index == 2, "the standby's anchor")
    leader.close()
    second.join(PATIENCE)
    roll_back(database_url, before | {"epoch": second.epoch, "epoch_sum": epoch_sum(2)})
    with pytest.raises(RolledBack, match="misses indexes 2 to 2"):
        second.store.load()


def test_a_standby_leaves_the_anchor_of_the_leader_alone(database_url: str, tmp_path: Path) -> None:
    """Two servers may share a data folder; the one that waits knows less."""
    path = tmp_path / "anchor"
    leader, _ = started(database_url, anchor=path)
    leader.commit(batch(0))
    follower = Anchor(path)
    follower.follow(Witness(1, 0, 0))
    follower.follow(Witness(9, 9, 9))  # not even later ones: the file is locked
    assert Anchor(path).read() == Witness(1, 1, 1)
    leader.close()
    follower.follow(Witness(1, 0, 1))
    assert Anchor(path).read() == Witness(1, 1, 1)
    follower.follow(Witness(1, 4, 5))
    follower.follow(Witness(1, 5, 6))
    assert Anchor(path).read() == Witness(1, 5, 6)


def test_the_anchor_of_a_frozen_writer_is_not_waited_for(tmp_path: Path) -> None:
    """It was deposed and still has the file open; both servers share a data folder."""
    frozen, next_one = Anchor(tmp_path / "anchor"), Anchor(tmp_path / "anchor")
    frozen.write(Witness(1, 4, 4))
    next_one.write(Witness(2, 5, 5))
    assert Anchor(tmp_path / "anchor").read() == Witness(2, 5, 5)
    next_one.close()
    frozen.close()


def test_an_anchor_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    """It counted no commits."""
    path = tmp_path / "anchor"
    path.write_bytes(f"3 17 {zlib.crc32(b'3 17'):08x}".ljust(63).encode() + b"\n")
    assert Anchor(path).read() == Witness(3, 17)
    with pytest.raises(RolledBack, match="misses indexes 17 to 17"):
        Anchor(path).check(Witness(3, 16, 5))
    Anchor(path).check(Witness(3, 17, 0))
    anchor = Anchor(path)
    anchor.write(Witness(4, 17, 1))
    anchor.close()
    assert Anchor(path).read() == Witness(4, 17, 1)


def test_the_anchor_is_written_after_the_commit_and_never_leads(
    database_url: str, tmp_path: Path
) -> None:
    path = tmp_path / "anchor"
    store, _ = started(database_url, anchor=path)
    seen: list[tuple[str, int]] = []

    def looks(point: str) -> None:
        found = Anchor(path).read()
        assert found is not None
        seen.append((point, found.commits))

    store.at_point = looks
    store.commit(batch(0))
    assert seen == [("before_commit", 0), ("during_commit", 0), ("after_commit", 0)]
    assert Anchor(path).read() == Witness(1, 1, 1)

    def fails(point: str) -> None:
        if point == "during_commit":
            raise OSError("disk full")

    store.at_point = fails
    with pytest.raises(OSError, match="disk full"):
        store.commit(batch(1))
    assert Anchor(path).read() == Witness(1, 1, 1)
    store.close()
    store, loaded = started(database_url, anchor=path)
    assert loaded.index == 1
    store.close()


def test_a_torn_anchor_write_leaves_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "anchor"
    anchor = Anchor(path)
    for index in range(1, 6):
        anchor.write(Witness(1, index))
    anchor.close()
    whole = path.read_bytes()
    for cut in range(len(whole) // 2):
        # The last write went to slot 0: any part of it may be missing.
        path.write_bytes(whole[:cut] + b"\0" * (64 - cut) + whole[64:])
        witness = Anchor(path).read()
        assert witness is not None and witness.index in (4, 5)
    path.write_bytes(whole)
    again = Anchor(path)
    again.write(Witness(2, 9))
    os.truncate(path, 128)
    found = again.read()
    assert found is not None and (found.epoch, found.index) == (2, 9)
    again.close()


def test_a_damaged_anchor_is_named(tmp_path: Path) -> None:
    path = tmp_path / "anchor"
    path.write_bytes(b"\xff" * 128)
    with pytest.raises(RolledBack, match="is damaged"):
        Anchor(path).check(Witness(1, 1))
