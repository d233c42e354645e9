"""The tests' own databases are what they claim to be."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, inspect, text


def test_a_fresh_database_answers_and_is_empty(database_url: str) -> None:
    engine = create_engine(database_url)
    try:
        with engine.connect() as connection:
            assert connection.execute(text("SELECT 1")).scalar_one() == 1
            assert inspect(connection).get_table_names() == []
    finally:
        engine.dispose()


@pytest.mark.postgres
def test_the_server_keeps_what_it_acknowledges(postgres_url: str) -> None:
    engine = create_engine(postgres_url)
    try:
        with engine.connect() as connection:
            assert connection.execute(text("SHOW fsync")).scalar_one() == "on"
            assert connection.execute(text("SHOW synchronous_commit")).scalar_one() == "on"
    finally:
        engine.dispose()
