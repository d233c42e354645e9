"""A database that cannot be reached is told from a mistake of ours."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from cede.store import Store
from cede.store.errors import DatabaseAway
from tests.store.samples import started
from tests.support import ports, postgres


@pytest.mark.postgres
def test_a_database_that_is_away_is_said_to_be(postgres_url: str) -> None:
    """Whether its connections were cut, or nobody listens; what it has is read again afterwards."""
    with postgres.fresh_database(make_url(postgres_url)) as url:
        store, _ = started(url.render_as_string(hide_password=False))
        try:
            with pytest.raises(DatabaseAway), store._readers.begin() as connection:
                connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
            assert store.list_pools().items == []
        finally:
            store.close()
    with ports.hold() as held:
        nobody = url.set(port=ports.number_of(held))
        away = Store(nobody.render_as_string(hide_password=False))
        with pytest.raises(DatabaseAway):
            away.list_pools()
        away.close()
