"""Brings a database to this version's schema, or refuses it with the reason in one line.

A migration is one transaction: after a crash there is the old schema or the new one, never a
mixture (K18).
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from pathlib import Path

from sqlalchemy import Connection, Engine, column, func, insert, inspect, select, table

from cede.store import chain, schema, verify
from cede.store.connect import APPLICATION_ID, sqlite_path
from cede.store.errors import WrongDatabase

VERSION_TABLE = "cede_version"
# The last revision; a test checks that it is.
HEAD = "0014"
# An arbitrary number, the same for all servers.
_MIGRATION_LOCK = 0x63656465


def migrate(engine: Engine) -> None:
    """Make or upgrade the tables, after any other server that does so has finished."""
    if engine.dialect.name == "sqlite":
        path = sqlite_path(engine.url)
        _refuse_foreign_file(path)
        # Readable by its owner only: SQLite gives its side files the same mode.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
        if _revision(connection) != HEAD:
            _upgrade(connection)


def _upgrade(connection: Connection) -> None:
    # Imported only when needed: it takes as long as the rest of a start.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    _refuse_unknown(connection, known)
    command.upgrade(config, "head")
    _first_row(connection)
    verify.seal(connection)


def _revision(connection: Connection) -> str | None:
    """The stored revision of the database; None if there is none."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    version = table(VERSION_TABLE, column("version_num"))
    found = connection.execute(select(version.c.version_num)).scalar()
    return None if found is None else str(found)


def _refuse_foreign_file(path: Path) -> None:
    """Refuse a file of another program, before it is opened for writing, which changes it."""
    if not path.exists():
        if not path.parent.is_dir():
            raise WrongDatabase(f"the folder {path.parent} of the database does not exist")
        return
    if path.stat().st_size == 0:
        return
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        try:
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        finally:
            connection.close()
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise WrongDatabase(f"{path} is not an SQLite database that can be read: {error}") from None
    if tables and application_id != APPLICATION_ID:
        raise WrongDatabase(f"{path} is an SQLite database of another program; name another file")


def _refuse_unknown(connection: Connection, known: set[str]) -> None:
    current = _revision(connection)
    if current is not None and current not in known:
        raise WrongDatabase(
            f"the database is at revision {current}, and this version of cede knows up to {HEAD}: "
            "it was used by a newer one; upgrade cede"
        )
    if current is None:
        found = set(inspect(connection).get_table_names()) & set(schema.metadata.tables)
        if found:
            raise WrongDatabase(
                f"the database has tables of another program under our names "
                f"({', '.join(sorted(found))}); name an empty one"
            )


def _first_row(connection: Connection) -> None:
    if connection.execute(select(schema.meta.c.id)).first() is None:
        connection.execute(
            insert(schema.meta).values(
                id=1, epoch=0, holder="", lease_until=0, head=0, instant=0, boot_id="", boottime=0,
                secret=secrets.token_hex(32), audit_number=0, audit_hash=chain.GENESIS,
            )
        )  # fmt: skip
