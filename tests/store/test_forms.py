"""Rows that SQLite packs as JSON count as those that its driver returns, with equal values."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import ColumnElement, cast, create_engine, func
from sqlalchemy.types import LargeBinary

from cede.store import Damaged, Store
from cede.store.digests import LAYOUTS, Digests, Layout
from cede.store.forms import forms, read
from tests.store.samples import batch, changes, policy, pool, request, started

NASTY = "".join(map(chr, range(1, 0x180))) + "\u2028\ufeff\ufffd\U0001f9ff \\u0000 '\"\\/"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'cede.db'}"


def fill(url: str) -> Store:
    store, _ = started(url)
    labelled = request(comment=NASTY, labels={"": NASTY}, owner=NASTY, preemptible=False)
    plain = request("request-2", 1 << 53, lease=None)
    store.commit(batch(0, changes([pool(), policy(), labelled, plain])))
    return store


def test_both_forms_give_the_same_rows_and_digests(url: str) -> None:
    store = fill(url)
    connection, layout = store._connection(), LAYOUTS["requests"]
    with connection.begin():
        found = []
        for form in forms(connection, layout):
            digests = Digests()
            pieces = read(connection, layout, form, digests, lambda all: all)
            rows = [tuple(row) for piece in pieces for row in form.plain(piece)]
            found.append((sorted(rows), digests.of("requests")))
    packed, plain = found
    assert packed == plain
    assert packed[1][0] == 2
    store.close()


def test_a_table_with_fractions_has_the_plain_form_only() -> None:
    assert {name for name, each in LAYOUTS.items() if each.packed is None} >= {
        "policies",
        "tenants",
    }


def test_a_database_that_packs_otherwise_is_not_taken_for_damaged(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def packed(layout: Layout) -> ColumnElement[bytes]:
        return cast(func.json_array(*layout.columns).op("||")(" "), LargeBinary)

    fill(url).close()
    monkeypatch.setattr(Layout, "packed", property(packed))
    store = Store(url)
    store.migrate()
    store.take_over()
    loaded = store.load()
    assert [each.owner for each in loaded.state.requests.values()] == [NASTY, ""]
    assert store.scrub() == []
    store.close()


def tamper(url: str, statement: str) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql(statement)
    engine.dispose()


@pytest.mark.parametrize("value", ["x'00'", "CAST(x'ff' AS TEXT)", "1.5"])
def test_values_of_another_kind_are_damage(url: str, value: str) -> None:
    fill(url).close()
    tamper(url, f"UPDATE requests SET comment = {value} WHERE id = 'request-2'")
    store = Store(url)
    store.migrate()
    store.take_over()
    with pytest.raises(Damaged):
        store.load()
    assert store.scrub()
    store.close()
