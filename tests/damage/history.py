"""A small history of every kind of row, as the files that a server leaves."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from dataclasses import dataclass, replace
from pathlib import Path

from cede.model.bounds import DAY
from cede.model.lifecycle import AllocationState, RequestStatus
from cede.store import AuditNote, Idempotency, Remembered, Store
from cede.store.values import Keep, Moment
from tests.store.samples import (
    allocation,
    batch,
    changes,
    event,
    node,
    policy,
    pool,
    request,
    started,
    tenant,
    token,
)

FILES = ("cede.db", "cede.db-wal", "anchor")
ROUNDS = 12
OLD, YOUNG, NOW = 5, 90 * DAY, 100 * DAY
KEEP = Keep(requests=30 * DAY, events=30 * DAY, audit=30 * DAY, idempotency=30 * DAY)
TODAY = "2026-06-30T12:00:00.000Z"


@dataclass(frozen=True)
class History:
    """Files in a folder, and everything that can be read from them."""

    folder: Path
    answers: object

    def copy(self, to: Path) -> Path:
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir()
        for name in FILES:
            if (self.folder / name).exists():
                shutil.copy(self.folder / name, to / name)
        return to


def make(folder: Path) -> tuple[History, History]:
    """After a crash, with every commit in the WAL; and after a stop, with all in the database."""
    live, crashed, stopped = (folder / name for name in ("live", "crashed", "stopped"))
    for each in (live, crashed, stopped):
        each.mkdir(parents=True)
    store, _ = started(f"sqlite:///{live / 'cede.db'}", anchor=live / "anchor")
    everything = {"gpu": 2 * ROUNDS}
    of_pool = replace(pool(), capacity=everything)
    of_policy = replace(policy(), reserved=everything, limit=everything)
    loose = node(pool_id=None)
    store.commit(batch(0, changes([of_pool, of_policy, tenant(), loose], events=[event(1)])))
    index = 1
    for turn in range(ROUNDS):
        name, when = f"request-{turn}", OLD if turn < ROUNDS // 3 else YOUNG
        moment = Moment(when, "boot", 7)
        asked = request(name, index + 1, status=RequestStatus.ALLOCATED, labels={"turn": str(turn)})
        held = allocation(name, index=index + 2)
        # As long as its row once it is packed.
        text = json.dumps([hashlib.sha256(f"{turn}/{n}".encode()).hexdigest() for n in range(16)])
        answer = Remembered(Idempotency(f"key-{turn}", "POST /", "token", "b" * 64), text, when)
        day = "2026-01-01" if when == OLD else "2026-06-20"
        note = AuditNote(f"{day}T00:00:00Z", "ann", "act", name, {"turn": turn})
        events = [event(index + 1, at=when), event(index + 2, at=when, request_id=name)]
        granted = batch(
            index,
            changes([asked, held], events=events),
            index=index + 2,
            moment=moment,
            answers=[answer],
            audit=[note],
            tokens=[token(f"token-{turn}", hash=f"{turn:064x}")],
        )
        store.commit(granted)
        index += 2
        if turn % 2:
            over = replace(held, state=AllocationState.ENDED, ended_at=when + 4)
            ended = replace(asked, status=RequestStatus.RELEASED)
            last = [event(index + 1, at=when)]
            store.commit(batch(index, changes([], [over, ended], events=last), moment=moment))
            index += 1
    _remove_old(store, index)
    # One that moves no index.
    revoked = token("token-0", hash=f"{0:064x}", revoked=True)
    store.commit(batch(index, index=index, tokens=[revoked], moment=Moment(NOW, "boot", 7)))
    for name in FILES:
        shutil.copy(live / name, crashed / name)
    store.close()
    for name in FILES:
        if (live / name).exists():
            shutil.copy(live / name, stopped / name)
    made = [History(each, read(each, folder / "read")) for each in (crashed, stopped)]
    assert all(isinstance(each.answers, dict) for each in made), made
    return made[0], made[1]


def _remove_old(store: Store, index: int) -> None:
    """One run of retention: some rows of every kind go, and days come in their place."""
    run = store.next_run(KEEP, NOW, TODAY)
    assert run is not None and set(run.note.detail) == {"requests", "events", "audit"}
    store.commit(batch(index, index=index, moment=Moment(NOW, "boot", 7), run=run))
    while removal := store.next_removal(KEEP, NOW):
        store.commit(batch(index, index=index, moment=Moment(NOW, "boot", 7), removal=removal))


def read(folder: Path, scratch: Path) -> object:
    """Every row that the API can show, through each table and each index, without any code of ours;
    or that it cannot be read.
    """
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(folder, scratch)
    connection = sqlite3.connect(scratch / "cede.db")
    try:
        return {statement: connection.execute(statement).fetchall() for statement in _STATEMENTS}
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return f"unreadable: {error}"
    finally:
        connection.close()


# Who holds the lease is nobody's answer, and checksums are what is being tested.
_META = (
    "SELECT id, epoch, head, instant, boot_id, boottime, secret, audit_number, audit_hash, "
    "requests_before, events_through, audit_through, audit_cut, audit_through_hash, commits "
    "FROM meta"
)
_TABLES = (
    "pools", "nodes", "policies", "tenants", "requests", "allocations", "held_devices", "events",
    "tokens", "answers", "usage_days", "history", "clock_notes", "audit",
)  # fmt: skip
_STATEMENTS = [
    _META,
    *(f"SELECT * FROM {table} NOT INDEXED" for table in _TABLES),
    "SELECT id FROM requests INDEXED BY uq_requests_at_index ORDER BY at_index",
    "SELECT id FROM requests INDEXED BY ix_requests_subject ORDER BY subject_type, subject_name, "
    "at_index",
    "SELECT at_index FROM events INDEXED BY ix_events_request ORDER BY request_id, at_index",
    "SELECT key FROM answers INDEXED BY ix_answers_at ORDER BY at, key",
    "SELECT id FROM requests INDEXED BY ix_requests_ended WHERE ended_at IS NOT NULL "
    "ORDER BY ended_at, id",
    "SELECT request_id FROM allocations INDEXED BY ix_allocations_ended WHERE ended_at IS NOT NULL "
    "ORDER BY ended_at, request_id",
    "SELECT id FROM policies INDEXED BY ix_policies_subject ORDER BY subject_type, subject_name",
    *(f"SELECT * FROM {table} ORDER BY 1, 2" for table in _TABLES),
]
