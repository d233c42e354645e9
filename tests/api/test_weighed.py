"""Whoever is stopped where price decides can read whom the engine weighed."""

from __future__ import annotations

from tests.api.conftest import Server, made

API = "/api/v1"


def test_a_stopped_one_reads_what_others_would_have_cost(server: Server) -> None:
    server.pool("gpus", 4, settings={"price": "checkpoint", "grace": 0})
    server.policy("red", reserved={"gpu": 1})
    server.policy("blue", reserved={"gpu": 2})
    in_share, dear, cheap = (server.submit("red") for _ in range(3))
    mine = server.submit("blue")
    taker = server.submit("blue")
    events = made(server["viewer"].get(f"{API}/events?request_id={cheap['id']}"))["items"]
    (stop,) = [each for each in events if each["kind"] == "preempting"]
    weighed = {each["request"]: each["why_not"] for each in stop["data"]["weighed"]}
    assert stop["data"]["reason"]["beneficiary"] == taker["id"]
    assert weighed == {
        cheap["id"]: None,
        dear["id"]: "not_needed",
        in_share["id"]: "standing",
        mine["id"]: "own_policy",
    }
    assert all(each["price"] >= 0 for each in stop["data"]["weighed"])
    why = made(server["viewer"].get(f"{API}/requests/{cheap['id']}/why"))
    assert why["weighed"] == stop["data"]["weighed"]
    # To its own team the others of it have names.
    told = made(server["red"].get(f"{API}/requests/{cheap['id']}/why"))["weighed"]
    names = {each["request"] for each in told}
    assert names == {cheap["id"], dear["id"], in_share["id"], "another team"}
    assert "weighed" not in made(server["red"].get(f"{API}/requests/{dear['id']}/why"))
