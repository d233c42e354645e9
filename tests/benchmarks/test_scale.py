"""The programme of `make scale`, with a site so small that it proves no speed: everything that it
measures is there, and the database that it fills is one that a server serves.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import reads
from benchmarks.scale import history
from benchmarks.scale.__main__ import measure, text
from benchmarks.scale.filling import Site, fill
from benchmarks.scale.history import Database
from cede.engine.audit import audit
from cede.model.lifecycle import RequestStatus
from cede.store import Store

SITE = Site(nodes=3, running=7, waiting=12, ended=5)


def test_a_filled_database_is_sound(database_url: str) -> None:
    keys = fill(database_url, SITE, people=2)
    assert (len(keys.people), len(keys.agents)) == (2, SITE.nodes)
    store = Store(database_url)
    store.take_over()
    state = store.load().state
    assert store.scrub() == [] and audit.check(state) == []
    found = [each.status for each in state.requests.values()]
    assert found.count(RequestStatus.ALLOCATED) == SITE.running
    assert found.count(RequestStatus.QUEUED) == SITE.waiting
    ledger = next(iter(state.ledgers.values()))
    assert sum(map(len, ledger.queues.values())) == SITE.waiting
    store.close()


@pytest.mark.slow
def test_a_small_site_is_measured(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/cede.db"
    figures, cells = measure(url, tmp_path, SITE, seconds=0.1, calls=20)
    assert [each.most for each in figures] == [4.0, 0.5]
    page = text(["Measured."], {"sqlite": cells})
    assert page.startswith("Measured.\n\n|  | sqlite |\n| --- | --- |\n| memory after the start |")
    assert all(cells.values()) and "submit: p50; p99; server; generator" in page


@pytest.mark.slow
def test_a_small_history_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "ALONE", 0.2)
    monkeypatch.setattr(reads, "ROUNDS", 1)
    for name in ("few", "many"):
        (tmp_path / name).mkdir()
    few, many = (
        Database(f"sqlite:///{tmp_path}/{name}/cede.db", tmp_path / name)
        for name in ("few", "many")
    )
    sites = (SITE, Site(nodes=3, running=9, waiting=20, ended=700))
    figures, cells = history.measure(few, many, sites, seconds=1, calls=20)
    assert [each.least or each.most for each in figures] == [0.4] * 3 + [1.5] * 3 + [0.5]
    assert all(cells.values()) and int(cells["requests removed a second"]) > 0
