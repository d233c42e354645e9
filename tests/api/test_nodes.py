"""Operators look after nodes; tenants see them, and not each other."""

from __future__ import annotations

from tests.api.conftest import Server, made
from tests.api.machines import API, Machine, run


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
    assert made(operator.post(f"{path}/undrain"))["state"] == "ready"
    made(operator.post(f"{path}/drain", json={"reason": "a fan"}))
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


def test_a_pool_is_given_other_nodes_that_hold_nothing(farm: Server) -> None:
    alpha = Machine(farm)
    Machine(farm, "beta", labels={"zone": "a", "rack": "7"})
    held = run(farm, gpu=2)  # on alpha, the first by name
    pool, other = f"{API}/pools/farm", {"zone": "a", "rack": "7"}
    refused = farm["operator"].patch(pool, json={"nodes": other})
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:cede:problem:in_use")
    assert "alpha" in refused.json()["detail"] and "cede node drain" in refused.json()["detail"]
    (order,) = alpha.beat()["orders"]
    alpha.tell(order, "ended", exit_code=0, cause="exited")
    assert made(farm["viewer"].get(f"{API}/requests/{held['id']}"))["status"] == "released"
    shown = made(farm["operator"].patch(pool, json={"nodes": other}))
    assert (shown["nodes"], shown["capacity"]) == (other, {"gpu": 2})
    pools = {
        each["name"]: each["pool"] for each in made(farm["viewer"].get(f"{API}/nodes"))["items"]
    }
    assert pools == {"alpha": None, "beta": "farm"}
    noted = made(farm["admin"].get(f"{API}/audit"))["items"][0]
    assert (noted["action"], noted["detail"]) == ("pool.update", {"nodes": other})
    assert farm["red"].patch(pool, json={"nodes": other}).status_code == 403
