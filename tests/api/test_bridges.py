"""What a bridge says of its nodes, and what it is believed."""

from __future__ import annotations

from typing import Any

import pytest

from cede.store import node_rows
from tests.api.conftest import Server, made
from tests.api.machines import ZONE, Machine, events_of, join_token, request_of, run
from tests.api.test_metrics import scrape


class Standing(Machine):
    """A bridge with its nodes, as the server knows it."""

    def __init__(self, server: Server, name: str = "slurm", nodes: tuple[str, ...] = ("n1", "n2")):
        self.server, self.boot = server, "mark"
        self.said = {
            "protocol": 3,
            "name": name,
            "boot": self.boot,
            "machine": "mark",
            "session": "first",
            "nodes": [{"name": each, "amounts": {"gpu": 4}, "labels": ZONE} for each in nodes],
        }
        answer = made(self.register(join_token(server, uses=1)))
        self.token = answer["token"]
        self.epoch, self.index, self.seen = 0, 0, 0

    def register(self, token: str, **more: Any) -> Any:
        return self.post(token, "/bridge/register", self.said | more)

    def beat(self, *reports: dict[str, Any], **more: Any) -> dict[str, Any]:
        return super().beat(*reports, **{"protocol": 3, "session": "first", **more})

    def call(self, *reports: dict[str, Any], **more: Any) -> Any:
        return super().call(*reports, **{"protocol": 3, "session": "first", **more})


def node(server: Server, name: str) -> dict[str, Any]:
    return made(server["admin"].get(f"/api/v1/nodes/{name}"))


def test_one_heartbeat_brings_the_orders_of_all_nodes(farm: Server) -> None:
    bridge = Standing(farm)
    first, second = run(farm, gpu=4), run(farm, gpu=4)
    orders = bridge.beat()["orders"]
    assert {each["request"] for each in orders} == {first["id"], second["id"]}
    assert {tuple(each["nodes"]) for each in orders} == {("n1",), ("n2",)}
    assert all(each["on_silence"] == "keep" and each["devices"] == {} for each in orders)
    for order in orders:
        bridge.tell(order, "started", devices={"gpu": ["0", "1", "2", "3"]})
    (member,) = request_of(farm, first["id"])["allocation"]["members"]
    assert member["devices"] == {"gpu": ["0", "1", "2", "3"]}
    bridge.tell(orders[0], "ended", exit_code=0, cause="exited")
    assert [each["request"] for each in bridge.beat()["orders"]] == [orders[1]["request"]]


def test_what_others_hold_is_not_free_and_named(farm: Server) -> None:
    bridge = Standing(farm)
    taken = [{"node": "n1", "others": {"gpu": 3}, "why": "job 812 of ann"}]
    assert bridge.beat(others=taken)["heard"] is True
    found = node(farm, "n1")
    assert (found["bridge"], found["free"], found["others"]) == ("slurm", {"gpu": 1}, {"gpu": 3})
    assert found["others_why"] == "job 812 of ann"
    gang = run(farm, gpu=4, tasks=2, gang=True)
    assert gang["status"] == "queued"
    why = made(farm["red"].get(f"/api/v1/requests/{gang['id']}/why"))["reason"]
    assert why["code"] == "held_outside" and "n1 (job 812 of ann)" in why["text"]
    bridge.beat(others=[{"node": "n1", "others": {}}])
    assert request_of(farm, gang["id"])["status"] == "allocated"


def test_a_bridge_speaks_only_for_its_own_nodes(farm: Server) -> None:
    """C8: neither for an agent's node nor for another bridge's, nor either of them for its own."""
    alpha = Machine(farm)
    bridge, other = Standing(farm), Standing(farm, "other", ("m1",))
    asked = run(farm, gpu=2, node_labels=ZONE)
    order = next(each for each in alpha.beat()["orders"] if each["request"] == asked["id"])
    bridge.tell(order, "ended", exit_code=0, cause="exited")
    assert request_of(farm, asked["id"])["status"] == "allocated"
    bridge.beat(others=[{"node": "m1", "others": {"gpu": 4}}])
    assert node(farm, "m1")["others"] == {}
    refused = bridge.register(bridge.token, name="other")
    assert refused.status_code == 403
    assert alpha.post(alpha.token, "/bridge/register", bridge.said).status_code == 403
    assert bridge.post(bridge.token, "/agent/register", alpha.said).status_code == 403
    stolen = other.register(other.token, nodes=[{"name": "n1", "amounts": {"gpu": 4}}])
    assert stolen.status_code == 409 and "bridge slurm speaks for node n1" in stolen.text
    assert node(farm, "n1")["bridge"] == "slurm"


def test_a_node_that_its_cluster_has_no_more_takes_no_work(farm: Server) -> None:
    bridge = Standing(farm)
    made(bridge.register(bridge.token, nodes=bridge.said["nodes"][:1]))
    assert "no such node" in node(farm, "n2")["others_why"]
    assert node(farm, "n2")["free"] == {"gpu": 0}
    assert bridge.beat()["version"] > 0


def test_devices_that_somebody_has_are_noted_and_not_recorded(farm: Server) -> None:
    bridge = Standing(farm, nodes=("n1",))
    run(farm, gpu=2), run(farm, gpu=2)
    first, second = bridge.beat()["orders"]
    bridge.tell(first, "started", devices={"gpu": ["0", "1"]})
    bridge.tell(second, "started", devices={"gpu": ["1", "2"]})
    (member,) = request_of(farm, second["request"])["allocation"]["members"]
    assert member["devices"] == {} and member["phase"] == "started"
    assert "device_conflict" in [each["kind"] for each in events_of(farm)]


def test_a_used_join_token_makes_one_bridge_also_when_its_answer_was_lost(farm: Server) -> None:
    bridge = Standing(farm)
    token = join_token(farm, uses=1)
    assert bridge.register(token).status_code == 200
    assert bridge.register(token).status_code == 200
    bridge.said["name"] = "third"
    assert bridge.register(token).status_code == 409


def test_metrics_tell_a_bridges_nodes_what_others_hold_and_its_silence(farm: Server) -> None:
    Machine(farm)  # no bridge speaks for it
    bridge = Standing(farm)
    Standing(farm, "other", ("m1",))
    taken = [
        {"node": "n1", "others": {"gpu": 3}, "why": "job 812 of ann"},
        {"node": "n2", "others": {"gpu": 1}, "why": "job 813 of ann"},
    ]
    bridge.beat(others=taken)
    found = scrape(farm)
    assert found["cede_bridge_nodes", ("slurm", "ready")] == 2
    assert found["cede_bridge_nodes", ("other", "ready")] == 1
    assert found["cede_bridge_others", ("slurm", "gpu")] == 4
    assert ("cede_bridge_others", ("other", "gpu")) not in found
    silent = [found["cede_bridge_silent_seconds", (name,)] for name in ("slurm", "other")]
    assert 0 <= silent[0] < silent[1] < 60  # the other one has not called since


def test_a_scrape_reads_no_row_of_a_node(farm: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    Standing(farm, nodes=tuple(f"n{number}" for number in range(50)))

    def read(_: object) -> None:
        raise AssertionError("a row of a node was read")

    monkeypatch.setattr(node_rows, "node_from", read)
    assert scrape(farm)["cede_bridge_nodes", ("slurm", "ready")] == 50
