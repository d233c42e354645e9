"""Days that retention has passed over leave as many rows behind as one: what `make aged` measures
with many more, and with times.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import func, select

from cede.store import Store, schema
from cede.store.usage import By
from tests.aged.days import DAY, Days

REQUESTS = 40


def rows(store: Store) -> dict[str, int]:
    with store._readers.begin() as connection:
        return {
            name: connection.execute(select(func.count()).select_from(table)).scalar_one()
            for name, table in schema.metadata.tables.items()
        }


def test_five_days_are_as_many_rows_as_three(database_url: str) -> None:
    made = Days(database_url)
    found = []
    for _ in range(5):
        made.load(REQUESTS)
        made.remove()
        found.append(rows(made.store))
    third, last = found[2], found[-1]
    # A row a day stays of what was held, and an entry a day of the audit until it is too old.
    assert last.pop("usage_days") == third.pop("usage_days") + 2
    for each in (third, last):
        each.pop("audit")
    assert last == third
    assert last["requests"] == last["allocations"] == REQUESTS
    assert last["events"] == 3 * REQUESTS
    assert last["answers"] <= 2 * (REQUESTS + 1)
    usage = made.store.usage(By.POOL, 5 * DAY)
    assert [(each.requests, each.usage.gpu_hours) for each in usage] == [(200, 200 / 60)]
    made.close()


def test_the_file_is_used_again(tmp_path: Path) -> None:
    file = tmp_path / "cede.db"
    made = Days(f"sqlite:///{file}")
    sizes = []
    for _ in range(5):
        made.load(REQUESTS * 5)
        made.remove()
        made.restart()
        sizes.append(file.stat().st_size)
    made.close()
    assert sizes[-1] <= sizes[2] * 1.1
