"""Reading committed rows, on connections of their own: no reader waits for the writer, none sees
half a plan (S20).

Lists are paged by key and not by offset: a page costs the same at any start, and rows added
meanwhile neither repeat nor hide others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Engine, and_, false, func, or_, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import QueuePool

from cede.engine.state.changes import Event
from cede.model import bounds
from cede.model.allocation import Allocation
from cede.model.array import task_ref
from cede.model.errors import Invalid, NotFound
from cede.model.ids import ambiguous
from cede.model.node import Node, NodeState
from cede.model.pool import Pool
from cede.model.request import Request
from cede.model.subject import Subject
from cede.model.token import Role, Token
from cede.store import chain, filters, node_rows, rows, schema, views
from cede.store.cursor import Cursors
from cede.store.digests import Digests
from cede.store.errors import StoreError
from cede.store.filters import RequestFilter, of_subjects
from cede.store.journal import Events
from cede.store.statements import REQUESTS
from cede.store.values import AuditEntry, Page, PolicyView, RequestView

T = TypeVar("T")

_pools, _policies, _requests = schema.pools.c, schema.policies.c, schema.requests.c
_allocations, _tokens = schema.allocations.c, schema.tokens.c
_nodes = schema.nodes.c
_REQUEST_WIDTH = len(REQUESTS.columns)
# The largest code point: every text that starts with a prefix sorts below prefix + this.
_LAST = "\U0010ffff"
_EVERYTHING = RequestFilter()


class Reads:
    """Gets and lists. Each call is one snapshot."""

    def __init__(self, engine: Engine) -> None:
        self._readers = engine
        self._known_cursors: Cursors | None = None

    def give_back_memory(self) -> None:
        """Free the pages that SQLite keeps in memory for each connection that is not in use."""
        pool = self._readers.pool
        if self._readers.dialect.name != "sqlite" or not isinstance(pool, QueuePool):
            return
        with suppress(SQLAlchemyError, StoreError), ExitStack() as resting:
            for _ in range(pool.checkedin()):
                connection = resting.enter_context(self._readers.connect())
                connection.exec_driver_sql("PRAGMA shrink_memory")

    # Pools and policies -------------------------------------------------------------------------

    def get_pool(self, ref: str) -> Pool:
        """By id, by name, or by an unambiguous start of an id."""
        with self._readers.begin() as connection:
            pool_id = views.resolve(connection, schema.pools, "pool", ref, named=True)
            return views.pools(connection, _pools.id == pool_id)[0]

    def list_pools(
        self, *, cursor: str | None = None, limit: int = bounds.PAGE_DEFAULT
    ) -> Page[Pool]:
        """By name."""
        with self._readers.begin() as connection:
            where = self._after(connection, "pools", None, cursor, _pools.name)
            found = views.pools(connection, where, bounded(limit) + 1)
            return self._page(connection, "pools", None, found, limit, lambda pool: pool.name)

    def pool_names(self, ids: Iterable[str] | None = None) -> dict[str, str]:
        """Names by id, of these pools or of all; without those that no longer exist."""
        statement = select(_pools.id, _pools.name)
        if ids is not None:
            statement = statement.where(_pools.id.in_(list(ids)))
        with self._readers.begin() as connection:
            return {row[0]: row[1] for row in connection.execute(statement)}

    def get_policy(self, ref: str) -> PolicyView:
        with self._readers.begin() as connection:
            policy_id = views.resolve(connection, schema.policies, "policy", ref)
            return views.policy_views(connection, _policies.id == policy_id)[0]

    def list_policies(
        self,
        *,
        pool_id: str | None = None,
        component: str | None = None,
        component_type: str | None = None,
        subjects: Sequence[Subject] | None = None,
        cursor: str | None = None,
        limit: int = bounds.PAGE_DEFAULT,
    ) -> Page[PolicyView]:
        """In the order in which they were attached."""
        filters = [pool_id, component, component_type, subjects]
        with self._readers.begin() as connection:
            where = [self._after(connection, "policies", filters, cursor, _policies.id)]
            if pool_id is not None:
                where.append(_policies.pool_id == pool_id)
            if component is not None:
                where.append(_policies.subject_name == component)
            if component_type is not None:
                where.append(_policies.subject_type == component_type)
            if subjects is not None:
                where.append(or_(false(), *(views.is_subject(each) for each in subjects)))
            found = views.policy_views(connection, and_(*where), bounded(limit) + 1)
            return self._page(
                connection, "policies", filters, found, limit, lambda view: view.policy.id
            )

    # Nodes --------------------------------------------------------------------------------------

    def get_node(self, ref: str) -> Node:
        """By id, by name, or by an unambiguous start of an id."""
        with self._readers.begin() as connection:
            node_id = views.resolve(connection, schema.nodes, "node", ref, named=True)
            row = connection.execute(select(schema.nodes).where(_nodes.id == node_id)).one()
            return node_rows.node_from(row)

    def list_nodes(
        self,
        *,
        pool_id: str | None = None,
        cursor: str | None = None,
        limit: int = bounds.PAGE_DEFAULT,
    ) -> Page[Node]:
        """By name."""
        with self._readers.begin() as connection:
            where = [self._after(connection, "nodes", pool_id, cursor, _nodes.name)]
            if pool_id is not None:
                where.append(_nodes.pool_id == pool_id)
            statement = select(schema.nodes).where(*where).order_by(_nodes.name)
            statement = statement.limit(bounded(limit) + 1)
            found = [node_rows.node_from(row) for row in connection.execute(statement)]
            return self._page(connection, "nodes", pool_id, found, limit, lambda node: node.name)

    def node_counts(self) -> dict[tuple[str | None, str], int]:
        """The number of nodes by pool and state."""
        statement = select(_nodes.pool_id, _nodes.state, func.count()).group_by(
            _nodes.pool_id, _nodes.state
        )
        with self._readers.begin() as connection:
            return {(row[0], row[1]): row[2] for row in connection.execute(statement)}

    def lease_counts(self) -> dict[str, int]:
        """The number of running leases of nodes and of clients."""
        alive = select(func.count()).where(_nodes.state != str(NodeState.DOWN))
        held = select(func.count()).where(
            _allocations.live == 1, _allocations.lease_until.is_not(None)
        )
        with self._readers.begin() as connection:
            return {
                "node": int(connection.execute(alive).scalar_one()),
                "client": int(connection.execute(held).scalar_one()),
            }

    # Requests -----------------------------------------------------------------------------------

    def get_request(
        self, ref: str, *, subjects: Sequence[Subject] | None = None, named: bool = False
    ) -> RequestView:
        """By id or an unambiguous part of one, among those that `subjects` may see; by its label
        `name` only where `named`.
        """
        visible = [] if subjects is None else [of_subjects(subjects)]
        with self._readers.begin() as connection:
            try:
                request_id = views.resolve(
                    connection, schema.requests, "request", ref, also=visible
                )
            except NotFound:
                if not named:
                    raise
                request_id = self._named(ref, subjects)
            row = connection.execute(
                views.with_allocation().where(_requests.id == request_id)
            ).one()
            return views.request_view(row)

    def task_id(self, array_id: str, number: int) -> str:
        """The request that is one task of an array."""
        wanted = select(_requests.id).where(
            _requests.part_of == array_id, _requests.array_task == number
        )
        with self._readers.begin() as connection:
            found = connection.execute(wanted).scalar()
        if found is None:
            raise NotFound("request", task_ref(array_id, number))
        return str(found)

    def tasks_of(self, array_id: str) -> list[Request]:
        """All tasks that were submitted together, in their order."""
        wanted = views.with_allocation(short=True).where(_requests.part_of == array_id)
        with self._readers.begin() as connection:
            rows = connection.execute(wanted.order_by(_requests.at_index))
            return [views.request_view(row).request for row in rows]

    def _named(self, name: str, subjects: Sequence[Subject] | None) -> str:
        """The one request of this name among those that are alive, else among the newest ended.

        Independent tasks have one name, and the first of them stands for all.
        """
        bound = None if subjects is None else tuple(subjects)
        for status in (filters.ALIVE, ()):
            wanted = RequestFilter(subjects=bound, status=status, labels={"name": name})
            page = self.list_requests(wanted, limit=bounds.PAGE_MAX)
            found = list(
                dict.fromkeys(view.request.part_of or view.request.id for view in page.items)
            )
            if len(found) == 1:
                return found[0]
            if found:
                raise ambiguous(name, found, "name of several requests")
        raise NotFound("request", name)

    def latest_request(self, owner: str, *, subjects: Sequence[Subject] | None = None) -> str:
        """The id of the newest request that `owner` submitted, among those that a page examines."""
        place = _requests.at_index
        visible = [] if subjects is None else [of_subjects(subjects)]
        with self._readers.begin() as connection:
            newest = select(place).order_by(place.desc())
            last = connection.execute(newest.offset(bounds.PAGE_SCAN_MAX - 1).limit(1)).scalar()
            near = [] if last is None else [place >= last]
            mine = select(_requests.id, _requests.part_of).where(
                _requests.owner == owner, *near, *visible
            )
            row = connection.execute(mine.order_by(place.desc()).limit(1)).first()
        if row is None:
            raise NotFound("request", "last")
        return str(row[1] or row[0])

    def get_requests(self, ids: Iterable[str]) -> dict[str, RequestView]:
        """Several requests at once, by id; without those that do not exist."""
        with self._readers.begin() as connection:
            found = connection.execute(views.with_allocation().where(_requests.id.in_(list(ids))))
            return {row[0]: views.request_view(row) for row in found}

    def get_allocation(self, request_id: str, attempt: int) -> Allocation | None:
        """The allocation of one attempt, live or ended."""
        statement = select(schema.allocations).where(
            _allocations.request_id == request_id, _allocations.attempt == attempt
        )
        with self._readers.begin() as connection:
            row = connection.execute(statement).first()
            return rows.allocation_from(row) if row else None

    def list_requests(
        self,
        filter: RequestFilter = _EVERYTHING,
        *,
        oldest_first: bool = False,
        cursor: str | None = None,
        limit: int = bounds.PAGE_DEFAULT,
    ) -> Page[RequestView]:
        """Newest first, unless asked otherwise.

        A page examines no more than `PAGE_SCAN_MAX` requests. Where few of them match it is short,
        and its cursor goes on from the last one examined.
        """
        filters = [filter.key(), oldest_first]
        place = _requests.at_index
        in_order = place.asc() if oldest_first else place.desc()
        with self._readers.begin() as connection:
            after = self._after(connection, "requests", filters, cursor, place, not oldest_first)
            along, last = [after, *filter.walked()], None
            if conditions := filter.conditions(connection.dialect.name):  # else all of them match
                scan = select(place).where(*along).order_by(in_order)
                last = connection.execute(scan.offset(bounds.PAGE_SCAN_MAX - 1).limit(1)).scalar()
            if last is not None:
                along.append(place <= last if oldest_first else place >= last)
            statement = (
                views.with_allocation(short=True)
                .where(*along, *conditions)
                .order_by(in_order)
                .limit(bounded(limit) + 1)
            )
            found = [views.listed_view(tuple(row)) for row in connection.execute(statement)]
            page = self._page(
                connection, "requests", filters, found, limit, lambda view: view.request.index
            )
            if page.next is None and last is not None:
                cursors = self._cursors(connection)
                return Page(page.items, cursors.make("requests", filters, last))
            return page

    # Journals and tokens ------------------------------------------------------------------------

    def head(self) -> int:
        """The journal's last index."""
        with self._readers.begin() as connection:
            return int(connection.execute(select(schema.meta.c.head)).scalar_one())

    def events_after(
        self,
        index: int,
        *,
        limit: int = bounds.PAGE_DEFAULT,
        request_id: str | None = None,
        pool_id: str | None = None,
        subjects: Sequence[Subject] | None = None,
    ) -> list[Event]:
        """In order. With `subjects`, only events about a request of one of them."""
        wanted = Events(request_id, pool_id, subjects)
        with self._readers.begin() as connection:
            return wanted.read(connection, index, bounded(limit), back=False)

    def events_before(
        self,
        index: int,
        *,
        limit: int = bounds.PAGE_DEFAULT,
        request_id: str | None = None,
        pool_id: str | None = None,
        subjects: Sequence[Subject] | None = None,
    ) -> list[Event]:
        """The last ones before an index, in order."""
        wanted = Events(request_id, pool_id, subjects)
        with self._readers.begin() as connection:
            return wanted.read(connection, index, bounded(limit), back=True)[::-1]

    def find_token(self, hash_: str) -> Token | None:
        """The token whose secret has this SHA-256, revoked and expired ones too."""
        with self._readers.begin() as connection:
            statement = select(schema.tokens).where(_tokens.hash == hash_)
            row = connection.execute(statement).first()
            return rows.token_from(row) if row else None

    def tokens_version(self) -> tuple[int, int]:
        """The digest of all tokens, which differs after every change of one."""
        with self._readers.begin() as connection:
            text = connection.execute(select(schema.meta.c.digests)).scalar_one()
        return Digests.from_text(text).of(schema.tokens.name)

    def get_token(self, ref: str) -> Token:
        with self._readers.begin() as connection:
            token_id = views.resolve(connection, schema.tokens, "token", ref)
            statement = select(schema.tokens).where(_tokens.id == token_id)
            return rows.token_from(connection.execute(statement).one())

    def tokens_of_machine(self, subject: Subject) -> list[Token]:
        """The tokens that speak for a node, or a bridge, now."""
        statement = select(schema.tokens).where(
            _tokens.role == str(Role.NODE),
            _tokens.subjects == rows.subjects_text((subject,)),
            _tokens.revoked.is_(False),
        )
        with self._readers.begin() as connection:
            return [rows.token_from(row) for row in connection.execute(statement)]

    def tokens_named(self, name: str) -> list[Token]:
        """People's tokens with this name, revoked ones as well; a name may have several."""
        statement = select(schema.tokens).where(
            _tokens.name == name, _tokens.role.not_in([str(Role.NODE), str(Role.JOIN)])
        )
        with self._readers.begin() as connection:
            return [rows.token_from(row) for row in connection.execute(statement)]

    def list_tokens(
        self, *, cursor: str | None = None, limit: int = bounds.PAGE_DEFAULT
    ) -> Page[Token]:
        with self._readers.begin() as connection:
            where = self._after(connection, "tokens", None, cursor, _tokens.id)
            statement = (
                select(schema.tokens).where(where).order_by(_tokens.id).limit(bounded(limit) + 1)
            )
            found = [rows.token_from(row) for row in connection.execute(statement)]
            return self._page(connection, "tokens", None, found, limit, lambda token: token.id)

    def list_audit(
        self, *, cursor: str | None = None, limit: int = bounds.PAGE_DEFAULT
    ) -> Page[AuditEntry]:
        """Newest first."""
        number = schema.audit.c.number
        with self._readers.begin() as connection:
            where = self._after(connection, "audit", None, cursor, number, True)
            statement = select(schema.audit).where(where).order_by(number.desc())
            statement = statement.limit(bounded(limit) + 1)
            found = [rows.audit_from(row) for row in connection.execute(statement)]
            return self._page(connection, "audit", None, found, limit, lambda entry: entry.number)

    def verify_audit(
        self,
        after: chain.Link = chain.START,
        limit: int = bounds.AUDIT_PIECE_MAX,
        *,
        headed: bool = True,
        cut: bool = True,
    ) -> chain.Verified:
        """S24: whether the next entries, at most `limit`, follow from this one and each other.

        `headed` and `cut` are False for databases of versions that stored no head, and that
        removed no entries.
        """
        number = schema.audit.c.number
        head, removed, broken = None, chain.START, None
        with self._readers.begin() as connection, _any_text(connection):
            if headed:
                head = _link(connection, "audit_number", "audit_hash")
            if cut:
                removed = _link(connection, "audit_through", "audit_through_hash")
            statement = select(schema.audit).order_by(number).limit(limit)
            if after == chain.START and removed != chain.START:
                after = removed
                broken = chain.verify_cut(removed, _cut_entry(connection))
            if after != chain.START:  # else also numbers that no entry can have
                statement = statement.where(number > after.number)
            found = connection.execute(statement).all()
        if broken is not None:
            return chain.Verified(after, removed, head, True, broken)
        end, broken = chain.verify(found, after)
        done = broken is not None or len(found) < limit
        if done and broken is None and head is not None:
            broken = chain.verify_head(end, head)
        return chain.Verified(end, removed, head, done, broken)

    def close_reads(self) -> None:
        self._readers.dispose()

    # Pages --------------------------------------------------------------------------------------

    def _cursors(self, connection: Connection) -> Cursors:
        if self._known_cursors is None:
            secret = connection.execute(select(schema.meta.c.secret)).scalar_one()
            self._known_cursors = Cursors(bytes.fromhex(secret))
        return self._known_cursors

    def _after(
        self,
        connection: Connection,
        list_: str,
        filters: Any,
        cursor: str | None,
        place: Any,
        down: bool = False,
    ) -> ColumnElement[bool]:
        """The condition for rows behind the cursor; true for all rows without a cursor."""
        if cursor is None:
            everything: ColumnElement[bool] = place.is_not(None)
            return everything
        last = self._cursors(connection).read(list_, filters, cursor)
        after: ColumnElement[bool] = place < last if down else place > last
        return after

    def _page(
        self,
        connection: Connection,
        list_: str,
        filters: Any,
        found: list[T],
        limit: int,
        place: Callable[[T], Any],
    ) -> Page[T]:
        """A page of `found`, with one row more than asked for if another page follows."""
        if len(found) <= limit:
            return Page(found, None)
        items = found[:limit]
        return Page(items, self._cursors(connection).make(list_, filters, place(items[-1])))


def bounded(limit: int) -> int:
    if not 1 <= limit <= bounds.PAGE_MAX:
        raise Invalid("limit", f"must be from 1 to {bounds.PAGE_MAX}, not {limit}")
    return limit


def _link(connection: Connection, number: str, hash_: str) -> chain.Link:
    """A link of the audit chain that is stored in `meta`."""
    row = connection.execute(select(schema.meta.c[number], schema.meta.c[hash_])).one()
    return chain.Link(row[0] or 0, row[1] or chain.GENESIS)


def _cut_entry(connection: Connection) -> Sequence[Any] | None:
    """The entry that says up to where retention removed entries."""
    number = select(schema.meta.c.audit_cut).scalar_subquery()
    return connection.execute(select(schema.audit).where(schema.audit.c.number == number)).first()


@contextmanager
def _any_text(connection: Connection) -> Iterator[None]:
    """Let SQLite return invalid text, on which the driver would fail: an edit of the file can write
    any bytes, and verification must name the entry.
    """
    if connection.dialect.name != "sqlite":
        yield
        return
    driver: Any = connection.connection.driver_connection
    usual = driver.text_factory
    driver.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    try:
        yield
    finally:
        driver.text_factory = usual
