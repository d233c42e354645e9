"""The tests' own PostgreSQL keeps what it acknowledges, or tests that kill servers show nothing."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, text


@pytest.mark.postgres
def test_the_server_keeps_what_it_acknowledges(postgres_url: str) -> None:
    engine = create_engine(postgres_url)
    try:
        with engine.connect() as connection:
            assert connection.execute(text("SHOW fsync")).scalar_one() == "on"
            assert connection.execute(text("SHOW synchronous_commit")).scalar_one() == "on"
    finally:
        engine.dispose()
