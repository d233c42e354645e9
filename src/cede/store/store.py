"""The store: one transaction per batch, all of it or nothing, under an epoch that every transaction
checks.

There is one writer, so writes have no concurrency: `take_over` makes this store the writer, `load`
gives it the living entities, `commit` keeps their changes. Reads are in `reads.py` and never wait
for the writer.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from threading import Event
from typing import Any

import structlog
from sqlalchemy import Connection, and_, bindparam, select, update

from cede.engine.state.changes import Changes
from cede.engine.state.entities import Entity
from cede.engine.state.state import State
from cede.model.allocation import Allocation
from cede.model.lifecycle import TERMINAL
from cede.model.node import Node
from cede.model.request import Request
from cede.model.token import Token
from cede.store import (
    answers,
    chain,
    connect,
    history,
    migrate,
    node_rows,
    retention,
    rows,
    schema,
    statements,
    term,
    verify,
)
from cede.store.accounts import Accounts
from cede.store.anchor import Anchor, Witness, witness_in
from cede.store.digests import Digests
from cede.store.errors import Deposed, StaleIndex, StoreError
from cede.store.faults import told_apart, usable
from cede.store.lock import FileLock
from cede.store.past import Past
from cede.store.prepared import Prepared
from cede.store.reserve import Reserve
from cede.store.sealed import Sealed
from cede.store.usage import UsageReports
from cede.store.values import Batch, ClockRows, Idempotency, Loaded, Remembered

_log = structlog.get_logger("cede.store")
_ENDED = [status.value for status in TERMINAL]
# Each commit first checks that the row of `meta` has our epoch and index, and updates the row at
# its end.
_OURS = update(schema.meta).where(
    schema.meta.c.epoch == bindparam("ours"), schema.meta.c.head == bindparam("expected")
)
_GUARD = Prepared(
    _OURS.values(lease_until=term.lease_end("sqlite")),
    _OURS.values(lease_until=term.lease_end("postgresql")),
)
_SEAL = Prepared(update(schema.meta), update(schema.meta), tuple(Sealed().values()))
# The lease of a holder without a lease.
NO_END = 1 << 53
# More than a server can have had, or written, since the anchor or a backup was made.
_UNSEEN_TERMS = 1_000
_UNSEEN_INDEXES = 1_000_000


def _nothing(point: str) -> None:
    """The point at which a crash test would end the process."""


class Store(Accounts, UsageReports, Past, history.History, retention.Retention):
    """All durable data.

    `anchor` is a file on another path that witnesses the last commit.
    """

    def __init__(self, url: str, *, anchor: Path | None = None) -> None:
        self._url = parsed = connect.parse_url(url)
        self._engine = connect.write_engine(parsed)
        super().__init__(connect.read_engine(parsed))
        self.sqlite = parsed.get_backend_name() == "sqlite"
        self.file = connect.sqlite_path(parsed) if self.sqlite else None
        self.epoch = 0
        self.former_term = 0  # milliseconds from the start in which our predecessor may answer
        self.at_point: Callable[[str], None] = _nothing
        self._anchor = Anchor(anchor) if anchor else None
        self._lock = FileLock(Path(f"{parsed.database}.lock")) if self.sqlite else None
        self._reserve = Reserve(Path(f"{parsed.database}.reserve")) if self.sqlite else None
        self._writing: Connection | None = None
        self._audit_head = chain.START
        self._sealed = Sealed()
        self._longest_lease = 0

    # Becoming the writer ------------------------------------------------------------------------

    def migrate(self) -> None:
        """Bring the database to this version's schema, or refuse it."""
        with usable():
            migrate.migrate(self._engine)

    def take_over(self, stop: Event | None = None) -> int:
        """Become the writer under a new epoch; wait for the present one, until `stop` is set."""
        holder = f"{socket.gethostname()}:{os.getpid()}"
        with usable():
            self._writing = self._writing or self._engine.connect()
            if self._lock is None:
                taken = term.wait_for_lease(self._writing, holder, stop, self._follow)
            else:
                taken = term.wait_for_file(self._writing, self._lock, holder, stop, self._follow)
        self.epoch, self.former_term = taken
        return self.epoch

    def _follow(self, connection: Connection) -> None:
        """Anchor the commits that are seen of the present writer (S25)."""
        if self._anchor is not None:
            self._anchor.follow(witness_in(connection))

    def load(self) -> Loaded:
        """All living entities; refused if the database is older than its anchor (S25)."""
        connection = self._connection()
        with usable(), connect.reading_once(connection), connection.begin():
            meta = connection.execute(select(schema.meta)).one()
            if meta.epoch != self.epoch:
                raise Deposed(self.epoch, meta.epoch)
            sealed = Sealed.read(meta)
            if self._anchor is not None:
                # The last writer, and so the anchor, knows at most the epoch before ours.
                self._anchor.check(Witness(self.epoch - 1, meta.head, meta.commits))
            last = connection.execute(
                select(schema.audit.c.number, schema.audit.c.hash)
                .order_by(schema.audit.c.number.desc())
                .limit(1)
            ).first()
            try:
                state, clocks = _living(connection, meta, sealed)
            except Exception:
                if not self.sqlite:
                    raise
                # Damage, or a SQLite that writes JSON as no other: the plain form tells, and no
                # value is used that was not counted.
                state, clocks = _living(connection, meta, sealed, plainly=True)
        newest = chain.Link(last[0], last[1]) if last else chain.START
        head = chain.Link(meta.audit_number or 0, meta.audit_hash or chain.GENESIS)
        if newest != head:
            _log.error("the audit chain was changed", newest=str(newest), head=str(head))
        self._audit_head = chain.resume(newest, head)
        self._sealed = sealed
        self._note_leases(state.requests.values(), state.nodes.values())
        self._witness()
        return Loaded(state, meta.head, self.epoch, sealed.moment, clocks)

    def move_on(self, loaded: Loaded, seen: Witness) -> None:
        """Let a restored database go on beyond all epochs, indexes and commits that agents, clients
        and standbys may have seen of the one that it replaces, so that they follow it.
        """
        epoch = max(self.epoch, seen.epoch) + _UNSEEN_TERMS
        with usable(), self._connection().begin():
            term.raise_epoch(self._connection(), self.epoch, epoch)
        self.epoch = epoch
        self._sealed = replace(self._sealed, commits=max(self._sealed.commits, seen.commits))
        loaded.state.index = max(loaded.index, seen.index) + _UNSEEN_INDEXES

    @property
    def term_lasts(self) -> int | None:
        """Milliseconds from a renewal to the end of the term; None where a file lock holds it."""
        return None if self.sqlite else term.LEASE_MILLISECONDS

    def renew_lease(self) -> None:
        """Renew the lease while there is nothing to commit; a file lock needs no renewal."""
        if not self.sqlite:
            with told_apart():
                term.renew(self._connection(), self.epoch)

    def let_go(self) -> None:
        """Stop being the writer; a standby takes over at once. Later commits are refused."""
        if self._lock is not None:
            self._lock.release()
        elif self._writing is not None:
            term.let_go(self._writing, self.epoch)

    # Damage and space --------------------------------------------------------------------------

    def scrub(
        self,
        between: Callable[[], bool] = lambda: True,
        *,
        loaded: bool = False,
        rows_max: int | None = None,
    ) -> list[str] | None:
        """The damage of the whole database, or of the rows that were not just `loaded`, or of small
        tables; see `verify.scrub`.
        """
        # A connection of its own: the caches of others may differ from the disk.
        engine = connect.read_engine(self._url)
        try:
            return verify.scrub(engine, between, loaded=loaded, rows_max=rows_max)
        finally:
            engine.dispose()

    def hold_space(self) -> None:
        """Keep some space for the next start, if there is any."""
        if self._reserve is not None:
            self._reserve.hold()

    def make_room(self) -> bool:
        """Give up the space that was kept for a start, which then begins again; return whether
        there was any.
        """
        if self._writing is not None:
            self._writing.close()
            self._writing = None
        return self._reserve is not None and self._reserve.release()

    def close(self) -> None:
        if self._writing is not None:
            self._writing.close()
            self._writing = None
        if self._lock is not None:
            self._lock.release()
        if self._anchor is not None:
            self._anchor.close()
        self._engine.dispose()
        self.close_reads()

    # Writing ------------------------------------------------------------------------------------

    def commit(self, batch: Batch) -> None:
        """Commit a batch whole, under our epoch, from the expected index; or raise and change
        nothing.
        """
        connection = self._connection()
        notes = batch.audit if batch.run is None else [*batch.audit, batch.run.note]
        entries = chain.extend(notes, self._audit_head)
        digests = self._sealed.digests.copy()
        self.at_point("before_commit")
        with told_apart(), connection.begin():
            head = chain.Link(entries[-1].number, entries[-1].hash) if entries else None
            self._guard(connection, batch.expected)
            _write_changes(connection, digests, batch.changes, batch.moment.instant)
            audit_rows = [rows.audit_row(entry) for entry in entries]
            statements.AUDIT.insert(connection, digests, audit_rows)
            answer_rows = [rows.answer_row(each) for each in batch.answers]
            statements.ANSWERS.insert(connection, digests, answer_rows)
            _write_tokens(connection, digests, batch.tokens)
            _delete_requests(connection, digests, batch.deleted_requests)
            if batch.removal is not None:
                retention.remove(connection, digests, batch.removal)
            if batch.noted is not None:
                history.note(connection, digests, batch.noted)
            if batch.clocks is not None:
                _write_clocks(connection, digests, batch.clocks)
            sealed = self._sealed.after(batch, head, digests)
            _SEAL.execute(connection, sealed.values())
            self.at_point("during_commit")
        self.at_point("after_commit")
        self._sealed = sealed
        self._audit_head = head or self._audit_head
        nodes = batch.changes.nodes
        self._note_leases(batch.changes.requests.inserted, (*nodes.inserted, *nodes.updated))
        self._witness()

    def _witness(self) -> None:
        """Write the anchor: after its commit, so that it is never ahead (K19), and before the
        commit is answered, so that the loss of an acknowledged one is noticed.
        """
        if self._anchor is not None:
            self._anchor.write(self.witness)

    @property
    def witness(self) -> Witness:
        """The position of the last commit."""
        sealed = self._sealed
        return Witness(self.epoch, sealed.head, sealed.commits, self._longest_lease)

    def _note_leases(self, requests: Iterable[Request], nodes: Iterable[Node]) -> None:
        leases = [
            NO_END if each.lease is None else each.lease for each in requests if not each.work
        ]
        self._longest_lease = max([self._longest_lease, *leases, *(each.lease for each in nodes)])

    def recall(self, keys: Sequence[Idempotency]) -> dict[tuple[str, str, str], Remembered]:
        """The answers already given under these keys, by (token, route, key)."""
        connection, given = self._connection(), {answers.digest(each.place): each for each in keys}
        # A transaction to read in would lock SQLite's file for writing.
        with nullcontext() if self.sqlite else connection.begin():
            found = statements.ANSWERS.stored(connection, [(digest,) for digest in given])
        remembered = (rows.answer_from(row, given[row[0]]) for row in found.values())
        return {each.idempotency.place: each for each in remembered}

    def _connection(self) -> Connection:
        if self._writing is None:
            raise StoreError("this store is not the writer: take_over comes first")
        return self._writing

    def _guard(self, connection: Connection, expected: int) -> None:
        """Check epoch and index, and lock the row first of all.

        A server that takes over waits for this transaction, or has already won.
        """
        if _GUARD.execute(connection, {"ours": self.epoch, "expected": expected}) != 1:
            current = term.current_epoch(connection)
            if current != self.epoch:
                raise Deposed(self.epoch, current)
            found = connection.execute(select(schema.meta.c.head)).scalar_one()
            raise StaleIndex(expected, found)


def _living(
    connection: Connection, meta: Any, sealed: Sealed, *, plainly: bool = False
) -> tuple[State, dict[str, str]]:
    """The state of all that is alive, and the clocks of pools."""
    state = State()
    with verify.alive(connection, sealed, plainly=plainly) as alive:
        state.load(_entities(alive.rows), index=meta.head, now=meta.instant)
        clocks = {str(pool): str(text) for pool, text in alive.rows("pool_clocks")}
    return state, clocks


_by_index = attrgetter("index")


def _entities(rows_of: Callable[[str], Iterable[Sequence[Any]]]) -> Iterator[Entity]:
    """The entities of a state, in the order in which it loads them."""
    yield from map(rows.pool_from, rows_of("pools"))
    yield from map(node_rows.node_from, rows_of("nodes"))
    yield from map(rows.policy_from, rows_of("policies"))
    yield from map(rows.tenant_from, rows_of("tenants"))
    yield from rows.requests_from(rows_of("requests"))
    yield from sorted(map(rows.allocation_from, rows_of("allocations")), key=_by_index)


def _write_changes(connection: Connection, digests: Digests, changes: Changes, now: int) -> None:
    """Write the changes in an order in which every constraint holds after every statement."""
    write, to = statements, (connection, digests)
    allocations, nodes = changes.allocations, changes.nodes
    ended = [each for each in allocations.updated if not each.live]
    write.HELD_DEVICES.delete(*to, [row[:3] for row in _held(ended)])
    write.NODES.delete(*to, [(each,) for each in nodes.deleted])
    write.NODES.update(*to, [node_rows.node_row(each) for each in nodes.updated])
    # Policies below a deleted one lose their parent first; their new one may not exist yet.
    moved = changes.policies.updated if changes.policies.deleted else ()
    write.POLICIES.update(*to, [rows.policy_row(replace(each, parent_id=None)) for each in moved])
    write.POLICIES.delete(*to, [(each,) for each in changes.policies.deleted])
    write.POOLS.delete(*to, [(each,) for each in changes.pools.deleted])
    write.POOLS.insert(*to, [rows.pool_row(each) for each in changes.pools.inserted])
    write.POOLS.update(*to, [rows.pool_row(each) for each in changes.pools.updated])
    write.NODES.insert(*to, [node_rows.node_row(each) for each in nodes.inserted])
    write.POLICIES.insert(*to, [rows.policy_row(each) for each in changes.policies.inserted])
    write.POLICIES.update(*to, [rows.policy_row(each) for each in changes.policies.updated])
    write.TENANTS.delete(*to, [(each,) for each in changes.tenants.deleted])
    write.TENANTS.insert(*to, [rows.tenant_row(each) for each in changes.tenants.inserted])
    write.TENANTS.update(*to, [rows.tenant_row(each) for each in changes.tenants.updated])
    # Ended allocations drop their reference first: the next one may be in another pool.
    write.ALLOCATIONS_ENDED.update(*to, [rows.allocation_row(each) for each in ended])
    latest = _latest(allocations.inserted)
    requests = changes.requests
    inserted = [rows.request_row(each, latest.get(each.id), now) for each in requests.inserted]
    granted = [
        rows.request_row(each, latest[each.id], now)
        for each in requests.updated
        if each.id in latest
    ]
    others = [
        rows.request_row(each, None, now) for each in requests.updated if each.id not in latest
    ]
    write.REQUESTS.insert(*to, inserted)
    write.REQUESTS_GRANTED.update(*to, granted)
    write.REQUESTS.update(*to, others)
    told = {each.request_id for each in changes.events if each.kind == "handed_over"}
    handed_over = [each for each in requests.updated if each.id in told]
    write.REQUESTS_HANDED_OVER.update(
        *to, [rows.request_row(each, None, now) for each in handed_over]
    )
    owners = {each.id: each for each in (*requests.inserted, *requests.updated)}
    write.ALLOCATIONS.insert(
        *to,
        [rows.allocation_row(each, owners.get(each.request_id)) for each in allocations.inserted],
    )
    granted_now = [each for each in allocations.inserted if each.live]
    write.HELD_DEVICES.insert(*to, list(_held(granted_now)))
    live = [rows.allocation_row(each) for each in allocations.updated if each.live]
    write.ALLOCATIONS.update(*to, live)
    write.EVENTS.insert(*to, [rows.event_row(each) for each in changes.events])
    assert not requests.deleted and not allocations.deleted, "what ended stays; see delete_request"


def _held(allocations: Iterable[Allocation]) -> Iterator[node_rows.Row]:
    return (row for each in allocations for row in node_rows.held_rows(each))


def _latest(inserted: Iterable[Allocation]) -> dict[str, Allocation]:
    latest: dict[str, Allocation] = {}
    for allocation in inserted:
        known = latest.get(allocation.request_id)
        if known is None or known.attempt < allocation.attempt:
            latest[allocation.request_id] = allocation
    return latest


def _write_tokens(connection: Connection, digests: Digests, tokens: Iterable[Token]) -> None:
    for token in tokens:
        row = rows.token_row(token)
        if statements.TOKENS.find(connection, schema.tokens.c.id == token.id):
            statements.TOKENS.update(connection, digests, [row])
        else:
            statements.TOKENS.insert(connection, digests, [row])


def _write_clocks(connection: Connection, digests: Digests, clocks: ClockRows) -> None:
    statements.POOL_CLOCKS.delete(connection, digests, clocks.deleted)
    statements.POOL_CLOCKS.insert(connection, digests, clocks.inserted)
    statements.POOL_CLOCKS.update(connection, digests, clocks.updated)


def _delete_requests(connection: Connection, digests: Digests, ids: Sequence[str]) -> None:
    """Delete ended requests; living ones are in memory too. Their usage stays in the accounts: no
    caller can delete it.
    """
    if not ids:
        return
    requests, allocations = schema.requests, schema.allocations
    ended = and_(requests.c.id.in_(ids), requests.c.status.in_(_ENDED))
    of_ended = allocations.c.request_id.in_(select(requests.c.id).where(ended))
    write = statements.ALLOCATIONS_FORGOTTEN
    nothing = (None,) * (len(write.columns) - len(write.keys))
    kept = [(*key, *nothing) for key in write.find(connection, of_ended)]
    write.update(connection, digests, kept)
    gone = statements.REQUESTS.find(connection, ended)
    statements.REQUESTS.delete(connection, digests, gone)
