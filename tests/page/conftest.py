"""A browser, a busy server, and pages that must not complain."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api import listening
from tests.api.conftest import Server, running
from tests.page.browser import CHROMIUM, launched, opened
from tests.page.busy import Busy, build
from tests.page.past import add_past, running_for_a_month


@pytest.fixture(scope="package", autouse=True)
def _ports() -> Iterator[None]:
    yield
    listening.stop_all()


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("NO CHROMIUM HERE: THE PAGE WAS NOT TESTED (see scripts/system-packages)")
    with launched() as found:
        yield found


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    with opened(browser) as found:
        yield found
        assert found.problems == []


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A fresh server on SQLite."""
    with running(f"sqlite:///{tmp_path / 'cede.db'}") as found:
        yield found


@pytest.fixture(scope="package")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Busy]:
    """The busy world for tests that only look."""
    url = f"sqlite:///{tmp_path_factory.mktemp('page') / 'cede.db'}"
    with running_for_a_month(url) as found:
        busy = build(found)
        add_past(found)
        yield busy


@pytest.fixture
def busy(server: Server) -> Busy:
    """A busy world of the test's own."""
    return build(server)
