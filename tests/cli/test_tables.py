"""Tables at 80 and 40 columns, piped, and without colour; what every list can do."""

from __future__ import annotations

import json
import re
from datetime import datetime

import pytest
from click.testing import CliRunner, Result

from cede import Client
from cede.cli.commands import cli
from cede.cli.tables import layout
from cede.model.ids import short_id
from tests.cli.terminal import Shown, typed
from tests.client.serving import Serving, two_teams

RED = {"component": "red", "component_type": "team", "kind": "work"}
LISTS = (
    ("request", "list"),
    ("pool", "list"),
    ("pool", "requests", "gpus"),
    ("policy", "list"),
    ("token", "list"),
    ("tenant", "list"),
    ("node", "list"),
    ("audit", "list"),
    ("usage",),
)


def test_what_does_not_fit_stands_below_and_is_not_lost() -> None:
    row = {"id": "6f0d9b3c", "name": "train", "who": "red", "pool": "gpus", "reason": "a b " * 9}
    columns = ("id", "name", "who", "pool", "reason")
    assert layout([row], columns, None) == [
        "id        name   who  pool  reason",
        "6f0d9b3c  train  red  gpus  " + ("a b " * 9).rstrip(),
    ]
    at_40 = layout([row], columns, 40)
    assert at_40[:2] == ["id        name   who  pool", "6f0d9b3c  train  red  gpus"]
    assert at_40[2:] == ["    " + ("a b " * 9).rstrip()]
    assert layout([row], columns, 20) == [
        "id        name   who",
        "6f0d9b3c  train  red",
        "    pool gpus",
        *["    a b a b a b a b", "    a b a b a b a b", "    a b"],
    ]


def test_long_names_are_cut_and_ids_never() -> None:
    row = {"id": "6f0d9b3c", "name": "n" * 60, "who": "w" * 30}
    _, line = layout([row], ("id", "name", "who"), 60)
    assert len(line) == 60
    assert line.startswith("6f0d9b3c  nnn") and "n…  w" in line
    wide = {"id": "1", "name": "東京東京東京東京東京"}
    for width in (20, 12, 10):
        assert layout([wide], ("id", "name"), width)[1].startswith("1")


def test_numbers_stand_to_the_right() -> None:
    rows = [{"name": "a", "n": 5}, {"name": "b", "n": 500}]
    assert layout(rows, ("name", "n"), 80) == ["name    n", "a       5", "b     500"]


@pytest.mark.system
def test_tables_at_a_terminal_and_in_a_pipe(server: Serving, client: Client) -> None:
    def cede(*arguments: str, columns: int = 80, **env: str) -> Shown:
        return typed(*arguments, env={**server.environment(), **env}, columns=columns)

    two_teams(client)
    holder = client.requests.create({**RED, "resources": {"gpu": 2}, "labels": {"name": "train"}})
    client.requests.create({**RED, "resources": {"gpu": 1}, "labels": {"name": "evaluation"}})
    shown = cede("request", "list")
    assert shown.lines[0].split() == ["id", "name", "who", "status", "asks", "pool", "age"]
    holding = next(line for line in shown.lines if "train" in line)
    assert holding.split()[:7] == [
        *(short_id(holder["id"]), "train", "red", "allocated", "gpu", "2", "gpus")
    ]
    # The reason of the waiter stands below it, whole.
    assert "    " in shown.lines[2] and "gpu" in shown.lines[2]
    narrow = cede("request", "list", columns=40)
    assert max(map(len, [*narrow.lines])) <= 40 and max(map(len, shown.lines)) <= 80
    for part in ("train", "evaluation", "gpus", "red"):
        assert part in narrow.text
    # Bold on a terminal only, and not where NO_COLOR is set.
    assert "\x1b[1m" in cede("pool", "list").raw
    assert "\x1b[" not in cede("pool", "list", NO_COLOR="1").raw
    piped = server.cede("request", "list").stdout
    assert "\x1b[" not in piped and len(piped.splitlines()) == 3
    assert piped.splitlines()[0].split()[-1] == "reason"


@pytest.mark.system
def test_every_list_has_the_same_options(server: Serving, client: Client) -> None:
    two_teams(client)
    client.requests.create({**RED, "resources": {"gpu": 2}})
    env = {"CEDE_SERVER": server.url, "CEDE_TOKEN": server.token, "CEDE_CONFIG": "/dev/null"}

    def cede(*arguments: str) -> Result:
        return CliRunner().invoke(cli, arguments, env=env)

    for command in LISTS:
        sort = "number" if command[0] == "audit" else "name"
        for more in ((), ("-o", "wide"), ("--sort", sort), ("--filter", f"{sort}!=x")):
            done = cede(*command, *more)
            assert done.exit_code == 0, (command, more, done.output)
        assert json.loads(cede(*command, "--json").stdout) is not None
        wrong = cede(*command, "--columns", "nmae")
        assert wrong.exit_code == 2 and "no column 'nmae'" in wrong.output


@pytest.mark.system
def test_rows_are_sorted_filtered_and_chosen(server: Serving, client: Client) -> None:
    client.pools.create("gpus", {"gpu": 8})
    client.policies.attach("gpus", "red", component_type="team", priority=1)
    for name, gpus in (("b", 1), ("a", 2), ("c", 5), ("d", 4)):
        client.requests.create({**RED, "resources": {"gpu": gpus}, "labels": {"name": name}})

    def names(*options: str) -> list[str]:
        done = server.cede("request", "list", "--columns", "name", "-o", "csv", *options)
        return done.stdout.split()[1:]

    assert names() == ["d", "c", "a", "b"]
    assert names("--sort", "name") == ["a", "b", "c", "d"]
    assert names("--sort", "status,-name") == ["c", "b", "a", "d"]
    assert names("--filter", "status=queued") == ["d"]
    assert names("--filter", "name!=a", "--filter", "asks~gpu", "--limit", "2") == ["d", "c"]
    wrong = server.cede("request", "list", "--filter", "name")
    assert wrong.returncode == 2 and "COLUMN=VALUE" in wrong.stderr


@pytest.mark.system
def test_people_see_local_times_and_programs_get_a_zone(server: Serving, client: Client) -> None:
    two_teams(client)
    made = client.requests.create({**RED, "resources": {"gpu": 1}})
    env = {**server.environment(), "TZ": "Asia/Tokyo"}
    shown = typed("request", "list", "--columns", "created", env=env)
    told = datetime.fromisoformat(shown.lines[1].strip() + "+09:00")
    created = datetime.fromisoformat(made["created"])
    assert abs((told - created).total_seconds()) <= 1
    found = json.loads(server.cede("request", "list", "--json").stdout)[0]
    assert found["submitted_at"] == made["created"]
    held = found["allocation"]["allocated_at"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", held)
    assert abs((datetime.fromisoformat(held) - created).total_seconds()) < 60


@pytest.mark.system
def test_waiters_are_listed_in_the_order_of_the_queue(server: Serving, client: Client) -> None:
    client.pools.create("gpus", {"gpu": 2})
    for team, priority in (("red", 1), ("blue", 9)):
        client.policies.attach("gpus", team, component_type="team", priority=priority)
    blocker = {**RED, "resources": {"gpu": 2}, "preemptible": True}
    client.requests.create({**blocker, "component": "blue"})
    for team, name in (("red", "r1"), ("red", "r2"), ("blue", "b1")):
        body = {**RED, "component": team, "resources": {"gpu": 2}, "labels": {"name": name}}
        client.requests.create(body)
    shown = typed("pool", "requests", "gpus", "--view", "queued", env=server.environment())
    rows = [line.split() for line in shown.lines]
    assert [row[:3:2] for row in rows if row[2:3] in (["b1"], ["r1"], ["r2"])] == [
        ["1", "b1"],
        ["2", "r1"],
        ["3", "r2"],
    ]
