"""kill -9 before, during and after a commit.

Acknowledged is kept, and nothing is there twice (K1, K2, K19).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from cede.server.writer import Writer
from cede.store import Store
from cede.store.anchor import Anchor
from tests.server.crash_driver import SUBMISSIONS
from tests.server.helpers import PATIENCE, ask_for, give_back, key, make_pool, running

pytestmark = [pytest.mark.system, pytest.mark.slow]

POINTS = ["before_commit", "during_commit", "after_commit"]
GPUS = 4


def killed_at(point: str, url: str, anchor: Path, what: str) -> list[str]:
    """Run the driver until it dies there; what it had acknowledged by then."""
    finished = subprocess.run(
        [sys.executable, "-m", "tests.server.crash_driver", url, str(anchor), what],
        env=os.environ | {"CEDE_CRASH_POINT": point},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE,
    )
    assert finished.returncode == -signal.SIGKILL, finished.stderr
    return finished.stdout.split("\n")[:-1]


def check_nothing_is_broken(store: Store, writer: Writer) -> None:
    views = store.list_requests(limit=500).items
    held = sum(view.allocation.amounts["gpu"] for view in views if view.allocation)
    live = [view for view in views if view.allocation and view.allocation.live]
    assert sum(view.allocation.amounts["gpu"] for view in live if view.allocation) <= GPUS, held
    events = store.events_after(0, limit=500)
    kinds = Counter((event.kind, event.request_id) for event in events)
    assert max(kinds.values()) == 1, "something happened twice"


# The third commit of the run is the third submission: two are acknowledged before it.
@pytest.mark.parametrize("point", POINTS)
def test_submissions(point: str, database_url: str, tmp_path: Path) -> None:
    anchor = tmp_path / "anchor"
    with running(database_url, anchor=anchor) as (_, writer):
        writer.execute(make_pool(GPUS)).result(PATIENCE)
    lines = killed_at(f"{point}:3", database_url, anchor, "submit")
    acknowledged = dict(line.split() for line in lines)
    assert list(acknowledged) == ["key-0", "key-1"]
    with running(database_url, anchor=anchor) as (store, writer):
        witness = Anchor(anchor).read()
        assert witness is not None and witness.index <= store.head()
        stored = {view.request.id for view in store.list_requests().items}
        assert set(acknowledged.values()) <= stored
        assert len(stored) == (3 if point == "after_commit" else 2)
        # Whoever got no answer asks again under the same key, and gets the one that is there.
        again = {
            f"key-{number}": writer.execute(ask_for(1), idempotency=key(f"key-{number}")).result(
                PATIENCE
            )
            for number in range(SUBMISSIONS)
        }
        assert acknowledged.items() <= again.items()
        now = {view.request.id for view in store.list_requests().items}
        assert now == set(again.values()) and stored <= now and len(now) == SUBMISSIONS
        check_nothing_is_broken(store, writer)


def two_of_them(url: str, anchor: Path) -> None:
    """A holder of everything, and a waiter that its release will start."""
    with running(url, anchor=anchor) as (store, writer):
        writer.execute(make_pool(GPUS)).result(PATIENCE)
        writer.execute(ask_for(GPUS, "holder")).result(PATIENCE)
        writer.execute(ask_for(GPUS, "waiter")).result(PATIENCE)
        assert store.get_request("waiter").request.status == "queued"


@pytest.mark.parametrize("point", POINTS)
def test_a_plan_is_wholly_there_or_not_at_all(
    point: str, database_url: str, tmp_path: Path
) -> None:
    anchor = tmp_path / "anchor"
    two_of_them(database_url, anchor)
    assert killed_at(point, database_url, anchor, "release") == []
    with running(database_url, anchor=anchor) as (store, writer):
        statuses = [store.get_request(id_).request.status for id_ in ("holder", "waiter")]
        if point == "after_commit":
            assert statuses == ["released", "allocated"]
        else:
            assert statuses == ["allocated", "queued"]
        answer = writer.execute(give_back("holder"), idempotency=key("release")).result(PATIENCE)
        assert answer == "holder"
        assert store.get_request("holder").request.status == "released"
        assert store.get_request("waiter").request.status == "allocated"
        check_nothing_is_broken(store, writer)
