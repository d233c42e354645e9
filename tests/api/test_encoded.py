"""Requests of lists are made into JSON once, and again as soon as anything in it is another."""

from __future__ import annotations

from dataclasses import replace

import orjson

from cede.model.allocation import Member
from cede.model.lifecycle import RequestStatus
from cede.model.stopping import StopProgress
from cede.server.api import encoded
from cede.server.api.encoded import Encoded
from cede.server.api.views import Scene, request_out
from cede.store import RequestView
from tests.api.conftest import Server, made
from tests.store.samples import allocation, request

API = "/api/v1"
SCENE = Scene(str.upper, str.upper, 1_000)


def held(**more: object) -> RequestView:
    return RequestView(
        request(status=RequestStatus.ALLOCATED),
        allocation(members=(Member(0, "alpha"),), **more),
    )


def test_the_text_of_a_view_is_made_once() -> None:
    texts, view = Encoded(), held()
    first = texts.of(view, SCENE)
    assert texts.of(view, SCENE) is first
    assert orjson.dumps(first) == orjson.dumps(request_out(*view, SCENE, whole=False))


def test_another_view_or_name_of_a_node_makes_another_text() -> None:
    texts, view = Encoded(), held()
    first = texts.of(view, SCENE)
    released = view._replace(request=replace(view.request, status=RequestStatus.RELEASED))
    assert b'"released"' in orjson.dumps(texts.of(released, SCENE))
    assert texts.of(view, SCENE) is not first
    elsewhere = SCENE._replace(node=lambda node_id: "beta")
    assert b'"beta"' in orjson.dumps(texts.of(view, elsewhere))


def test_what_counts_seconds_is_made_each_time() -> None:
    texts, view = Encoded(), held(stop_progress=StopProgress(1, 0, until=9_000))
    early, late = (orjson.dumps(texts.of(view, SCENE._replace(now=now))) for now in (0, 4_000))
    assert b'"seconds_left":9' in early and b'"seconds_left":5' in late


def test_a_bounded_number_is_kept() -> None:
    texts = Encoded()
    for number in range(encoded.KEPT_MAX + 1):
        texts.of(RequestView(request(f"request-{number}"), None), SCENE)
    assert len(texts._known) <= encoded.KEPT_MAX


def test_a_list_that_is_read_again_shows_what_changed(any_server: Server) -> None:
    server = any_server
    server.pool("gpus", 4)
    server.policy("red")
    ids = [server.submit("red")["id"] for _ in range(3)]
    before = made(server["operator"].get(f"{API}/requests"))["items"]
    made(server["red"].post(f"{API}/requests/{ids[1]}/release"))
    after = made(server["operator"].get(f"{API}/requests"))["items"]
    assert [each["status"] for each in before] == ["allocated"] * 3
    assert [each["status"] for each in after] == ["allocated", "released", "allocated"]
    assert (before[0], before[2]) == (after[0], after[2])
