"""`cede shares`: a tree that is read at a glance, and the same for programs."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from cede import Client
from cede.cli.commands import cli
from cede.cli.shares_table import FANCY, PLAIN, bar, table
from cede.sim.shares import run
from tests.client.serving import Serving, eventually

STATE = """\
now: 100
pools:
  - {name: gpus, capacity: {gpu: 8}, preset: fair_share}
policies:
  - {pool: gpus, component: lab, component_type: team, reserved: {gpu: 4}}
  - {pool: gpus, component: vision, component_type: team, parent: lab, weight: 2}
  - {pool: gpus, component: shop, component_type: team, mode: fifo}
running:
  - {id: s1, pool: gpus, component: shop, component_type: team, resources: {gpu: 2}}
  - {id: s2, pool: gpus, component: shop, component_type: team, resources: {gpu: 2}, part_of: s1}
  - {id: s3, pool: gpus, component: shop, component_type: team, resources: {gpu: 2}, part_of: s1}
  - {id: v1, pool: gpus, component: vision, component_type: team, resources: {gpu: 2}}
requests:
  - {id: v2, component: vision, component_type: team, resources: {gpu: 6}}
"""


def shares(*arguments: str, text: str = STATE) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli, ["shares", *arguments], input=text)
    return done.exit_code, done.stdout, done.stderr


def answer(text: str = STATE) -> dict[str, Any]:
    code, out, _ = shares("--file", "-", "--json", text=text)
    assert code == 0
    found: dict[str, Any] = json.loads(out)
    return found


def test_the_shares_of_a_file_for_programs() -> None:
    found = {each["name"]: each for each in answer()["elements"]}
    assert list(found) == ["lab", "vision", "v1", "v2", "shop", "s1"]
    assert found["lab"]["fair_share"]["gpu"] == pytest.approx(0.75)
    assert found["shop"]["usage_share"]["gpu"] == pytest.approx(0.75)
    assert list(found["s1"]["groups"].values()) == [["s1"], [], ["s2", "s3"]]
    assert found["vision"]["status"] == "below_fair_share"
    assert (found["vision"]["starvation"], found["vision"]["below_since"]) == ("non_starving", 100)
    assert found["v1"]["satisfaction"] == pytest.approx(1)


def test_the_tree_is_read_at_a_glance() -> None:
    code, out, _ = shares("--file", "-")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "pool gpus: gpu: 8"
    assert lines[1].split()[:3] == ["element", "guar", "weight"]
    rows = {line.split()[0]: line for line in lines[2:8]}
    assert list(rows) == ["lab", "vision", "v1", "v2", "shop", "s1"]
    assert rows["vision"].startswith("  vision") and rows["v1"].startswith("    v1")
    assert rows["lab"].split()[1:3] == ["4", "1"] and "0.33  below 0 s" in rows["lab"]
    assert "1 fifo" in rows["shop"] and rows["shop"].endswith("1/0/2")


@pytest.mark.parametrize("letters", [FANCY, PLAIN])
def test_no_line_is_longer_than_the_terminal(letters: Any) -> None:
    long = STATE.replace("v2", "0198c1d2-8b44-7a51-8c21-6f0d9b3c2a17")
    long = long.replace("{gpu: 8}", "{gpu: 8, memory_mb: 640000}")
    long = long.replace("component: vision", "component: a-team-with-a-rather-long-name")
    for text in (STATE, long):
        for width in (80, 100, 200):
            lines = table(answer(text), width, letters)
            assert max(map(len, lines)) <= width, width
    short = table(answer(long), 80, letters)
    assert any(line.startswith("  a-team") and letters.cut in line for line in short)
    assert any("6f0d9b3c " in line for line in short), "the short form of an id"


def test_plain_letters_are_ascii() -> None:
    assert "".join(table(answer(), 80, PLAIN)).isascii()


def test_a_bar_shows_usage_wish_and_share() -> None:
    def drawn(*parts: float) -> str:
        return bar(*parts, cells=8, letters=PLAIN)

    assert drawn(0.25, 0.5, 0.75) == "##--|--   "
    assert drawn(0.75, 0.25, 0.75) == "##|####   "
    assert drawn(0.0, 0.0, 0.0) == "|         "
    assert drawn(0.001, 1.0, 2.0) == "#-------|>"


def test_who_starves_is_said_with_its_time() -> None:
    found = answer()
    rows = {each["name"]: each for each in found["elements"]}
    rows["lab"] |= {"starvation": "starving", "starving_since": 30}
    rows["vision"] |= {"starvation": "aggressively_starving", "starving_since": -200}
    rows["v2"] |= {"below_since": -9_900}
    rows["shop"]["satisfaction"] = 1e9
    out = "\n".join(table(found, 100, FANCY))
    for words in ("starving 70 s", "starving! 5 min", "below 2 h", "∞"):
        assert words in out


def test_a_pool_that_decides_by_reserves_says_so() -> None:
    code, out, _ = shares("--file", "-", text=STATE.replace("preset: fair_share", "preset: quota"))
    assert code == 0 and "it decides by what is reserved; fair shares would be these" in out
    assert not answer(STATE.replace("preset: fair_share", "preset: quota"))["pools"][0]["in_force"]


def test_every_pool_of_a_file_is_shown() -> None:
    two = STATE.replace("policies:", "  - {name: spare, capacity: {cpu: 2}}\npolicies:", 1)
    _, out, _ = shares("--file", "-", text=two)
    assert "pool gpus: gpu: 8" in out and "pool spare: cpu: 2\n" in out
    assert "nobody has a policy in it" in out


def test_a_named_holding_goes_by_its_own_name() -> None:
    named = STATE.replace("{id: v1, pool", "{id: first, request: v1, pool")
    rows = {each["name"]: each for each in answer(named)["elements"]}
    assert rows["vision"]["groups"]["non_preemptible"] == ["first"]


def test_what_a_request_of_several_tasks_holds_is_grouped_under_its_names() -> None:
    several = """\
now: 100
pools: [{name: gpus, capacity: {gpu: 8}, preset: fair_share}]
policies: [{pool: gpus, name: a}, {pool: gpus, name: b}]
running:
  - {id: x1, request: train, pool: gpus, resources: {gpu: 1}, started_at: 10}
  - {id: x2, request: train, pool: gpus, resources: {gpu: 1}, started_at: 20}
  - {id: x3, request: train, pool: gpus, resources: {gpu: 4}, started_at: 30}
requests:
  - {id: train, policy: a, tasks: 2, resources: {gpu: 1}}
  - {id: serve, policy: b, tasks: 4, gang: false, resources: {gpu: 1}}
"""
    rows = {each["name"]: each for each in answer(several)["elements"]}
    assert list(rows) == ["a", "train", "b", "serve"]
    assert (rows["train"]["usage"], rows["train"]["demand"]) == ({"gpu": 6}, {"gpu": 8})
    assert list(rows["train"]["groups"].values()) == [["x1", "x2"], ["x3"], []]
    assert rows["a"]["groups"] == rows["train"]["groups"]
    assert rows["serve"]["demand"] == {"gpu": 4}


def test_wrong_usage_is_told() -> None:
    for arguments in ((), ("gpus", "--file", "-")):
        code, _, err = shares(*arguments)
        assert code == 2 and "give either POOL or --file" in err


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("parent: lab", "parent: nope", "<stdin>:6: policies[1]"),
        ("capacity: {gpu: 8}", "capacity: {gpu: -8}", "<stdin>:3: pools[0].capacity"),
        ("now: 100", "now: [", "<stdin>:"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_its_line(old: str, new: str, said: str) -> None:
    code, out, err = shares("--file", "-", text=STATE.replace(old, new))
    assert (code, out) == (1, "")
    assert said in err


def test_a_file_that_is_not_there() -> None:
    code, _, err = shares("--file", "/nope/state.yaml")
    assert code == 1 and "No such file" in err


def test_a_snapshot_is_only_read() -> None:
    data = yaml.safe_load(STATE)
    assert run(data) == run(yaml.safe_load(STATE))
    assert data == yaml.safe_load(STATE)


@pytest.fixture
def fair(client: Client) -> Client:
    client.pools.create("fair", {"gpu": 8}, preset="fair_share")
    for team in ("red", "blue"):
        client.policies.attach("fair", team, component_type="team", priority=0)
    work = {"component_type": "team", "kind": "work", "lease": "none", "pool": "fair"}
    client.requests.create({"component": "red", "resources": {"gpu": 8}, **work})
    client.requests.create({"component": "blue", "resources": {"gpu": 4}, **work})
    return client


@pytest.mark.system
def test_the_shares_of_a_server(server: Serving, fair: Client) -> None:
    def lines() -> list[str]:
        done = server.cede("shares", "fair")
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    # Shares are published some time after what moved them.
    eventually(lambda: any(each.startswith("red ") and "2.00  normal" in each for each in lines()))
    assert lines()[0] == "pool fair: gpu: 8"
    assert any(each.startswith("blue ") and "0.00  below" in each for each in lines())
    found = json.loads(server.cede("shares", "fair", "--json").stdout)
    assert [each["kind"] for each in found["elements"]] == ["policy", "request"] * 2
    assert found == {**fair.pools.shares("fair"), "now": found["now"]}
    # The same, from what a snapshot of it says.
    state = server.cede("snapshot").stdout
    again = json.loads(server.cede("shares", "--file", "-", "--json", input=state).stdout)
    shares = [each["fair_share"] for each in again["elements"] if each["pool"] == "fair"]
    assert shares == [each["fair_share"] for each in found["elements"]]


@pytest.mark.system
def test_an_unknown_pool_names_the_known_ones(server: Serving, fair: Client) -> None:
    done = server.cede("shares", "nope")
    assert done.returncode == 3
    assert "no pool 'nope' (known are" in done.stderr and "fair" in done.stderr


@pytest.mark.system
def test_names_of_pools_are_completed(server: Serving, fair: Client) -> None:
    assert server.completes("cede shares f") == "plain,fair\n"
