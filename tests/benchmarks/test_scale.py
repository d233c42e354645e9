"""The programme of `make scale`, with a site so small that it proves no speed: everything that it
measures is there, and the database that it fills is one that a server serves.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.scale.__main__ import measure, text
from benchmarks.scale.filling import Site, fill
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
