"""`cede status`, `cede top` and `cede` alone, at a terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cede import Client
from cede.model.ids import short_id
from tests.cli.terminal import CTRL_C, Shown, Typing, typed
from tests.client.serving import Serving

pytestmark = pytest.mark.system

WORK = {"component_type": "team", "kind": "work"}


@pytest.fixture
def teams(client: Client) -> None:
    """Red has all it reserved and borrows two of the four that blue does not use; green waits."""
    client.pools.create("gpus", {"gpu": 8})
    for team, reserved in (("red", 4), ("blue", 4), ("green", 0)):
        client.policies.attach(
            "gpus", team, component_type="team", priority=1, reserved={"gpu": reserved}
        )
    for gpus in (4, 2):
        body = {**WORK, "component": "red", "resources": {"gpu": gpus}}
        client.requests.create({**body, "labels": {"name": f"train-{gpus}"}})
    client.requests.create({**WORK, "component": "green", "resources": {"gpu": 3}})


def fields(line: str) -> list[str]:
    return [each.strip() for each in line.split("  ") if each.strip()]


@pytest.mark.usefixtures("teams")
def test_each_pool_with_its_teams(server: Serving, client: Client) -> None:
    def cede(*arguments: str, columns: int = 80) -> Shown:
        return typed(*arguments, env=server.environment(), columns=columns)

    client.pools.create("empty", {"gpu": 1})
    shown = cede("status")
    assert shown.lines[0] == "pool empty: gpu 0 of 1; nobody waits"
    assert shown.lines[3].startswith("pool gpus: gpu 6 of 8; 1 waiting, the oldest for ")
    assert fields(shown.lines[4]) == [
        *("team", "reserved", "used", "borrowed", "lent", "waiting", "oldest_wait")
    ]
    blue, green, red = (fields(line) for line in shown.lines[5:8])
    assert blue == ["blue", "gpu: 4", "gpu: 2", "0"]
    assert green[:3] == ["green", "gpu: 0", "1"] and green[3].endswith(" s")
    assert red == ["red", "gpu: 4", "gpu: 6", "gpu: 2", "0"]
    assert max(map(len, shown.lines)) <= 80
    narrow = cede("status", "gpus", columns=40)
    assert "empty" not in narrow.text
    assert max(map(len, narrow.lines[1:])) <= 40
    assert "waiting 1" in " ".join(narrow.text.split())
    # `cede` alone is the same.
    alone = cede()
    assert (alone.code, alone.lines[:3], alone.lines[4]) == (0, shown.lines[:3], shown.lines[4])


@pytest.mark.usefixtures("teams")
def test_programs_get_the_answer_of_the_server(server: Serving, client: Client) -> None:
    pool = json.loads(server.cede("status", "--json").stdout)["pools"][0]
    assert (pool["used"], pool["free"], pool["waiting"]) == ({"gpu": 6}, {"gpu": 2}, 1)
    lent = {each["component"]: each["lent"] for each in client.status()["pools"][0]["policies"]}
    assert lent == {"red": {}, "blue": {"gpu": 2}, "green": {}}
    rows = server.cede("status", "-o", "csv").stdout.splitlines()
    assert [row.split(",")[:2] for row in rows[:4]] == [
        *(["pool", "team"], ["gpus", "blue"], ["gpus", "green"], ["gpus", "red"])
    ]


@pytest.mark.usefixtures("teams")
def test_a_token_sees_the_teams_that_are_its_own(server: Serving, client: Client) -> None:
    token = client.tokens.create("ci", "submitter", subjects=["team:blue"])["token"]
    pool = json.loads(server.cede("status", "--json", token=token).stdout)["pools"][0]
    assert [each["component"] for each in pool["policies"]] == ["blue"]
    assert pool["used"] == {"gpu": 6}


@pytest.mark.usefixtures("teams")
def test_the_largest_use_comes_first(server: Serving, client: Client) -> None:
    shown = typed("top", env=server.environment())
    newest, oldest = client.requests.list(component="red")
    rows = [line.split() for line in shown.lines[1:]]
    assert [row[:2] for row in rows] == [
        [short_id(oldest["id"]), "train-4"],
        [short_id(newest["id"]), "train-2"],
    ]
    assert "50%" in rows[0] and "25%" in rows[1]


@pytest.mark.usefixtures("teams")
def test_a_watched_screen_is_drawn_again(server: Serving, client: Client) -> None:
    with Typing("status", "--watch", env=server.environment()) as watching:
        watching.until("pool gpus: gpu 6 of 8; 1 waiting")
        client.requests.create({**WORK, "component": "green", "resources": {"gpu": 3}})
        watching.until("pool gpus: gpu 6 of 8; 2 waiting")
        watching.press(CTRL_C)
        assert watching.ended().code == 130


def test_without_a_server_it_is_the_list_of_commands(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
    shown = typed(env=env, cwd=tmp_path)
    assert shown.code == 1
    assert "Commands:" in shown.text
    assert "no server is configured (start one with `cede up`" in " ".join(shown.text.split())


def test_the_waiting_line_has_place_reason_and_latest_start(
    server: Serving, client: Client
) -> None:
    client.pools.create("gpus", {"gpu": 2})
    client.policies.attach("gpus", "red", component_type="team", priority=1)
    holder = {**WORK, "component": "red", "resources": {"gpu": 2}, "walltime": 3600}
    made = client.requests.create(holder)
    red = ("--component", "red", "-t", "team", "--gpu", "1")
    with Typing("run", *red, "--", "true", env=server.environment(), columns=200) as running:
        running.until("number 1 in the queue, starts within ")
        client.requests.release(made["id"])
        assert running.ended().code == 0
