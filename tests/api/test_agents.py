"""Machines join, are told what to do, and are believed only about themselves."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from cede.server.api import auth, relay
from cede.server.api.app import close_streams
from tests.api.conftest import Server, made
from tests.api.machines import API, Machine, body, join_token, pool_of_nodes, run

Eventually = Callable[[Callable[[], bool]], None]


@pytest.fixture
def farm(server: Server) -> Iterator[Server]:
    """A pool of nodes in which red and blue have a place."""
    pool_of_nodes(server)
    server.policy("red", "farm", priority=1)
    server.policy("blue", "farm", priority=2)
    yield server


def request_of(server: Server, id_: str) -> dict[str, Any]:
    return made(server["admin"].get(f"{API}/requests/{id_}"))


def test_work_is_ordered_started_ended_and_done(farm: Server) -> None:
    alpha = Machine(farm)
    asked = run(farm, gpu=1, work={"argv": ["train", "--fast"], "env": {"A": "b"}})
    assert asked["status"] == "allocated" and asked["lease"] is None
    (order,) = alpha.beat()["orders"]
    assert order["do"] == "run" and order["work"]["argv"] == ["train", "--fast"]
    assert order["devices"] == {"gpu": ["0"]} and order["nodes"] == ["alpha"]
    alpha.tell(order, "started")
    (member,) = request_of(farm, asked["id"])["allocation"]["members"]
    assert member["phase"] == "started" and member["node"] == "alpha"
    answer = alpha.tell(order, "ended", exit_code=0, cause="exited")
    assert answer["orders"] == []
    ended = request_of(farm, asked["id"])
    assert ended["status"] == "released"
    assert ended["allocation"]["members"][0]["exit_code"] == 0


def test_an_answer_repeats_the_whole_list_whatever_was_seen(farm: Server) -> None:
    alpha = Machine(farm)
    run(farm, gpu=1), run(farm, gpu=1)
    first = alpha.beat()
    assert [each["devices"]["gpu"] for each in first["orders"]] == [["0"], ["1"]]
    assert alpha.beat()["orders"] == first["orders"]
    assert alpha.beat(seen=0)["orders"] == first["orders"]


def test_a_heartbeat_waits_for_news_and_gets_them_at_once(farm: Server) -> None:
    alpha = Machine(farm)
    alpha.beat()
    answers: list[tuple[float, dict[str, Any]]] = []

    def wait() -> None:
        began = time.monotonic()
        answer = alpha.beat(wait=9)
        answers.append((time.monotonic() - began, answer))

    caller = threading.Thread(target=wait)
    caller.start()
    while not farm.writer.desk._waiting:
        time.sleep(0.01)
    run(farm)
    caller.join(20)
    (took, answer), *_ = answers
    assert took < 8 and len(answer["orders"]) == 1


def test_a_heartbeat_without_news_costs_neither_writer_nor_database(
    farm: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    alpha = Machine(farm)
    alpha.beat()

    def forbidden(*given: Any, **named: Any) -> Any:
        raise AssertionError("a heartbeat asked for it")

    for name in ("run", "ask", "execute", "query"):
        monkeypatch.setattr(farm.writer, name, forbidden)
    monkeypatch.setattr(farm.store, "find_token", forbidden)
    monkeypatch.setattr(farm.app.state.cede.auth, "_find", forbidden)
    before = farm.writer.index
    assert auth.NODE_CACHE_SECONDS > 10
    for _ in range(3):
        alpha.beat()
    assert farm.writer.index == before


def test_a_silent_node_is_degraded_and_comes_back(server: Server, eventually: Eventually) -> None:
    server.app.state.cede.config = _quick(server)
    pool_of_nodes(server)
    server.policy("red", "farm")
    alpha = Machine(server)

    def state() -> str:
        return str(made(server["viewer"].get(f"{API}/nodes/alpha"))["state"])

    alpha.beat()
    assert state() == "ready"
    eventually(lambda: state() == "degraded")
    eventually(lambda: state() == "down")
    alpha.beat()
    assert state() == "ready"


def _quick(server: Server) -> Any:
    return replace(server.app.state.cede.config, heartbeat=100)


def test_a_server_that_stops_lets_nobody_wait(server: Server) -> None:
    alpha = Machine(server)
    alpha.beat()
    codes: list[int] = []
    caller = threading.Thread(target=lambda: codes.append(alpha.call(wait=10).status_code))
    caller.start()
    while not server.writer.desk._waiting:
        time.sleep(0.01)
    began = time.monotonic()
    close_streams(server.app)
    caller.join(20)
    assert codes == [200] and time.monotonic() - began < 9


def test_it_is_the_same_on_either_database(any_server: Server) -> None:
    pool_of_nodes(any_server)
    any_server.policy("red", "farm")
    alpha = Machine(any_server)
    asked = run(any_server, gpu=2)
    (order,) = alpha.beat()["orders"]
    alpha.tell(order, "started")
    alpha.tell(order, "ended", exit_code=3, cause="exited")
    ended = request_of(any_server, asked["id"])
    assert ended["status"] == "failed" and ended["allocation"]["members"][0]["exit_code"] == 3


# Joining --------------------------------------------------------------------------------------


def test_a_join_token_is_used_up_and_a_lost_answer_is_not_the_end(farm: Server) -> None:
    once = join_token(farm, uses=1)
    nobody = Machine(farm, "zeta")
    first = made(nobody.post(once, "/agent/register", body("one")))
    refused = nobody.post(once, "/agent/register", body("two"))
    assert refused.status_code == 409 and "used up" in refused.json()["detail"]
    # The answer with the token may have been lost: the same machine may ask again.
    again = made(nobody.post(once, "/agent/register", body("one")))
    assert again["node"] == first["node"] and again["token"] != first["token"]
    elsewhere = nobody.post(once, "/agent/register", body("one", boot="another"))
    assert elsewhere.status_code == 409
    # One node, one token: the first one is worth nothing now.
    beat = {"protocol": 1, "boot": "boot of one"}
    assert nobody.post(first["token"], "/agent/heartbeat", beat).status_code == 401
    assert nobody.post(again["token"], "/agent/heartbeat", beat).status_code == 200


def test_one_use_is_one_node_however_many_try_at_once(farm: Server) -> None:
    once = join_token(farm, uses=1)
    codes: list[int] = []
    spare = Machine(farm, "zeta")

    def join(name: str) -> None:
        codes.append(spare.post(once, "/agent/register", body(name)).status_code)

    callers = [threading.Thread(target=join, args=[f"n{i}"]) for i in range(8)]
    for each in callers:
        each.start()
    for each in callers:
        each.join(20)
    assert sorted(codes) == [200] + [409] * 7


def test_a_node_speaks_only_for_itself(farm: Server) -> None:
    alpha, beta = Machine(farm, "alpha"), Machine(farm, "beta")
    assert alpha.post(alpha.token, "/agent/register", body("beta")).status_code == 403
    asked = run(farm, gpu=2)
    orders = alpha.beat()["orders"] + beta.beat()["orders"]
    (order,) = orders
    other = beta if order["nodes"] == ["alpha"] else alpha
    other.tell(order, "ended", exit_code=0, cause="exited")
    assert request_of(farm, asked["id"])["status"] == "allocated"
    kinds = [each["kind"] for each in _events(farm)]
    assert kinds.count("stale_report") == 1


STALE: dict[str, dict[str, Any]] = {
    "an attempt that is over or not yet": {"attempt": 2},
    "an allocation that nobody has": {"allocation": "nothing.1"},
    "a task that it has not": {"task": 7},
}


@pytest.mark.parametrize("what", STALE)
def test_a_report_that_does_not_fit_changes_nothing_and_is_acknowledged(
    farm: Server, what: str
) -> None:
    alpha = Machine(farm)
    asked = run(farm)
    (order,) = alpha.beat()["orders"]
    alpha.tell(order | STALE[what], "ended", exit_code=1, cause="exited")
    assert request_of(farm, asked["id"])["status"] == "allocated"


def test_an_end_that_is_told_twice_ends_once(farm: Server) -> None:
    alpha = Machine(farm)
    asked = run(farm)
    (order,) = alpha.beat()["orders"]
    alpha.tell(order, "started")
    alpha.tell(order, "ended", exit_code=0, cause="exited")
    alpha.tell(order, "ended", exit_code=3, cause="exited")
    assert request_of(farm, asked["id"])["status"] == "released"


def test_who_has_seen_later_commits_gets_no_orders(farm: Server) -> None:
    alpha = Machine(farm)
    run(farm)
    for later in ({"index": 10**9}, {"epoch": 10**6}):
        refused = alpha.call(**later)
        assert refused.status_code == 409
        assert refused.json()["type"].endswith("rollback_detected")


def test_another_protocol_is_refused_with_both_numbers(farm: Server) -> None:
    alpha = Machine(farm)
    for path, token in (("/agent/register", join_token(farm)), ("/agent/heartbeat", alpha.token)):
        refused = alpha.post(token, path, {"protocol": 2, "something": "new"})
        assert refused.status_code == 422 and refused.json()["field"] == "protocol"
        assert "protocol 1 and the agent 2" in refused.json()["detail"]


def test_another_boot_must_register_first(farm: Server) -> None:
    alpha = Machine(farm)
    refused = alpha.call(boot="another")
    assert refused.status_code == 409 and refused.json()["type"].endswith("node_conflict")


def test_a_deleted_node_is_heard_no_more(farm: Server) -> None:
    alpha = Machine(farm)
    assert farm["operator"].delete(f"{API}/nodes/alpha").status_code == 204
    assert alpha.call().status_code == 401
    assert made(farm["viewer"].get(f"{API}/nodes"))["items"] == []


def test_a_storm_of_calls_takes_nothing_from_heartbeats(farm: Server) -> None:
    alpha = Machine(farm)
    limiter = farm.app.state.cede.limiter
    token_id = next(each.id for each in farm.store.list_tokens().items if each.name == "node alpha")
    limiter._buckets[f"all:{token_id}"] = type(next(iter(limiter._buckets.values())))(-1e9, 0)
    alpha.beat()


# Operators ------------------------------------------------------------------------------------


def test_nodes_are_shown_drained_disabled_and_brought_back(farm: Server) -> None:
    alpha = Machine(farm)
    run(farm, gpu=1)
    operator = farm["operator"]
    shown = made(farm["viewer"].get(f"{API}/nodes/alpha"))
    assert shown["held"] == {"gpu": 1} and shown["free"] == {"gpu": 1}
    assert shown["pool"] == "farm" and len(shown["allocations"]) == 1
    path = f"{API}/nodes/alpha"
    draining = made(operator.post(f"{path}/drain", json={"reason": "a fan"}))
    assert draining["state"] == "draining" and draining["reason"] == "a fan"
    assert operator.post(f"{path}/undrain").status_code == 409
    assert operator.delete(path).status_code == 409
    (order,) = alpha.beat()["orders"]
    alpha.tell(order, "started")
    alpha.tell(order, "ended", exit_code=0, cause="exited")
    assert made(farm["viewer"].get(path))["state"] == "drained"
    assert made(operator.post(f"{path}/undrain"))["state"] == "ready"
    assert made(operator.post(f"{path}/disable"))["state"] == "down"
    assert made(operator.post(f"{path}/enable"))["state"] == "ready"
    done = [each["action"] for each in made(farm["admin"].get(f"{API}/audit"))["items"]]
    for action in ("register", "drain", "undrain", "disable", "enable"):
        assert f"node.{action}" in done


def test_a_tenant_sees_nodes_and_not_who_else_is_on_them(farm: Server) -> None:
    Machine(farm)
    run(farm, "red")
    run(farm, "blue")
    shown = made(farm["red"].get(f"{API}/nodes"))["items"][0]
    assert shown["held"] == {"gpu": 2}
    assert [each["subject"] for each in shown["allocations"]] == ["team:red"]


def test_a_pool_of_nodes_has_what_its_nodes_have(farm: Server) -> None:
    Machine(farm, "alpha", 2), Machine(farm, "beta", 3)
    pool = made(farm["viewer"].get(f"{API}/pools/farm"))
    assert pool["capacity"] == {"gpu": 5} and pool["nodes"] == {"zone": "a"}
    refused = farm["operator"].patch(f"{API}/pools/farm", json={"capacity": {"gpu": 9}})
    assert refused.status_code == 422 and refused.json()["field"] == "capacity"


# Logs -----------------------------------------------------------------------------------------


class Reader(threading.Thread):
    """Somebody who reads a log while its agent answers."""

    def __init__(self, server: Server, path: str, who: str = "red") -> None:
        super().__init__()
        self.server, self.path, self.who = server, path, who
        self.start()

    def run(self) -> None:
        self.response = self.server[self.who].get(API + self.path)

    def result(self) -> Any:
        self.join(30)
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


# Tasks ----------------------------------------------------------------------------------------


def test_a_gang_is_on_several_nodes_or_nowhere(farm: Server) -> None:
    alpha, beta = Machine(farm, "alpha", 2), Machine(farm, "beta", 2)
    asked = run(farm, gpu=1, tasks=2, per_node=1)
    assert asked["status"] == "allocated" and asked["resources"]["gpu"] == 2
    assert {each["node"] for each in asked["allocation"]["members"]} == {"alpha", "beta"}
    orders = alpha.beat()["orders"] + beta.beat()["orders"]
    assert sorted(each["task"] for each in orders) == [0, 1]
    assert all(len(each["nodes"]) == 2 for each in orders)


def test_independent_tasks_are_submitted_and_cancelled_together(farm: Server) -> None:
    Machine(farm, "alpha", 2)
    first = run(farm, gpu=1, tasks=3, gang=False)
    assert len(first["parts"]) == 3 and first["parts"][0] == first["id"] == first["part_of"]
    path = f"{API}/requests?part_of={first['id']}"
    shown = made(farm["red"].get(path))["items"]
    assert sorted(each["status"] for each in shown) == ["allocated", "allocated", "queued"]
    assert all(each["work"] is None and each["command"] == "sleep 1" for each in shown)
    made(farm["red"].post(f"{API}/requests/{first['id']}/cancel"))
    after = made(farm["red"].get(path))["items"]
    assert sorted(each["status"] for each in after) == ["cancelled", "preempting", "preempting"]


def test_what_is_run_is_shown_to_who_may_see_it(farm: Server) -> None:
    Machine(farm)
    asked = run(farm, work={"argv": ["train"], "env": {"SECRET": "swordfish"}})
    path = f"{API}/requests/{asked['id']}"
    assert made(farm["red"].get(path))["work"]["env"] == {"SECRET": "swordfish"}
    assert farm["blue"].get(path).status_code == 404
    for other in ("/requests", "/events", "/nodes", "/audit", "/snapshot"):
        for who in ("blue", "admin"):
            assert "swordfish" not in farm[who].get(API + other).text, (other, who)


def test_only_agents_say_how_their_work_is(farm: Server) -> None:
    alpha = Machine(farm)
    asked = run(farm)
    path = f"{API}/requests/{asked['id']}"
    before = farm.writer.index
    renewed = made(farm["red"].post(f"{path}/renew", json={"attempt": 1, "running": True}))
    assert renewed["allocation"]["state"] == "granted" and farm.writer.index == before
    for verb, given in (("said", {"kind": "progress"}), ("release", {"outcome": "done"})):
        refused = farm["red"].post(f"{path}/{verb}", json=given)
        assert refused.json()["type"].endswith("agents_work"), refused.text
    assert [each["do"] for each in alpha.beat()["orders"]] == ["run"]


def test_a_renewal_waits_for_news_and_gets_them_at_once(server: Server) -> None:
    server.pool("gpus", 2)
    server.policy("red", priority=1)
    server.policy("blue", priority=5, reserved={"gpu": 2})
    mine = server.submit("red", 2)
    path = f"{API}/requests/{mine['id']}/renew"
    answers: list[tuple[float, dict[str, Any]]] = []

    def wait() -> None:
        began = time.monotonic()
        answer = made(server["red"].post(path, json={"attempt": 1, "running": True, "wait": 10}))
        answers.append((time.monotonic() - began, answer))

    caller = threading.Thread(target=wait)
    caller.start()
    while not server.writer.desk._waiting:
        time.sleep(0.01)
    server.submit("blue", 2)
    caller.join(20)
    (took, answer), *_ = answers
    assert took < 9 and answer["status"] == "preempting"


def test_client_held_work_converses(server: Server) -> None:
    server.pool("gpus", 2)
    server.policy("red", priority=1)
    server.policy("blue", priority=5, reserved={"gpu": 2})
    mine = server.submit("red", 2, checkpoint="auto", checkpoint_timeout=60, kind="work")
    path = f"{API}/requests/{mine['id']}"
    made(server["red"].post(f"{path}/renew", json={"attempt": 1, "running": True}))
    server.submit("blue", 2)
    told = made(server["red"].post(f"{path}/renew", json={"attempt": 1}))
    parting = told["allocation"]["parting"]
    assert told["status"] == "preempting" and 50 < parting["seconds_left"] <= 60
    later = {"attempt": 1, "kind": "deferral", "seconds": 30}
    longer = made(server["red"].post(f"{path}/said", json=later))["allocation"]["parting"]
    assert longer["deferred"] == 30 and longer["seconds_left"] > 80
    older = {"attempt": 1, "kind": "saved", "checkpoint": "c0", "size": 7}
    saved = made(server["red"].post(f"{path}/said", json=older))
    assert saved["saved"]["id"] == "c0" and saved["allocation"]["state"] == "checkpointing"
    kept = older | {"checkpoint": "c1", "hint": parting["hint"]}
    saved = made(server["red"].post(f"{path}/said", json=kept))
    assert saved["saved"]["id"] == "c1" and saved["allocation"]["parting"]["saved"]
    assert saved["allocation"]["state"] == "stopping"
    stale = server["red"].post(f"{path}/said", json=kept | {"attempt": 2})
    assert stale.status_code == 409
    stopped = {"attempt": 1, "outcome": "stopped"}
    assert made(server["red"].post(f"{path}/release", json=stopped))["status"] == "suspended"


def _events(server: Server) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = made(server["admin"].get(f"{API}/events?limit=500"))["items"]
    return items
