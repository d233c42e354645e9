"""`GET /pools/{pool}/queue`: the order, and parts of it with the requests."""

from __future__ import annotations

from cede.server.api.status import QueueOut
from tests.api.conftest import Server, made

API = "/api/v1"


def test_a_part_of_the_queue_has_its_requests_and_their_reasons(any_server: Server) -> None:
    server = any_server
    server.pool("gpus", 4)
    server.policy("red", reserved={"gpu": 2}, priority=1)
    server.policy("blue", priority=10)
    server.submit("red", 2)
    server.submit("blue", 2)
    for who in ("red", "blue", "red"):
        server.submit(who, 2)
    order = made(server["viewer"].get(f"{API}/pools/gpus/queue"))["items"]
    assert [each["place"] for each in order] == [1, 2, 3]
    part = made(server["viewer"].get(f"{API}/pools/gpus/queue?offset=1&limit=1"))
    QueueOut.model_validate(part)
    assert part["length"] == 3
    (only,) = part["items"]
    assert (only["place"], only["id"]) == (2, order[1]["id"])
    assert only["request"]["id"] == only["id"] and only["request"]["reason"]["text"]
    # A team keeps its places in the whole queue, and a bound token sees its own only.
    asked = f"{API}/pools/gpus/queue?limit=10"
    reds = made(server["viewer"].get(f"{asked}&component=red"))
    assert {each["request"]["component"] for each in reds["items"]} == {"red"}
    mine = made(server["red"].get(asked))
    assert [each["id"] for each in mine["items"]] == [each["id"] for each in reds["items"]]
    assert mine["length"] == reds["length"] == 2
    assert made(server["blue"].get(f"{asked}&component=red")) == {"items": [], "length": 0}
