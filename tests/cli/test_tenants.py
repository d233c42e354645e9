"""`cede tenant …` and `cede usage`, typed at a real server."""

from __future__ import annotations

import csv
import json
from typing import Any

import pytest
from click.testing import CliRunner

from cede import Client, Conflict
from cede.cli.commands import cli
from cede.cli.values import Duration
from tests.client.serving import Serving

pytestmark = pytest.mark.system


def shown(server: Serving, *arguments: str) -> Any:
    done = server.cede(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def bio(server: Serving, client: Client) -> Client:
    """A pool, a policy and a tenant, with one request of it that holds."""
    client.pools.create("lab", {"gpu": 4})
    client.policies.attach("lab", "red", component_type="team", priority=1)
    client.tenants.create("bio", max_nodes=1, gpu_hours_budget=10)
    work = {"component": "red", "component_type": "team", "kind": "work", "lease": "none"}
    client.requests.create({**work, "resources": {"gpu": 2}, "tenant": "bio"})
    return client


def test_a_tenant_from_its_creation_to_its_end(server: Serving, client: Client) -> None:
    made = shown(server, "tenant", "create", "chem", "--max-nodes", "3", "--burst", "1.5")
    assert (made["max_nodes"], made["burst_allowance"], made["max_concurrent"]) == (3, 1.5, None)
    bounds = ("--max-nodes", "none", "--max-concurrent", "0", "--target", "0.5")
    assert server.cede("tenant", "update", "chem", *bounds).stdout == "updated tenant chem\n"
    found = shown(server, "tenant", "describe", made["id"][:30])
    assert (found["max_nodes"], found["max_concurrent"]) == (None, 0)
    assert (found["fair_share_target"], found["burst_allowance"]) == (0.5, 1.5)
    assert shown(server, "tenant", "list") == [found] == list(client.tenants.list())
    asked = server.cede("tenant", "delete", "chem", input="n\n")
    assert asked.returncode == 1 and client.tenants.get("chem")
    assert server.cede("tenant", "delete", "chem", "--yes").stdout == "deleted tenant chem\n"
    gone = server.cede("tenant", "describe", "chem")
    assert (gone.returncode, gone.stderr) == (3, "error: no tenant 'chem'\n")
    assert "make one with" in server.cede("tenant", "list").stderr


def test_a_quota_is_refused_with_its_fix(server: Serving, bio: Client) -> None:
    ask = ("request", "create", "--component", "red", "--component-type", "team", "--gpu", "1")
    done = server.cede(*ask, "--tenant", "bio")
    assert done.returncode == 4
    assert "has 1 nodes in use and may have 1" in done.stderr
    assert "cede tenant update bio --max-nodes 2" in done.stderr
    with pytest.raises(Conflict):
        bio.tenants.create("bio")


def test_usage_for_people_and_for_programs(server: Serving, bio: Client) -> None:
    """What other tests used stays in the accounts, under names of its own."""
    lines = server.cede("usage", "--by", "policy").stdout.splitlines()
    assert lines[0].split()[:4] == ["name", "pool", "requests", "preempted"]
    assert ["red", "lab", "1", "0"] in [line.split()[:4] for line in lines]
    rows = list(csv.DictReader(server.cede("usage", "-o", "csv").stdout.splitlines()))
    lab = next(each for each in rows if each["name"] == "lab")
    assert float(lab["gpu_hours"]) == pytest.approx(2 * float(lab["node_hours"]), rel=1e-3)
    found = shown(server, "usage", "--by", "tenant", "--since", "1h")
    assert (found["by"], found["since"]) == ("tenant", 3600)
    assert "bio" in [each["name"] for each in found["items"]]
    again = {each["name"]: each for each in bio.usage(by="tenant")["items"]}
    assert again["bio"]["requests"] >= 1
    people = server.cede("tenant", "describe", "bio").stdout
    assert "budget used" in people and "%" in people


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("tenant", "update", "bio"), "nothing to change"),
        (("tenant", "update", "bio", "--max-nodes", "many"), "neither an integer nor none"),
        (("tenant", "create", "bio", "--gpu-hours", "x"), "neither a number nor none"),
        (("usage", "--since", "soon"), "must be a time such as 90, 90m"),
        (("usage", "--by", "moon"), "not one of pool, team, user, label, policy, tenant"),
    ],
)
def test_wrong_usage_is_told(arguments: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 2 and said in done.stderr


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90m", 5400), ("1.5h", 5400), ("7d", 604800), ("1w", 604800)]
)
def test_how_far_back(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == seconds


def test_names_of_tenants_are_completed(server: Serving, bio: Client) -> None:
    assert server.completes("cede tenant describe b") == "plain,bio\n"
