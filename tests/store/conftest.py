from __future__ import annotations

from collections.abc import Iterator

import pytest

from cede.store import Store
from tests.store import samples


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    """A fresh store that is the writer, once on each kind of database."""
    store, _ = samples.started(database_url)
    yield store
    store.close()
