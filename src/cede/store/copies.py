"""Copies of a SQLite database: makes one while a server writes, and puts one in its place.

A copy is verified before it counts: every row against its digest, every index against its table.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from threading import Event

from cede.store import connect, verify
from cede.store.errors import Damaged, StoreError, WrongDatabase
from cede.store.lock import FileLock

# For locks that are not waited for.
AT_ONCE = Event()
AT_ONCE.set()
_SIDE_FILES = ("-wal", "-shm")


def copy_of(source: Path, target: Path) -> None:
    """Make `target` a copy of a database as of one commit; whole and synced, or not at all."""
    if not source.is_file():
        raise WrongDatabase(f"there is no database {source}")
    part = target.with_name(f".{target.name}.part")
    try:
        os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
        with (
            closing(sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro", uri=True)) as old,
            closing(sqlite3.connect(part)) as new,
        ):
            old.backup(new)
            # One file: a copy that is carried elsewhere must not leave a side file behind.
            new.execute("PRAGMA journal_mode = DELETE")
        _sync(part)
        part.replace(target)
        _sync(target.parent)
    except (sqlite3.DatabaseError, OSError) as error:
        raise StoreError(f"cannot copy {source} to {target}: {error}") from None
    finally:
        remove(part)


def check(path: Path) -> None:
    """Refuse a database of this version that is damaged."""
    engine = connect.read_engine(connect.parse_url(f"sqlite:///{path}"))
    try:
        findings = verify.scrub(engine)
    finally:
        engine.dispose()
    if findings:
        raise Damaged(findings)


def put_in_place(copy: Path, database: Path) -> Path | None:
    """Replace the database by a copy; return the new path of the old one, if there was one.

    A crash in between leaves no database at its path, and the anchor then refuses a new one.
    """
    before = database.with_name(f"{database.name}.replaced")
    replaced = database.exists()
    if replaced:
        remove(before)
        for side in ("", *_SIDE_FILES):
            with suppress(FileNotFoundError):
                Path(f"{database}{side}").rename(f"{before}{side}")
    copy.replace(database)
    _sync(database.parent)
    return before if replaced else None


def lock(database: Path) -> FileLock:
    """The lock of a database's one server, at once; refused while a server has it."""
    found = FileLock(Path(f"{database}.lock"))
    if not found.acquire(AT_ONCE):
        raise StoreError(f"a server is using {database}; stop it first")
    return found


def remove(path: Path) -> None:
    for side in ("", *_SIDE_FILES, "-journal", ".lock"):
        Path(f"{path}{side}").unlink(missing_ok=True)


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
