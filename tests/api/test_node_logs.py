"""What work printed is asked of its node, passed on, and never kept by the server."""

from __future__ import annotations

import base64
import threading
from typing import Any

import pytest

from cede.server.api import relay
from tests.api.conftest import PATIENCE, Server
from tests.api.machines import API, Machine, run


class Reader(threading.Thread):
    """Somebody who reads a log while its agent answers."""

    def __init__(self, server: Server, path: str, who: str = "red") -> None:
        super().__init__()
        self.server, self.path, self.who = server, path, who
        self.start()

    def run(self) -> None:
        self.response = self.server[self.who].get(API + self.path)

    def result(self) -> Any:
        self.join(PATIENCE)
        return self.response


def test_logs_are_asked_of_the_node_and_passed_on(farm: Server) -> None:
    alpha = Machine(farm)
    asked = run(farm)
    (order,) = alpha.beat()["orders"]
    alpha.tell(order, "started")
    reader = Reader(farm, f"/requests/{asked['id']}/logs?stream=stderr&offset=3")
    written = b"0123456789"
    for _ in range(2):
        question = _question(alpha)
        assert question["stream"] == "stderr" and question["allocation"] == order["allocation"]
        answer_log(alpha, question, written)
    answer = reader.result()
    assert (answer.status_code, answer.content) == (200, b"3456789")
    assert answer.headers["cede-log-offset"] == "3"


def _question(alpha: Machine) -> dict[str, Any]:
    for _ in range(100):
        if found := alpha.beat(wait=1)["logs"]:
            return dict(found[0])
    raise AssertionError("nobody asked")


def answer_log(alpha: Machine, question: dict[str, Any], written: bytes) -> None:
    piece = written[question["offset"] :][: question["most"]]
    text = base64.b64encode(piece).decode()
    alpha.beat(logs=[{"id": question["id"], "offset": question["offset"], "data": text}])


def test_a_log_is_followed_to_its_end_and_what_was_rotated_away_is_left_out(farm: Server) -> None:
    alpha = Machine(farm)
    asked = run(farm)
    (order,) = alpha.beat()["orders"]
    alpha.tell(order, "started")
    reader = Reader(farm, f"/requests/{asked['id']}/logs?follow=true")
    # (where the piece begins, what is in it, whether that was all)
    for offset, text, end in ((100, "YWI=", False), (102, "", False), (102, "Yw==", True)):
        question = _question(alpha)
        alpha.beat(logs=[{"id": question["id"], "offset": offset, "data": text, "end": end}])
    question = _question(alpha)
    assert question["offset"] == 103
    alpha.beat(logs=[{"id": question["id"], "offset": 103, "end": True}])
    answer = reader.result()
    assert (answer.content, answer.headers["cede-log-offset"]) == (b"abc", "100")


def test_an_answer_to_a_question_of_another_node_is_nobodys(farm: Server) -> None:
    alpha, beta = Machine(farm, "alpha"), Machine(farm, "beta")
    asked = run(farm, node_labels={"zone": "a"})
    (order,) = alpha.beat()["orders"] + beta.beat()["orders"]
    mine, other = (alpha, beta) if order["nodes"] == ["alpha"] else (beta, alpha)
    reader = Reader(farm, f"/requests/{asked['id']}/logs")
    question = _question(mine)
    other.beat(logs=[{"id": question["id"], "data": "bGllcw=="}])
    mine.beat(logs=[{"id": question["id"], "end": True}])
    assert reader.result().content == b""


def test_logs_that_cannot_be_read_say_why(farm: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "PATIENCE_SECONDS", 0.3)
    alpha = Machine(farm)
    asked = run(farm)
    path = f"/requests/{asked['id']}/logs"
    silent = farm["red"].get(API + path)
    assert silent.status_code == 503 and silent.json()["type"].endswith("node_silent")
    assert farm["blue"].get(API + path).status_code == 404
    assert farm["red"].get(f"{API}{path}?task=3").status_code == 404
    assert farm["red"].get(f"{API}{path}?attempt=2").status_code == 409
    waiting = run(farm, gpu=2)
    assert farm["red"].get(f"{API}/requests/{waiting['id']}/logs").status_code == 409
    monkeypatch.setattr(relay, "PATIENCE_SECONDS", 20)
    reader = Reader(farm, path)
    question = _question(alpha)
    alpha.beat(logs=[{"id": question["id"], "gone": True}])
    assert reader.result().status_code == 409


def started(farm: Server, alpha: Machine, **beat: Any) -> tuple[str, dict[str, Any]]:
    """The path of the log of work that has started, and its order."""
    asked = run(farm)
    (order,) = alpha.beat(**beat)["orders"]
    alpha.tell(order, "started")
    return f"/requests/{asked['id']}/logs", order


def test_where_to_begin_is_asked_once_and_of_both_streams(farm: Server) -> None:
    alpha = Machine(farm, protocol=2)
    path, _ = started(farm, alpha)
    reader = Reader(farm, f"{path}?stream=both&tail=3&since=1700000000.5&age=60")
    first = _question(alpha)
    assert [first[each] for each in ("stream", "tail", "since", "age")] == [
        *("both", 3, 1700000000.5, 60)
    ]
    alpha.beat(logs=[{"id": first["id"], "offset": 40, "data": "YWI="}])
    second = _question(alpha)
    assert [second[each] for each in ("stream", "offset", "tail", "since", "age")] == [
        *("both", 42, None, None, None)
    ]
    alpha.beat(logs=[{"id": second["id"], "offset": 42, "end": True}])
    answer = reader.result()
    assert (answer.content, answer.headers["cede-log-offset"]) == (b"ab", "40")


@pytest.mark.parametrize("query", ["stream=both", "tail=1", "stream=stderr&since=1", "age=5"])
def test_an_agent_that_knows_no_order_is_not_asked_for_one(farm: Server, query: str) -> None:
    alpha = Machine(farm, protocol=1)
    path, _ = started(farm, alpha)
    answer = farm["red"].get(f"{API}{path}?{query}")
    assert answer.status_code == 409 and answer.json()["type"].endswith("no_order")


def test_a_supervisor_that_wrote_no_order_is_said_to_be_older(farm: Server) -> None:
    alpha = Machine(farm, protocol=2)
    path, _ = started(farm, alpha)
    reader = Reader(farm, f"{path}?stream=both")
    alpha.beat(logs=[{"id": _question(alpha)["id"], "unordered": True}])
    answer = reader.result()
    assert answer.status_code == 409 and answer.json()["type"].endswith("no_order")


def test_following_ends_with_the_task_where_its_agent_knows_of_no_end(farm: Server) -> None:
    """An agent that never started it has an empty log without an end."""
    alpha = Machine(farm, protocol=2)
    path, order = started(farm, alpha)
    reader = Reader(farm, f"{path}?follow=true&stream=both")
    question = _question(alpha)
    # Ended before the answer, so that one more question is the last.
    alpha.tell(order, "ended", exit_code=126, cause="start_failed")
    alpha.beat(logs=[{"id": question["id"]}])
    alpha.beat(logs=[{"id": _question(alpha)["id"]}])
    assert reader.result().content == b""


def test_a_follower_learns_of_what_was_rotated_away_by_asking_again(farm: Server) -> None:
    alpha = Machine(farm, protocol=2)
    path, _ = started(farm, alpha)
    reader = Reader(farm, f"{path}?follow=true&stream=both")
    alpha.beat(logs=[{"id": _question(alpha)["id"], "data": "YWI="}])
    alpha.beat(logs=[{"id": _question(alpha)["id"], "offset": 1000, "data": "eHk="}])
    assert reader.result().content == b"ab"
