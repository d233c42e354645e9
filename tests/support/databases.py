"""Databases that have their tables at once: the migrations run for the first one, others copy it.

Making the tables takes longer than most tests that need them. What migrations do is shown by the
tests of the store, which run them.
"""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from pathlib import Path

from sqlalchemy.engine import make_url

from cede.store import Store


def give_tables(url: str) -> None:
    """Make the tables in a new SQLite file; a PostgreSQL database is left as it is."""
    found = make_url(url)
    if found.get_backend_name() == "sqlite":
        path = Path(str(found.database))
        if not path.exists():
            path.touch(mode=0o600)
            path.write_bytes(_tables())


@cache
def _tables() -> bytes:
    folder = Path(tempfile.mkdtemp(prefix="cede-tables-"))
    try:
        store = Store(f"sqlite:///{folder / 'cede.db'}")
        store.migrate()
        store.close()
        assert [each.name for each in folder.iterdir()] == ["cede.db"], "not all is in one file"
        return (folder / "cede.db").read_bytes()
    finally:
        shutil.rmtree(folder)
