"""C4: nothing that one tenant is shown has another tenant's names in it."""

from __future__ import annotations

from typing import Any

from tests.api.conftest import Server, made

API = "/api/v1"
SECRET_LABEL = "operation-moonshine"


def contested(server: Server) -> dict[str, dict[str, Any]]:
    """Red borrows all, blue takes its share back, red waits again and blue waits for more."""
    server.pool("gpus", 8)
    server.policy("red", reserved={"gpu": 4}, priority=5, name="red-policy")
    server.policy("blue", reserved={"gpu": 4}, priority=10, name="blue-policy")
    victim = server.submit("red", 8, retry={"max_retries": 3}, labels={"job": "reds-own"})
    preemptor = server.submit("blue", 4, labels={"job": SECRET_LABEL})
    path = f"{API}/requests/{victim['id']}"
    made(server["red"].post(path + "/renew", json={"attempt": 1}))
    stopped = made(server["red"].post(path + "/release", json={"outcome": "stopped"}))
    more = server.submit("blue", 4, labels={"job": SECRET_LABEL}, preemptible=True)
    return {"victim": stopped, "taker": preemptor, "more": more}


def everything_red_can_read(server: Server, of: dict[str, dict[str, Any]]) -> list[str]:
    client = server["red"]
    victim = of["victim"]["id"]
    paths = [
        "/requests",
        "/requests?explain=true",
        "/requests?component=blue",
        f"/requests/{victim}",
        f"/requests/{victim}/why",
        "/events?after=0",
        "/policies",
        "/policies?component=blue",
        "/pools",
        "/pools/gpus",
        "/pools/gpus/requests",
        "/pools/gpus/requests?view=active&explain=true",
        "/usage",
        "/usage?by=policy",
        "/usage?by=tenant",
        "/whoami",
    ]
    found = []
    for path in paths:
        response = client.get(API + path)
        assert response.status_code == 200, path
        found.append(response.text)
    renewed = client.post(f"{API}/requests/{victim}/renew")
    found.append(renewed.text)
    return found


def test_a_tenant_reads_nothing_of_another(server: Server) -> None:
    of = contested(server)
    foreign = ["blue", SECRET_LABEL, of["taker"]["id"], of["more"]["id"]]
    for text in everything_red_can_read(server, of):
        for name in foreign:
            assert name not in text, text
    shown = made(server["red"].get(f"{API}/requests/{of['victim']['id']}/why"))
    assert "another team" in str(shown), "there was nothing to hide: the test shows nothing"
    assert "reds-own" in str(shown)
    # Who may see everybody still does.
    assert "blue-policy" in server["viewer"].get(f"{API}/requests/{of['victim']['id']}/why").text


def test_a_tenant_is_told_of_its_own_by_their_ids(server: Server) -> None:
    server.pool("gpus", 2)
    server.policy("red", reserved={"gpu": 2})
    held, waits = server.submit("red", 2), server.submit("red", 1)
    listed = made(server["red"].get(f"{API}/requests?explain=true"))["items"]
    queued = made(server["red"].get(f"{API}/pools/gpus/queue?limit=5"))["items"]
    alone = made(server["red"].get(f"{API}/requests/{waits['id']}"))
    for shown in (*listed, *(each["request"] for each in queued), alone):
        if shown["id"] == waits["id"]:
            reason = shown["reason"]["text"]
            assert held["id"] in reason and "another team" not in reason
    assert len(queued) == 1


def test_foreign_and_unknown_are_the_same(server: Server) -> None:
    of = contested(server)
    foreign = of["taker"]["id"]
    unknown = foreign[:-6] + "000000"
    for method, end in (
        ("GET", ""),
        ("GET", "/why"),
        ("DELETE", ""),
        ("POST", "/renew"),
        ("POST", "/release"),
        ("POST", "/cancel"),
    ):
        answers = [
            server["red"].request(method, f"{API}/requests/{each}{end}")
            for each in (foreign, unknown)
        ]
        assert [each.status_code for each in answers] == [404, 404], (method, end)
        bodies = [
            each.text.replace(ref, "ID")
            for each, ref in zip(answers, (foreign, unknown), strict=True)
        ]
        assert bodies[0] == bodies[1]
    # The start of a foreign id is no oracle either.
    assert server["red"].get(f"{API}/requests/{foreign[:20]}").status_code in (200, 404)
    assert foreign not in server["red"].get(f"{API}/requests/{foreign[:13]}").text
    assert server["red"].get(f"{API}/events?request_id={foreign}").status_code == 404


def test_a_submitter_cannot_ask_for_another(server: Server) -> None:
    contested(server)
    body = {"component": "blue", "component_type": "team"}
    response = server["red"].post(f"{API}/requests", json=body)
    assert (response.status_code, response.json()["field"]) == (403, "component")
    # Without a type, a name means the subject of the token that has it.
    assert made(server["red"].post(f"{API}/requests", json={"component": "red"}))["tracked"]
    # Any other means an orchestrator. One without a policy may be anybody's: nothing is counted.
    assert not made(server["red"].post(f"{API}/requests", json={"component": "blue"}))["tracked"]


def test_a_bound_viewer_sees_its_own_only(server: Server) -> None:
    of = contested(server)
    client = server["red-viewer"]
    ids = {each["id"] for each in made(client.get(f"{API}/requests"))["items"]}
    assert ids == {of["victim"]["id"]}
    assert client.get("/metrics").status_code == 403
    assert client.post(f"{API}/requests", json={}).status_code == 403
