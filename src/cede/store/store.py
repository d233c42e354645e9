"""The store: one transaction per batch, all of it or nothing, under an epoch that every transaction
checks.

There is one writer, so writing needs no thought about neighbours: `take_over` makes this store the
writer, `load` gives it what is alive, `commit` keeps what changed. Reads are in `reads.py` and
never wait for the writer.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event

import structlog
from sqlalchemy import Connection, and_, delete, select, text, update
from sqlalchemy.exc import SQLAlchemyError

from cede.engine.state.changes import Changes
from cede.engine.state.entities import Entity
from cede.engine.state.state import State
from cede.model.allocation import Allocation
from cede.model.lifecycle import TERMINAL
from cede.model.token import Token
from cede.store import (
    answers,
    chain,
    connect,
    migrate,
    node_rows,
    retention,
    rows,
    schema,
    statements,
    term,
)
from cede.store.accounts import Accounts
from cede.store.anchor import Anchor
from cede.store.errors import Deposed, StaleIndex, StoreError, WrongDatabase
from cede.store.lock import FileLock
from cede.store.values import Batch, Idempotency, Loaded, Moment, Remembered

_log = structlog.get_logger("cede.store")
_ACTIVE = text(schema.ACTIVE)
_ENDED = [status.value for status in TERMINAL]
# A variable a key, and SQLite takes 32,766.
_KEYS_AT_ONCE = 15_000


def _nothing(point: str) -> None:
    """Where a crash test would end the process."""


class Store(Accounts, retention.Retention):
    """Everything that lasts.

    `anchor` is a file on another path that witnesses how far commits have come.
    """

    def __init__(self, url: str, *, anchor: Path | None = None) -> None:
        parsed = connect.parse_url(url)
        self._engine = connect.write_engine(parsed)
        super().__init__(connect.read_engine(parsed))
        self.sqlite = parsed.get_backend_name() == "sqlite"
        self.file = connect.sqlite_path(parsed) if self.sqlite else None
        self.epoch = 0
        self.former_term = 0  # milliseconds from the start in which our predecessor may answer
        self.at_point: Callable[[str], None] = _nothing
        self._anchor = Anchor(anchor) if anchor else None
        self._lock = FileLock(Path(f"{parsed.database}.lock")) if self.sqlite else None
        self._writing: Connection | None = None
        self._audit_head = chain.START
        self._head = 0

    # Becoming the writer ------------------------------------------------------------------------

    def migrate(self) -> None:
        """Bring the database to this version's schema, or refuse it."""
        try:
            migrate.migrate(self._engine)
        except SQLAlchemyError as error:
            raise WrongDatabase(f"cannot use the database: {_one_line(error)}") from error

    def take_over(self, stop: Event | None = None) -> int:
        """Become the one writer under a new epoch; waits for whoever is, until `stop` is set."""
        holder = f"{socket.gethostname()}:{os.getpid()}"
        self._writing = self._writing or self._engine.connect()
        if self._lock is not None:
            taken = term.wait_for_file(self._writing, self._lock, holder, stop)
        else:
            taken = term.wait_for_lease(self._writing, holder, stop)
        self.epoch, self.former_term = taken
        return self.epoch

    def load(self) -> Loaded:
        """Everything that is alive; refused if the database is older than its anchor (S25)."""
        connection = self._connection()
        with connection.begin():
            meta = connection.execute(select(schema.meta)).one()
            if meta.epoch != self.epoch:
                raise Deposed(self.epoch, meta.epoch)
            if self._anchor is not None:
                # The epoch before ours is what the last writer, and so the anchor, can have known.
                self._anchor.check(self.epoch - 1, meta.head)
            last = connection.execute(
                select(schema.audit.c.number, schema.audit.c.hash)
                .order_by(schema.audit.c.number.desc())
                .limit(1)
            ).first()
            state = State()
            state.load(_alive(connection), index=meta.head, now=meta.instant)
        newest = chain.Link(last[0], last[1]) if last else chain.START
        head = chain.Link(meta.audit_number or 0, meta.audit_hash or chain.GENESIS)
        if newest != head:
            _log.error("the audit chain was changed", newest=str(newest), head=str(head))
        self._audit_head = chain.resume(newest, head)
        self._head = meta.head
        moment = Moment(meta.instant, meta.boot_id, meta.boottime)
        return Loaded(state, meta.head, self.epoch, moment)

    @property
    def term_lasts(self) -> int | None:
        """Milliseconds from a renewal to the end of the term; None where a file lock holds it."""
        return None if self.sqlite else term.LEASE_MILLISECONDS

    def renew_lease(self) -> None:
        """Say that we are alive although there is nothing to commit.

        A file lock needs no saying.
        """
        if not self.sqlite:
            term.renew(self._connection(), self.epoch)

    def let_go(self) -> None:
        """Stop being the writer; whoever waits takes over at once. Later commits are refused."""
        if self._lock is not None:
            self._lock.release()
        elif self._writing is not None:
            term.let_go(self._writing, self.epoch)

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
        """Make a batch true.

        Whole, under our epoch, from the expected index; or raise and change nothing.
        """
        connection = self._connection()
        notes = batch.audit if batch.run is None else [*batch.audit, batch.run.note]
        entries = chain.extend(notes, self._audit_head)
        self.at_point("before_commit")
        with connection.begin():
            head = chain.Link(entries[-1].number, entries[-1].hash) if entries else None
            self._seal(connection, batch, head)
            _write_changes(connection, batch.changes, batch.moment.instant)
            statements.AUDIT.insert(connection, [rows.audit_row(entry) for entry in entries])
            statements.ANSWERS.insert(connection, [rows.answer_row(each) for each in batch.answers])
            _write_tokens(connection, batch.tokens)
            _delete_requests(connection, batch.deleted_requests)
            if batch.removal is not None:
                retention.remove(connection, batch.removal)
            self.at_point("during_commit")
        self.at_point("after_commit")
        self._head = batch.index
        self._audit_head = head or self._audit_head

    def witness(self) -> None:
        """Write the anchor: as far as commits are known to have come, never further (K19)."""
        if self._anchor is not None:
            self._anchor.write(self.epoch, self._head)

    def recall(self, keys: Sequence[Idempotency]) -> dict[tuple[str, str, str], Remembered]:
        """The answers already given under these keys, by (token, route, key)."""
        table = schema.answers
        found: dict[tuple[str, str, str], Remembered] = {}
        connection = self._connection()
        with connection.begin():
            for start in range(0, len(keys), _KEYS_AT_ONCE):
                some = {answers.digest(each.place): each for each in keys[start:][:_KEYS_AT_ONCE]}
                matches = select(table).where(table.c.key.in_(some))
                for row in connection.execute(matches):
                    first = replace(some[row.key], body_hash=row.body_hash)
                    response = answers.unpack(row.response)
                    found[first.place] = Remembered(first, response, row.at)
        return found

    def _connection(self) -> Connection:
        if self._writing is None:
            raise StoreError("this store is not the writer: take_over comes first")
        return self._writing

    def _seal(self, connection: Connection, batch: Batch, audit: chain.Link | None) -> None:
        """First of all, because it locks the row.

        Whoever takes over waits for us or has already won.
        """
        meta = schema.meta
        moment = batch.moment
        newest: dict[str, object] = {}
        if audit is not None:
            newest = {"audit_number": audit.number, "audit_hash": audit.hash}
            if batch.run is not None:
                newest |= retention.floors(batch.run, audit.number)
        statement = (
            update(meta)
            .where(and_(meta.c.epoch == self.epoch, meta.c.head == batch.expected))
            .values(
                head=batch.index,
                instant=moment.instant,
                boot_id=moment.boot_id,
                boottime=moment.boottime,
                lease_until=term.lease_end(connection.dialect.name),
                **newest,
            )
        )
        if connection.execute(statement).rowcount != 1:
            current = term.current_epoch(connection)
            if current != self.epoch:
                raise Deposed(self.epoch, current)
            found = connection.execute(select(meta.c.head)).scalar_one()
            raise StaleIndex(batch.expected, found)


def _alive(connection: Connection) -> Iterator[Entity]:
    """What a state is made of, each kind in the order in which it came to be."""
    requests, allocations = schema.requests, schema.allocations
    for row in connection.execute(select(schema.pools).order_by(schema.pools.c.id)):
        yield rows.pool_from(row)
    for row in connection.execute(select(schema.nodes).order_by(schema.nodes.c.id)):
        yield node_rows.node_from(row)
    for row in connection.execute(select(schema.policies).order_by(schema.policies.c.id)):
        yield rows.policy_from(row)
    for row in connection.execute(select(schema.tenants).order_by(schema.tenants.c.id)):
        yield rows.tenant_from(row)
    active = select(*statements.REQUESTS.columns).where(_ACTIVE).order_by(requests.c.at_index)
    for row in connection.execute(active):
        yield rows.request_from(row)
    live = select(allocations).where(allocations.c.live == 1).order_by(allocations.c.at_index)
    for row in connection.execute(live):
        yield rows.allocation_from(row)


def _write_changes(connection: Connection, changes: Changes, now: int) -> None:
    """In an order in which every constraint holds after every statement."""
    write = statements
    allocations, nodes = changes.allocations, changes.nodes
    ended = [each for each in allocations.updated if not each.live]
    write.HELD_DEVICES.delete(connection, [row[:3] for row in _held(ended)])
    write.NODES.delete(connection, [(each,) for each in nodes.deleted])
    write.NODES.update(connection, [node_rows.node_row(each) for each in nodes.updated])
    write.POLICIES.delete(connection, [(each,) for each in changes.policies.deleted])
    write.POOLS.delete(connection, [(each,) for each in changes.pools.deleted])
    write.POOLS.insert(connection, [rows.pool_row(each) for each in changes.pools.inserted])
    write.POOLS.update(connection, [rows.pool_row(each) for each in changes.pools.updated])
    write.NODES.insert(connection, [node_rows.node_row(each) for each in nodes.inserted])
    write.POLICIES.insert(connection, [rows.policy_row(each) for each in changes.policies.inserted])
    write.POLICIES.update(connection, [rows.policy_row(each) for each in changes.policies.updated])
    write.TENANTS.delete(connection, [(each,) for each in changes.tenants.deleted])
    write.TENANTS.insert(connection, [rows.tenant_row(each) for each in changes.tenants.inserted])
    write.TENANTS.update(connection, [rows.tenant_row(each) for each in changes.tenants.updated])
    # What ended lets go of its request first: the next allocation may be in another pool.
    write.ALLOCATIONS_ENDED.update(connection, [rows.allocation_row(each) for each in ended])
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
    write.REQUESTS.insert(connection, inserted)
    write.REQUESTS_GRANTED.update(connection, granted)
    write.REQUESTS.update(connection, others)
    owners = {each.id: each for each in (*requests.inserted, *requests.updated)}
    write.ALLOCATIONS.insert(
        connection,
        [rows.allocation_row(each, owners.get(each.request_id)) for each in allocations.inserted],
    )
    granted_now = [each for each in allocations.inserted if each.live]
    write.HELD_DEVICES.insert(connection, list(_held(granted_now)))
    live = [rows.allocation_row(each) for each in allocations.updated if each.live]
    write.ALLOCATIONS.update(connection, live)
    write.EVENTS.insert(connection, [rows.event_row(each) for each in changes.events])
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


def _write_tokens(connection: Connection, tokens: Iterable[Token]) -> None:
    for token in tokens:
        row = rows.token_row(token)
        known = select(schema.tokens.c.id).where(schema.tokens.c.id == token.id)
        if connection.execute(known).first() is None:
            statements.TOKENS.insert(connection, [row])
        else:
            statements.TOKENS.update(connection, [row])


def _delete_requests(connection: Connection, ids: Sequence[str]) -> None:
    """Only ended ones: whatever is alive also lives in memory. What they held, and for how long,
    stays in the accounts: nobody deletes what it used.
    """
    if not ids:
        return
    requests, allocations = schema.requests, schema.allocations
    of_ended = select(requests.c.id).where(requests.c.id.in_(ids), requests.c.status.in_(_ENDED))
    connection.execute(
        update(allocations)
        .where(allocations.c.request_id.in_(of_ended))
        .values(reason=None, members=None, parting=None)
    )
    ended = and_(requests.c.id.in_(ids), requests.c.status.in_(_ENDED))
    connection.execute(delete(requests).where(ended))


def _one_line(error: BaseException) -> str:
    return str(getattr(error, "orig", None) or error).strip().splitlines()[0]
