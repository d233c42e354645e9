"""What was: usage by day, team, user and label; ended requests; pools over time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cede.model.bounds import HISTORY_FINE
from cede.server.history import History
from tests.api.conftest import Server, made

API = "/api/v1"
TODAY = datetime.now(UTC).date()


def contested(server: Server) -> dict[str, Any]:
    """Red ran, and was stopped for blue; both have ended; blue holds something still."""
    server.pool("gpus", 8, settings={"cost_per_hour": {"gpu": 1e6}})
    server.policy("red", reserved={"gpu": 4})
    server.policy("blue", reserved={"gpu": 4})
    victim = server.submit("red", 8, retry={"max_retries": 0}, labels={"project": "llm"})
    server.submit("blue", 4, labels={"project": "llm", "name": "x"})
    path = f"{API}/requests/{victim['id']}"
    made(server["red"].post(path + "/renew", json={"attempt": 1}))
    made(server["red"].post(path + "/release", json={"outcome": "stopped"}))
    return victim


def read(server: Server, path: str, who: str = "viewer") -> Any:
    answer = server[who].get(API + path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_lost_hours_and_cost_are_told(server: Server) -> None:
    contested(server)
    found = {each["name"]: each for each in read(server, "/usage?by=team")["items"]}
    red, blue = found["red"], found["blue"]
    assert red["preempted"] == 1 and blue["preempted"] == 0
    assert 0 < red["lost_gpu_hours"] <= red["gpu_hours"] and blue["lost_hours"] == {}
    # Hours are shown with nine digits behind the point, so the last of the price is not known.
    assert red["cost"] == pytest.approx(red["gpu_hours"] * 1e6, abs=0.001)
    assert red["starts"] == 1 and red["mean_wait"] is not None


def test_usage_is_told_apart_by_user_label_and_day(server: Server) -> None:
    contested(server)
    users = read(server, "/usage?by=user")["items"]
    assert {each["name"] for each in users} == {"team:red/red", "team:blue/blue"} or len(users) == 2
    (project,) = read(server, "/usage?by=label")["items"]
    assert project["name"] == "llm" and project["requests"] == 2
    names = {each["name"] for each in read(server, "/usage?by=label&label=name")["items"]}
    assert names == {"x", None}
    days = read(server, f"/usage?by=pool&days=true&from={TODAY - timedelta(days=3)}")["items"]
    assert {each["day"] for each in days} <= {str(TODAY), str(TODAY + timedelta(days=1))}
    assert read(server, f"/usage?from=2020-01-01&to={TODAY - timedelta(days=2)}")["items"] == []


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("/usage?from=2026-01-02&to=2026-01-01", "to"),
        ("/usage?from=2026-01-02&since=5", "since"),
        ("/usage?days=true", "days"),
        ("/usage?from=yesterday", "from"),
        ("/usage?by=moon", "by"),
        ("/history?to=0000-00-00", "to"),
        ("/pools/gpus/history?step=59", "step"),
    ],
)
def test_a_wrong_period_is_refused(server: Server, query: str, field: str) -> None:
    server.pool("gpus", 8)
    answer = server["viewer"].get(API + query)
    assert answer.status_code == 422, answer.text
    assert field in answer.json()["detail"]


def test_history_lists_what_has_ended(server: Server) -> None:
    victim = contested(server)
    (past,) = read(server, "/history?since=3600")["items"]
    assert past["request"]["id"] == victim["id"] and past["request"]["status"] == "preempted"
    assert past["gpu_hours"] > 0 and past["lost_gpu_hours"] > 0 and past["cost"] > 0
    assert abs((datetime.fromisoformat(past["ended"]) - datetime.now(UTC)).total_seconds()) < 600
    assert read(server, "/history?component=blue")["items"] == []
    assert read(server, "/history?since=3600", "blue")["items"] == []  # C4
    assert read(server, f"/history?to={TODAY - timedelta(days=1)}")["items"] == []


def test_pages_of_history_follow_each_other(server: Server) -> None:
    server.pool("gpus", 8)
    server.policy("red", reserved={"gpu": 4})
    ids = [server.submit("red", 1)["id"] for _ in range(5)]
    for each in ids:
        made(server["red"].post(f"{API}/requests/{each}/release", json={"outcome": "done"}))
    seen: list[str] = []
    cursor = ""
    while True:
        page = read(server, f"/history?limit=2{cursor}")
        seen += [each["request"]["id"] for each in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert sorted(seen) == sorted(ids) and len(set(seen)) == 5


def test_a_pool_is_noted_over_time(server: Server) -> None:
    contested(server)
    noter = History(server.store, server.writer, {})
    noter.turn()
    pool_id = read(server, "/pools/gpus")["id"]
    # The minute has its note from the start, before there was a pool: so the next one is looked at.
    sampled = server.store.next_note(
        server.writer.query(_levels).result(), server.writer.now() + HISTORY_FINE, 0
    )
    assert [row[2] for row in sampled.levels] == [pool_id]
    found = read(server, "/pools/gpus/history?since=7200&step=60")
    assert found["pool"] == "gpus" and found["step"] == 60


def _levels(state: Any, now: int) -> Any:
    from cede.engine.explain.levels import levels

    return levels(state, now)


def test_levels_are_those_of_status(server: Server) -> None:
    contested(server)
    server.submit("red", 8)
    (status,) = read(server, "/status")["pools"]
    (levels,) = server.writer.query(_levels).result().values()
    gpu = levels.keys["gpu"]
    assert gpu.capacity == status["capacity"]["gpu"] and gpu.used == status["used"]["gpu"]
    borrowed = sum(each["borrowed"].get("gpu", 0) for each in status["policies"])
    assert gpu.borrowed == borrowed and levels.requests == status["waiting"] == 1
    assert gpu.waiting == 8
