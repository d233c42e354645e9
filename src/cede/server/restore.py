"""`cede backup` and `cede restore`: copies of the database, and the quarantine after a restore.

Grants after a copy was made are unknown to it. A restored database is therefore put into quarantine
before any server sees it (`engine/admin/quarantine.py`), and goes on from an epoch and an index
above all that were ever seen, so that agents, clients and standbys follow it (K18).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from cede.engine.admin import quarantine
from cede.engine.state.due import lease_over
from cede.model import bounds
from cede.server import clock
from cede.server.clock import Clock
from cede.server.config import Config, ConfigError, load_config
from cede.store import Store, copies
from cede.store.anchor import Anchor, Witness
from cede.store.connect import parse_url, sqlite_path
from cede.store.copies import AT_ONCE
from cede.store.errors import RolledBack, Stopped, StoreError, WrongDatabase
from cede.store.values import AuditNote, Batch

Say = Callable[[str], None]

DONE, FAILED, MISUSED = 0, 1, 2
_ACTOR = "cede restore"


def with_config(flags: Sequence[str], do: Callable[[Config], None]) -> int:
    """Call `do` with the configuration that `cede up` would have; return the exit code."""
    try:
        do(load_config(flags, os.environ))
    except ConfigError as error:
        for problem in error.problems:
            sys.stderr.write(f"cede: {problem}\n")
        return MISUSED
    except (StoreError, OSError) as error:
        sys.stderr.write(f"cede: {error}\n")
        return FAILED
    return DONE


def back_up(config: Config, to: Path, say: Say) -> None:
    """Copy the database of a server, which may go on meanwhile."""
    source = _sqlite(config, "pg_dump -Fc DATABASE > FILE")
    if to.exists():
        raise StoreError(f"{to} exists already; name another file")
    part = to.with_name(f".{to.name}.unchecked")
    try:
        copies.copy_of(source, part)
        copies.check(part)
        part.replace(to)
    finally:
        copies.remove(part)
    say(f"{to} is a copy of {source}, looked at row by row")


def restore(config: Config, copy: Path, say: Say) -> None:
    """Put a copy in the place of the database, in quarantine."""
    database = _sqlite(config, "pg_restore, then: cede restore --accept")
    part = database.with_name(f"{database.name}.restoring")
    lock = copies.lock(database)
    try:
        copies.copy_of(copy, part)
        found = _accept(config, f"sqlite:///{part}")
        copies.check(part)
        before = copies.put_in_place(part, database)
        _anchored(config, found)
    finally:
        copies.remove(part)
        lock.release()
    if before is not None:
        say(f"what was in its place is {before}")
    say(f"{database} is restored from {copy}")
    _say_quarantine(say)


def accept(config: Config, say: Say) -> None:
    """Take the database as it is, although it may be an older copy; in quarantine."""
    _anchored(config, _accept(config, config.database))
    say("the database is accepted as it is")
    _say_quarantine(say)


def _accept(config: Config, url: str) -> Witness:
    """Put a database into quarantine, with an epoch and an index above all that were ever seen."""
    try:
        seen = Anchor(_anchor(config)).read()
    except RolledBack:  # the anchor itself is damaged, and tells nothing
        seen = None
    store = Store(url)
    try:
        store.migrate()
        try:
            store.take_over(AT_ONCE)
        except Stopped:
            raise StoreError("a server is using this database; stop all servers first") from None
        loaded = store.load()
        store.move_on(loaded, seen or Witness(0, 0))
        time = Clock(loaded.moment)
        now = time.now()
        lease = (seen or Witness(0, 0)).lease
        until = lease_over(now + store.former_term + lease, lease) + bounds.KILL_GRACE
        quarantine.begin(loaded.state, now, until)
        detail = {"index": loaded.index, "witnessed": None if seen is None else str(seen)}
        note = AuditNote(clock.wall(), _ACTOR, "database.restore", "database", detail)
        state = loaded.state
        batch = Batch(state.drain(), loaded.index, state.index, time.moment(now), audit=[note])
        store.commit(batch)
        store.let_go()
        return store.witness
    finally:
        store.close()


def _anchored(config: Config, found: Witness) -> None:
    """Write the restored database's epoch and index into the anchor, in the place of the earlier
    ones."""
    config.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    anchor = Anchor(_anchor(config))
    try:
        anchor.write(found)
    finally:
        anchor.close()


def _anchor(config: Config) -> Path:
    return config.data / "anchor"


def _sqlite(config: Config, instead: str) -> Path:
    url = parse_url(config.database)
    if url.get_backend_name() != "sqlite":
        raise WrongDatabase(f"a PostgreSQL database is copied with its own tools: {instead}")
    return sqlite_path(url)


def _say_quarantine(say: Say) -> None:
    say(
        "what was granted after the copy is unknown: pools grant nothing until their nodes have "
        "said what runs on them and all leases are over, or you say so: cede pool enable POOL"
    )
