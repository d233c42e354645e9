"""A second agent of a node is refused with a reason, leaves an event, and is given nothing."""

from __future__ import annotations

from typing import Any

import httpx2

from tests.api.conftest import Server, made
from tests.api.machines import Machine, body, events_of, join_token, run


def agent(name: str, folder: str) -> dict[str, Any]:
    """What an agent of the present protocol says of itself."""
    return {"protocol": 3, "session": f"session of {folder}", "machine": f"{name} {folder}"}


def beat(machine: Machine, **more: Any) -> httpx2.Response:
    return machine.call(**{"protocol": 3, "session": machine.said["session"]} | more)


def is_second(answer: httpx2.Response) -> bool:
    return answer.status_code == 409 and answer.json()["type"].endswith("second_agent")


def test_another_data_folder_on_the_same_boot(farm: Server) -> None:
    alpha = Machine(farm, **agent("alpha", "a"))
    asked = run(farm)
    other = alpha.said | agent("alpha", "b")
    for _ in range(3):
        refused = alpha.post(join_token(farm), "/agent/register", other)
        assert is_second(refused) and "another agent speaks for node" in refused.json()["detail"]
    noted = [each for each in events_of(farm) if each["kind"] == "node_refused"]
    assert len(noted) == 1 and noted[0]["data"]["node"] == "alpha"
    # The first one goes on, with its token and its orders.
    orders = made(beat(alpha))["orders"]
    assert [each["request"] for each in orders] == [asked["id"]]


def test_a_copy_of_the_data_folder(farm: Server) -> None:
    alpha = Machine(farm, **agent("alpha", "a"))
    copy = alpha.said | {"session": "of the copy", "machine": "elsewhere", "boot": "another"}
    refused = alpha.post(alpha.token, "/agent/register", copy | {"previous": "session of a"})
    assert is_second(refused)
    assert is_second(beat(alpha, session="of the copy"))
    assert is_second(beat(alpha, session=""))
    assert beat(alpha).status_code == 200


def test_a_restart_goes_on_and_its_predecessor_is_heard_no_more(farm: Server) -> None:
    alpha = Machine(farm, **agent("alpha", "a"))
    before = alpha.said["session"]
    started = alpha.register(alpha.token, session="after the restart", previous=before)
    assert made(started)["node"] == alpha.id
    assert is_second(beat(alpha))
    assert beat(alpha, session="after the restart").status_code == 200
    # The answer was lost, and the next process asks for the same session again.
    lost = alpha.register(alpha.token, session="after the restart", previous=before)
    assert made(lost)["node"] == alpha.id


def test_a_report_of_a_replaced_session_changes_nothing(farm: Server) -> None:
    alpha = Machine(farm, **agent("alpha", "a"))
    run(farm)
    order = made(beat(alpha))["orders"][0]
    made(alpha.register(alpha.token, session="s2", previous=alpha.said["session"]))
    ended = {"id": "e", "allocation": order["allocation"], "attempt": 1, "kind": "ended"}
    assert is_second(beat(alpha, reports=[ended]))
    assert made(beat(alpha, session="s2"))["orders"] == [order]


def test_a_joining_whose_answer_was_lost_is_repeated(farm: Server) -> None:
    once = join_token(farm, uses=1)
    alpha = Machine(farm, "zeta")
    said = body("one") | agent("one", "a")
    first = made(alpha.post(once, "/agent/register", said))
    assert made(alpha.post(once, "/agent/register", said))["node"] == first["node"]
    assert is_second(alpha.post(join_token(farm), "/agent/register", said | agent("one", "b")))


def test_a_deleted_node_is_free_for_another_machine(farm: Server) -> None:
    alpha = Machine(farm, **agent("alpha", "a"))
    other = alpha.said | agent("alpha", "b") | {"boot": "another"}
    assert is_second(alpha.post(join_token(farm), "/agent/register", other))
    assert farm["operator"].delete("/api/v1/nodes/alpha").status_code == 204
    assert made(alpha.post(join_token(farm), "/agent/register", other))["node"] != alpha.id


def test_an_agent_of_this_protocol_has_a_session(farm: Server) -> None:
    refused = Machine(farm).post(join_token(farm), "/agent/register", body("x", protocol=3))
    assert refused.status_code == 422 and refused.json()["field"] == "session"
