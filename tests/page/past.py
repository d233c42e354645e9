"""A past for the busy pool: a month of levels and of usage, as a server would have noted them."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from contextlib import contextmanager

from cede.model.bounds import DAY, HISTORY_COARSE, HISTORY_FINE, HOUR
from cede.model.levels import Level, Levels
from cede.server.tx import Tx
from cede.store import Batch, Store
from cede.store.history import row_of
from cede.store.usage_days import Day, Key
from cede.store.values import Moment, Noted, Removal
from tests.api.conftest import Server, made, running
from tests.support import databases

DAYS = 35
_SHARES = {"vision": 16, "language": 17, "speech": 8, "robotics": 16, "evaluation": 8}


@contextmanager
def running_for_a_month(url: str) -> Iterator[Server]:
    """A server whose clock has counted for more than a month."""
    databases.give_tables(url)
    store = Store(url)
    store.migrate()
    store.take_over()
    loaded = store.load()
    moment = Moment((DAYS + 5) * DAY, "another boot", 0)
    store.commit(Batch(loaded.state.drain(), loaded.index, loaded.index, moment))
    store.close()
    with running(url) as server:
        yield server


def add_past(server: Server) -> None:
    """Levels of the last month, and what teams held on each of its days."""
    answer = made(server["operator"].get("/api/v1/pools"))
    pools = {each["name"]: each for each in answer["items"]}
    costs = {"settings": {"cost_per_hour": {"gpu": 2.5}}}
    made(server["operator"].patch("/api/v1/pools/h100", json=costs))
    now = server.writer.now()
    levels = []
    for name, pool in pools.items():
        whole = pool["capacity"].get("gpu", 0)
        for step, back in ((HISTORY_FINE, 24 * HOUR), (HISTORY_COARSE, 30 * DAY)):
            first = (now - back) // step * step
            last = (now - 2 * HISTORY_FINE) // step * step
            for at in range(first, last, step):
                levels.append(row_of(step, at, pool["id"], _level(at, whole, len(name))))
    days = list(_days(server, pools["h100"]["id"]))

    def command(tx: Tx) -> None:
        tx.noted = Noted(levels=levels)
        tx.removal = Removal(new_days=days)

    server.writer.execute(command).result()


def _level(at: int, whole: int, salt: int) -> Levels:
    """More by day than by night, and less on weekends, with steps as jobs make them."""
    hour, day = at / HOUR % 24, at // DAY
    dice = random.Random(at // (20 * 60_000) * 31 + salt)
    busy = 0.62 + 0.3 * math.sin((hour - 8) / 24 * 2 * math.pi) - (0.2 if day % 7 > 4 else 0)
    used = round(whole * min(1.0, max(0.1, busy + dice.uniform(-0.08, 0.08))))
    borrowed = round(used * dice.uniform(0.1, 0.3))
    waiting = round(whole * max(0.0, busy - 0.7) * dice.uniform(0.6, 1.6))
    return Levels(at, {"gpu": Level(whole, used, borrowed, waiting)}, waiting // 4)


def _days(server: Server, pool_id: str) -> Iterator[tuple[object, ...]]:
    policies = made(server["operator"].get("/api/v1/policies?pool=h100&limit=500"))["items"]
    today = server.store.wall().day(server.writer.now())
    dice = random.Random(11)
    for back in range(1, DAYS):
        weekend = (today - back) % 7 in (2, 3)  # the first day of 1970 was a Thursday
        for policy in policies:
            team = policy["component"]
            if team not in _SHARES:
                continue
            share = _SHARES[team] * dice.uniform(0.4, 1.2) * (0.45 if weekend else 1)
            gpu = round(share * DAY)
            lost = round(gpu * dice.uniform(0, 0.04))
            day = Day(node_time=gpu // 6, amount_time={"gpu": gpu}, lost_time={"gpu": lost})
            day.counts.update(attempts=30, preempted=dice.randrange(4), requests_of_policy=25)
            day.counts.update(requests_of_pool=25, requests_of_tenant=25)
            day.counts.update(starts=25, wait_time=25 * dice.randrange(20, 3_000) * 1000)
            key: Key = (today - back, 0, pool_id, policy["id"], "", f"team:{team}/{team}-ci", team)
            yield day.row(key)
