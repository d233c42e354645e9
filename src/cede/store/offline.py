"""Verifies the audit chain in a database without a server.

Nothing is written, and a server may go on using the database meanwhile. With the server's anchor,
an older copy of the whole database is noticed, too: its chain is valid, but too short.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import inspect
from sqlalchemy.exc import SQLAlchemyError

from cede.store import chain, connect, schema
from cede.store.anchor import Anchor, Witness, is_behind, witness_in
from cede.store.errors import WrongDatabase
from cede.store.reads import Reads


class Offline:
    """The audit chain of a database. Close it, or use it in a `with`."""

    def __init__(self, url: str, anchor: Path | None = None) -> None:
        parsed = connect.parse_url(url)
        if parsed.get_backend_name() == "sqlite" and not connect.sqlite_path(parsed).is_file():
            raise WrongDatabase(f"there is no database {connect.sqlite_path(parsed)}")
        # Before the database: a server may commit in between, and is never behind its anchor.
        self._witness: Witness | None = None if anchor is None else Anchor(anchor).read()
        self._engine = connect.read_engine(parsed)
        self._reads = Reads(self._engine)
        try:
            tables = inspect(self._engine)
            if not tables.has_table(schema.audit.name) or not tables.has_table(schema.meta.name):
                raise WrongDatabase("this is no database of cede: it has no audit")
            columns = {each["name"] for each in tables.get_columns(schema.meta.name)}
        except SQLAlchemyError as error:
            raise _unreadable(error) from error
        self._headed = schema.meta.c.audit_number.name in columns
        self._cut = schema.meta.c.audit_cut.name in columns
        self._counted = schema.meta.c.commits.name in columns

    def __enter__(self) -> Offline:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.dispose()

    def verify(self, after: chain.Link, limit: int) -> chain.Verified:
        """As the server's own `verify_audit`."""
        try:
            return self._reads.verify_audit(after, limit, headed=self._headed, cut=self._cut)
        except SQLAlchemyError as error:
            raise _unreadable(error) from error

    def rolled_back(self) -> str | None:
        """The distance of the database behind its anchor, in words; None if it is not behind."""
        if self._witness is None:
            return None
        with self._engine.begin() as connection:
            found = witness_in(connection, counted=self._counted)
        if not is_behind(found, self._witness):
            return None
        return (
            f"the database is at {found}, and its anchor witnesses {self._witness}: it is an older "
            "copy"
        )


def _unreadable(error: SQLAlchemyError) -> WrongDatabase:
    line = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
    return WrongDatabase(f"cannot read the database: {line}")
