"""S24: whatever is done to the rows of the audit, verifying finds it and names the entry."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import create_engine, insert, text

from cede.client.chain import follow
from cede.model import bounds
from cede.store import AuditNote, Store, WrongDatabase, chain, connect, rows, schema
from cede.store.offline import Offline
from tests.store.samples import batch, started
from tests.store.test_migrations import engine_of, upgrade_to

LENGTH = 5
Row = tuple[Any, ...]


def note(n: int, actor: str = "alice") -> AuditNote:
    return AuditNote(
        "2026-01-01T00:00:00.000Z", actor, "pool.create", f"pool-{n}", {"é": [n, 1.5], "a": None}
    )


def write(store: Store, count: int = LENGTH) -> None:
    for n in range(count):
        store.commit(batch(n, audit=[note(n)]))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with a chain, whose table has lost what keeps people from changing it."""
    path = tmp_path_factory.mktemp("chain") / "template.db"
    store, _ = started(f"sqlite:///{path}")
    write(store)
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE copied AS SELECT * FROM audit")
        connection.execute("DROP TABLE audit")
        connection.execute("ALTER TABLE copied RENAME TO audit")
    connection.close()
    return path


def stored_in(path: Path) -> list[Row]:
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT * FROM audit ORDER BY number").fetchall()
    connection.close()
    return found


def changed(template: Path, new: list[Row]) -> Path:
    """A copy with these rows."""
    path = template.with_name("changed.db")
    shutil.copy(template, path)
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM audit")
    connection.executemany("INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?, ?, ?)", new)
    connection.commit()
    connection.close()
    return path


def verified(url: str, noted: str | None = None, anchor: Path | None = None) -> dict[str, Any]:
    with Offline(url, anchor) as offline:

        def piece(after: str, limit: int) -> dict[str, Any]:
            return chain.to_json(offline.verify(chain.Link.parse(after), limit))

        return follow(piece, noted)


def sealed(number: int, content: AuditNote, previous: str) -> Row:
    """A row whose hash is right, as somebody makes it who knows how."""
    hash_ = chain.entry_hash(number, content, previous)
    return rows.audit_row(rows.AuditEntry(number, content, previous, hash_))


def test_an_untouched_chain_holds(template: Path) -> None:
    found = verified(f"sqlite:///{changed(template, stored_in(template))}")
    assert found["ok"] and found["broken"] is None
    assert found["entries"] == LENGTH
    assert found["head"] == f"{LENGTH}:{stored_in(template)[-1][-1]}"


KINDS = ("reseal", "rewrite", "remove", "cut", "insert", "forge", "swap")
PLACES = range(LENGTH)


def mutated(old: list[Row], kind: str, at: int, other: int) -> list[Row]:
    """The rows after somebody has been at them who knows how the chain is made."""
    new = [*old]
    if kind == "reseal":  # one row anew, with a hash that is right
        new[at] = sealed(at + 1, note(at, "mallory"), old[at][6])
    elif kind == "rewrite":  # a row and all after it
        for n in range(at, LENGTH):
            previous = new[n - 1][7] if n else chain.GENESIS
            new[n] = sealed(n + 1, note(n, "mallory"), previous)
    elif kind == "remove":
        del new[at]
    elif kind == "cut":
        del new[at:]
    elif kind in ("insert", "forge"):  # what comes after it moves up
        previous = old[at][6] if kind == "insert" else "f" * 64
        moved = [(row[0] + 1, *row[1:]) for row in old[at:]]
        new[at:] = [sealed(at + 1, note(9), previous), *moved]
    elif kind == "swap":  # two rows change numbers
        new[at] = (old[other][0], *old[at][1:])
        new[other] = (old[at][0], *old[other][1:])
    return new


def assert_found(template: Path, new: list[Row]) -> None:
    """If the rows are not those that were written, verifying says so, and where."""
    old = stored_in(template)
    path = changed(template, new)
    now = stored_in(path)  # as SQLite understood it: it turns 7 into '7' where text belongs
    found = verified(f"sqlite:///{path}")
    assert found["ok"] is (now == old), found
    if now != old:
        pairs = enumerate(zip(old, now, strict=False))
        good = next((n for n, (a, b) in pairs if a != b), min(len(old), len(now)))
        broken = found["broken"]
        # The first entry that differs, or, if it was sealed anew, one that vouched for it.
        assert good + 1 <= broken["number"] <= LENGTH + 1, found
        assert found["entries"] >= good
        assert broken["what"] in [*chain.Flaw] and broken["detail"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_change_of_the_rows_is_found(template: Path, kind: str) -> None:
    """Removed, inserted, moved, or written anew with hashes that are right."""
    old = stored_in(template)
    others = PLACES if kind == "swap" else (0,)
    for at in PLACES:
        for other in others:
            assert_found(template, mutated(old, kind, at, other))


@given(
    st.integers(0, LENGTH - 1),
    st.integers(0, 7),
    st.one_of(
        st.text(max_size=8),
        st.binary(max_size=8),
        st.integers(-3, 9),
        st.sampled_from(["{}", "null", '{"a":null,"é":[1,1.5]}', "0" * 64]),
    ),
)
def test_every_edit_of_a_row_is_found(template: Path, at: int, column: int, value: object) -> None:
    new = stored_in(template)
    new[at] = (*new[at][:column], value, *new[at][column + 1 :])
    assert_found(template, new)


def test_one_more_entry_at_the_end_is_found(template: Path) -> None:
    """It follows from the chain as it should; no server wrote it."""
    old = stored_in(template)
    new = [*old, sealed(LENGTH + 1, note(9), old[-1][7])]
    found = verified(f"sqlite:///{changed(template, new)}")
    assert (found["broken"]["number"], found["broken"]["what"]) == (LENGTH + 1, "head")


def test_what_is_no_text_is_found(template: Path) -> None:
    path = changed(template, stored_in(template))
    connection = sqlite3.connect(path)
    connection.execute("UPDATE audit SET actor = CAST(X'ff41' AS TEXT) WHERE number = 3")
    connection.commit()
    connection.close()
    found = verified(f"sqlite:///{path}")
    assert (found["broken"]["number"], found["broken"]["what"]) == (3, "hash")


@pytest.mark.parametrize("most", [1, 2, 3, LENGTH, LENGTH + 1])
def test_pieces_find_what_the_whole_does(
    template: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(bounds, "AUDIT_PIECE_MAX", most)
    old = stored_in(template)
    assert verified(f"sqlite:///{changed(template, old)}")["entries"] == LENGTH
    for at in range(LENGTH):
        without = [*old[:at], *old[at + 1 :]]
        assert verified(f"sqlite:///{changed(template, without)}")["broken"]["number"] == at + 1


def test_a_noted_head_finds_a_chain_that_was_written_anew(template: Path) -> None:
    """Head and all: then only a note that was kept elsewhere tells."""
    old = stored_in(template)
    notes = [f"{row[0]}:{row[7]}" for row in old]
    url = f"sqlite:///{changed(template, old)}"
    assert all(verified(url, each)["ok"] for each in [f"0:{chain.GENESIS}", *notes])
    new: list[Row] = [*old[:2]]
    for n in (2, 3):
        new.append(sealed(n + 1, note(n, "mallory"), new[-1][7]))
    path = changed(template, new)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE meta SET audit_number = 4, audit_hash = ?", (new[-1][7],))
    connection.commit()
    connection.close()
    url = f"sqlite:///{path}"
    assert verified(url)["ok"]
    assert [verified(url, each)["ok"] for each in notes] == [True, True, False, False, False]
    assert verified(url, notes[2])["broken"]["number"] == 3
    assert verified(url, notes[4])["broken"]["what"] == "noted"


def test_an_older_copy_of_the_database_is_behind_its_anchor(tmp_path: Path) -> None:
    path, anchor = tmp_path / "cede.db", tmp_path / "anchor"
    store, _ = started(f"sqlite:///{path}", anchor=anchor)
    write(store, 2)
    store.close()
    shutil.copy(path, tmp_path / "older.db")
    store, loaded = started(f"sqlite:///{path}", anchor=anchor)
    store.commit(batch(loaded.index, audit=[note(2)]))
    with Offline(f"sqlite:///{path}", anchor) as offline:  # while a server has it
        assert offline.rolled_back() is None
    store.close()
    older = f"sqlite:///{tmp_path / 'older.db'}"
    assert verified(older)["ok"]
    with Offline(older, anchor) as offline:
        assert "it is an older copy" in (offline.rolled_back() or "")


def disarm(url: str) -> None:
    """Take away what keeps the table from being changed, as its owner can."""
    parsed = connect.parse_url(url)
    engine = create_engine(parsed)
    with engine.begin() as connection:
        if engine.dialect.name == "sqlite":
            connection.execute(text("DROP TRIGGER audit_keep"))
            connection.execute(text("DROP TRIGGER audit_stay"))
        else:
            connection.execute(text("DROP TRIGGER audit_keep ON audit"))
            connection.execute(text("DROP TRIGGER audit_stay ON audit"))
    engine.dispose()


def tamper(url: str, statement: str) -> None:
    engine = create_engine(connect.parse_url(url))
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()


@pytest.mark.parametrize(
    ("statement", "number", "what"),
    [
        ("UPDATE audit SET actor = 'mallory' WHERE number = 2", 2, "hash"),
        ("UPDATE audit SET detail = detail || ' ' WHERE number = 2", 2, "hash"),
        ("DELETE FROM audit WHERE number = 3", 3, "number"),
        ("DELETE FROM audit WHERE number >= 4", 4, "head"),
        ("DELETE FROM audit", 1, "head"),
        ("UPDATE audit SET previous = 'x' WHERE number = 5", 5, "previous"),
        ("UPDATE audit SET number = 9 WHERE number = 1", 1, "number"),
    ],
)
def test_both_databases_find_it_and_the_next_server_does_not_hide_it(
    database_url: str, statement: str, number: int, what: str
) -> None:
    store, _ = started(database_url)
    write(store)
    assert store.verify_audit().broken is None
    store.close()
    disarm(database_url)
    tamper(database_url, statement)
    broken = verified(database_url)["broken"]
    assert (broken["number"], broken["what"]) == (number, what)
    store, loaded = started(database_url)
    for n in range(2):
        store.commit(batch(loaded.index + n, audit=[note(n)]))
    broken = store.verify_audit().broken
    assert broken is not None and broken.number == number
    store.close()


def test_a_database_of_an_earlier_version_starts_from_its_newest_entry(database_url: str) -> None:
    engine = engine_of(database_url)
    entries = chain.extend([note(n) for n in range(3)], chain.START)
    with engine.begin() as connection:
        upgrade_to(connection, "0004")
        connection.execute(
            text(
                "INSERT INTO meta (id, epoch, holder, lease_until, head, instant, boot_id, "
                "boottime, secret) VALUES (1, 0, '', 0, 0, 0, '', 0, 'aa')"
            )
        )
        for entry in entries:
            row = zip(schema.audit.columns.keys(), rows.audit_row(entry), strict=True)
            connection.execute(insert(schema.audit).values(dict(row)))
    engine.dispose()
    before = verified(database_url)
    assert (before["ok"], before["entries"], before["head"]) == (True, 3, None)
    store, loaded = started(database_url)
    assert store.verify_audit().head == chain.Link(3, entries[-1].hash)
    store.commit(batch(loaded.index, audit=[note(3)]))
    assert store.verify_audit().end.number == 4
    assert store.verify_audit().broken is None
    store.close()


def test_what_is_no_database_of_ours_is_said(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("hello " * 200)
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE t (x)").connection.close()
    for name, words in (
        ("none.db", "there is no database"),
        ("text.db", "cannot read the database"),
        ("other.db", "no database of cede"),
    ):
        with pytest.raises(WrongDatabase, match=words):
            Offline(f"sqlite:///{tmp_path / name}")
    assert not (tmp_path / "none.db").exists()
