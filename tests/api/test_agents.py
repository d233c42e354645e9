"""What machines are told to do, and what they are believed."""

from __future__ import annotations

from typing import Any

import pytest

from cede.model import bounds
from tests.api.conftest import Server, made
from tests.api.machines import (
    API,
    Machine,
    body,
    events_of,
    join_token,
    pool_of_nodes,
    request_of,
    run,
)


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


def test_a_node_speaks_only_for_itself(farm: Server) -> None:
    alpha, beta = Machine(farm, "alpha"), Machine(farm, "beta")
    assert alpha.post(alpha.token, "/agent/register", body("beta")).status_code == 403
    asked = run(farm, gpu=2)
    orders = alpha.beat()["orders"] + beta.beat()["orders"]
    (order,) = orders
    other = beta if order["nodes"] == ["alpha"] else alpha
    other.tell(order, "ended", exit_code=0, cause="exited")
    assert request_of(farm, asked["id"])["status"] == "allocated"
    kinds = [each["kind"] for each in events_of(farm)]
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
        refused = alpha.post(token, path, {"protocol": 4, "something": "new"})
        assert refused.status_code == 422 and refused.json()["field"] == "protocol"
        assert "protocols 1 to 3 and the agent 4" in refused.json()["detail"]


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


def test_an_agent_learns_which_requests_have_ended(farm: Server) -> None:
    """What still waits, and what this server does not know, is not said to have."""
    alpha = Machine(farm)
    done, cancelled, runs, waits = (run(farm, gpu=2)["id"] for _ in range(4))
    made(farm["red"].post(f"{API}/requests/{cancelled}/cancel"))
    (order,) = alpha.beat()["orders"]
    alpha.tell(order, "ended", exit_code=0, cause="exited")
    asked = [done, cancelled, runs, waits, "another-servers"]
    assert set(alpha.beat(saved=asked)["over"]) == {done, cancelled}
    assert alpha.beat()["over"] == []
    assert alpha.call(saved=["x"] * (bounds.SAVED_ASKED_MAX + 1)).status_code == 422
