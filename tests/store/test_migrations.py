"""A database is brought to this version's schema, or refused untouched with one line."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, MetaData, create_engine, insert, inspect, select, text
from sqlalchemy.schema import CreateTable

from cede.model.allocation import Member
from cede.model.lifecycle import RequestStatus
from cede.model.request import OnSilence
from cede.model.shape import Shape
from cede.model.terms import Terms
from cede.store import (
    Idempotency,
    Remembered,
    Store,
    WrongDatabase,
    connect,
    migrate,
    rows,
    schema,
)
from cede.store.statements import REQUESTS
from tests.store.samples import allocation, batch, event, policy, pool, request, started


def engine_of(url: str) -> Engine:
    return create_engine(connect.parse_url(url))


# SQLAlchemy cannot compare an index over an expression; that it is there is tested in test_reads.
@pytest.mark.filterwarnings("ignore:Skipped unsupported reflection of expression-based index")
@pytest.mark.filterwarnings("ignore:autogenerate skipping metadata-specified expression-based")
def test_all_revisions_together_make_the_schema(store: Store, database_url: str) -> None:
    engine = engine_of(database_url)
    with engine.connect() as connection:
        options = {"version_table": migrate.VERSION_TABLE, "compare_type": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, schema.metadata) == []
        assert constraints(connection) == constraints_of(schema.metadata)
    engine.dispose()


def constraints(connection: Any) -> dict[str, set[str | None]]:
    """Comparing metadata looks at columns and indexes only; these are the other rules."""
    found = inspect(connection)
    return {
        table: {each["name"] for each in found.get_check_constraints(table)}
        | {each["name"] for each in found.get_foreign_keys(table)}
        | {each["name"] for each in found.get_unique_constraints(table)}
        for table in schema.metadata.tables
    }


def constraints_of(metadata: MetaData) -> dict[str, set[str | None]]:
    names = {}
    for name, table in metadata.tables.items():
        created = str(CreateTable(table))
        names[name] = {
            each for each in re.findall(r"CONSTRAINT (\w+)", created) if each[:2] != "pk"
        }
    return names


def test_the_last_revision_is_the_one_we_say() -> None:
    config = Config()
    folder = Path(migrate.__file__).parent / "migrations"
    config.set_main_option("script_location", str(folder))
    assert ScriptDirectory.from_config(config).get_current_head() == migrate.HEAD


def test_what_an_earlier_version_stored_is_usual(database_url: str) -> None:
    engine = engine_of(database_url)
    with engine.begin() as connection:
        upgrade_to(connection, "0001")
        values = [
            (schema.pools, schema.pools.columns, rows.pool_row(pool())),
            (schema.policies, schema.policies.columns, rows.policy_row(policy())),
            (schema.requests, REQUESTS.columns, rows.request_row(request(), None)),
        ]
        for table, columns, row in values:
            said = {
                of.name: each for of, each in zip(columns, row, strict=True) if each is not None
            }
            connection.execute(insert(table).values(said))
    engine.dispose()
    store = Store(database_url)
    store.migrate()
    assert store.get_policy("policy-1").policy == policy()
    # What said nothing of silence meant this.
    assert store.get_request("request-1").request == request(on_silence=OnSilence.STOP)
    store.close()


def test_the_accounts_know_what_an_earlier_version_stored(database_url: str) -> None:
    """Whose an allocation was and on how many nodes it sat is told by its request and members."""
    engine = engine_of(database_url)
    gang = Shape({"gpu": 1}, tasks=3)
    members = tuple(Member(task, f"node-{task // 2}") for task in range(3))
    stored = [
        (request("plain", 1), allocation("plain")),
        (request("bio", 2, terms=Terms(tenant="bio")), allocation("bio")),
        (request("counted", 3, shape=gang), allocation("counted")),
        (request("sitting", 4, shape=gang), allocation("sitting", members=members)),
    ]
    later = {schema.requests: {"ended_at"}, schema.allocations: {"tenant", "nodes"}}
    with engine.begin() as connection:
        upgrade_to(connection, "0002")
        for of, held in stored:
            for table, columns, row in (
                (schema.requests, REQUESTS.columns, rows.request_row(of, held)),
                (schema.allocations, schema.allocations.columns, rows.allocation_row(held)),
            ):
                said = {
                    column.name: each
                    for column, each in zip(columns, row, strict=True)
                    if each is not None and column.name not in later[table]
                }
                connection.execute(insert(table).values(said))
        upgrade_to(connection, "0003")
        columns = schema.allocations.c
        found = connection.execute(select(columns.request_id, columns.tenant, columns.nodes))
        assert {row[0]: (row[1], row[2]) for row in found} == {
            "plain": (None, None),
            "bio": ("bio", None),
            "counted": (None, 3),
            "sitting": (None, 2),
        }
    engine.dispose()


def upgrade_to(connection: Connection, revision: str) -> None:
    config = Config()
    folder = Path(migrate.__file__).parent / "migrations"
    config.set_main_option("script_location", str(folder))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def test_migrating_again_changes_nothing(store: Store, database_url: str) -> None:
    store.commit(batch(0))
    again = Store(database_url)
    again.migrate()
    assert again.head() == 1
    again.close()
    store.commit(batch(1))


def test_a_newer_revision_is_refused(store: Store, database_url: str) -> None:
    engine = engine_of(database_url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE cede_version SET version_num = '9999'"))
    engine.dispose()
    older = Store(database_url)
    with pytest.raises(WrongDatabase, match=r"at revision 9999.*upgrade cede") as refusal:
        older.migrate()
    assert "\n" not in str(refusal.value)
    older.close()


def test_tables_of_another_program_are_refused(database_url: str) -> None:
    engine = engine_of(database_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE requests (id INTEGER)"))
    engine.dispose()
    store = Store(database_url)
    with pytest.raises(WrongDatabase, match="another program"):
        store.migrate()
    store.close()


def test_a_foreign_file_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "photos.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE photos (id INTEGER)")
    connection.close()
    before = path.read_bytes()
    store = Store(f"sqlite:///{path}")
    with pytest.raises(WrongDatabase, match="of another program"):
        store.migrate()
    store.close()
    assert path.read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["photos.db"]


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("dear diary, " * 100)
    store = Store(f"sqlite:///{tmp_path / 'notes.txt'}")
    with pytest.raises(WrongDatabase, match="not an SQLite database"):
        store.migrate()
    store.close()


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'gone' / 'cede.db'}")
    with pytest.raises(WrongDatabase, match="gone of the database does not exist"):
        store.migrate()
    store.close()


def test_a_server_that_is_not_there_is_one_line() -> None:
    store = Store("postgresql://cede@127.0.0.1:1/cede")
    with pytest.raises(WrongDatabase, match="cannot use the database") as refusal:
        store.migrate()
    assert "\n" not in str(refusal.value)
    store.close()


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///:memory:", "mysql://host/db", "nonsense", ""]
)
def test_databases_we_cannot_use_are_refused_by_their_url(url: str) -> None:
    with pytest.raises(WrongDatabase) as refusal:
        Store(url)
    assert "\n" not in str(refusal.value)


def test_a_migration_that_fails_leaves_nothing(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K18: the old schema or the new one, never something between."""

    def fails(connection: Any) -> None:
        raise RuntimeError("power cut")

    store = Store(database_url)
    with monkeypatch.context() as patch:
        patch.setattr(migrate, "_first_row", fails)
        with pytest.raises(RuntimeError):
            store.migrate()
    engine = engine_of(database_url)
    assert inspect(engine).get_table_names() == []
    engine.dispose()
    store.migrate()
    assert store.take_over() == 1
    store.close()


def test_what_had_ended_and_was_answered_before_there_was_retention(database_url: str) -> None:
    """An ended request ended with its last event; an answer is still given under its key."""
    engine = engine_of(database_url)
    known = Idempotency("key", "POST /x", "token-1", "body")
    with engine.begin() as connection:
        upgrade_to(connection, "0005")
        for each in (request("over", 1, status=RequestStatus.CANCELLED), request("alive", 2)):
            row = zip(REQUESTS.columns, rows.request_row(each, None), strict=True)
            said = {
                of.name: value for of, value in row if value is not None and of.name != "ended_at"
            }
            connection.execute(insert(schema.requests).values(said))
        events = [event(n, at=10 * n, request_id="over") for n in (1, 2, 3)]
        for each in events:
            columns = [of.name for of in schema.events.columns]
            said = dict(zip(columns, rows.event_row(each), strict=True))
            connection.execute(insert(schema.events).values(said))
        connection.execute(
            text(
                "INSERT INTO idempotency (token_id, route, key, body_hash, response, at) "
                "VALUES ('token-1', 'POST /x', 'key', 'body', '[1]', 7)"
            )
        )
    engine.dispose()
    store, _ = started(database_url)
    assert store.recall([known]) == {known.place: Remembered(known, "[1]", 7)}
    with store._readers.begin() as connection:
        columns = schema.requests.c
        found = connection.execute(select(columns.id, columns.ended_at)).all()
    assert dict(map(tuple, found)) == {"over": 30, "alive": None}
    store.close()
