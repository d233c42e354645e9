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
