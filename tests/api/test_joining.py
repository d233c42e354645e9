"""A machine becomes a node by a token, once, and stays the only one that may speak for it."""

from __future__ import annotations

import threading

from tests.api.conftest import PATIENCE, Server, made
from tests.api.machines import API, Machine, body, join_token


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
        each.join(PATIENCE)
    assert sorted(codes) == [200] + [409] * 7


def test_another_boot_must_register_first(farm: Server) -> None:
    alpha = Machine(farm)
    refused = alpha.call(boot="another")
    assert refused.status_code == 409 and refused.json()["type"].endswith("node_conflict")


def test_a_deleted_node_is_heard_no_more(farm: Server) -> None:
    alpha = Machine(farm)
    assert farm["operator"].delete(f"{API}/nodes/alpha").status_code == 204
    assert alpha.call().status_code == 401
    assert made(farm["viewer"].get(f"{API}/nodes"))["items"] == []
