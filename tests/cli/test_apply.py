"""`cede apply` and `cede export`, as typed at a terminal of 80 columns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cede import Client
from tests.cli.terminal import Shown, typed
from tests.client.serving import Serving

pytestmark = pytest.mark.system

SITE = """\
pools:
  - name: gpus
    capacity: {gpu: 8}
    settings: {grace: 40s}
policies:
  - {pool: gpus, component: red, component_type: team, priority: 10, reserved: {gpu: 6}}
  - pool: gpus
    component: blue
    component_type: team
    reserved: gpu=2
"""
TENANTS = "tenants:\n  - {name: bio, max_nodes: 4}\n"
WORK = {"component_type": "team", "kind": "work", "lease": "none"}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "site.yaml").write_text(SITE)
    (tmp_path / "tenants.yaml").write_text(TENANTS)
    return tmp_path


def test_a_day_with_files(server: Serving, client: Client, site: Path) -> None:
    def cede(*arguments: str) -> Shown:
        return typed(*arguments, env=server.environment(), cwd=site)

    first = cede("apply", "-f", "site.yaml", "tenants.yaml")
    assert (first.code, first.lines) == (
        0,
        [
            "create pool gpus",
            "  capacity: gpu: 8",
            "  preset: quota",
            "  settings.grace: 40",
            "create policy team:red in pool gpus",
            "  priority: 10",
            "  reserved: gpu: 6",
            "create policy team:blue in pool gpus",
            "  reserved: gpu: 2",
            "create tenant bio",
            "  max_nodes: 4",
            "4 changed",
        ],
    )
    again = cede("apply", "-f", "site.yaml", "-f", "tenants.yaml")
    assert (again.code, again.lines) == (0, ["nothing to change"])
    (site / "now.yaml").write_text(server.cede("export").stdout)
    assert cede("apply", "-f", "now.yaml", "--prune").lines == ["nothing to change"]
    # What it would do to work: red borrows what blue takes back.
    held = client.requests.create({**WORK, "component": "red", "resources": {"gpu": 7}})
    waits = client.requests.create({**WORK, "component": "blue", "resources": {"gpu": 4}})
    lowered = SITE.replace("gpu: 6", "gpu: 4").replace("gpu=2", "gpu=4")
    (site / "site.yaml").write_text(lowered)
    tried = cede("apply", "-f", "site.yaml", "--dry-run")
    assert tried.lines[:4] == [
        "change policy team:red in pool gpus",
        "  reserved: gpu: 6 -> gpu: 4",
        "change policy team:blue in pool gpus",
        "  reserved: gpu: 2 -> gpu: 4",
    ]
    assert tried.lines[-1] == "nothing was changed"
    assert max(map(len, tried.lines)) <= 80
    answer = json.loads(
        server.cede("apply", "-f", "site.yaml", "--dry-run", "--json", cwd=site).stdout
    )
    assert [(each["request"], each["for"]) for each in answer["stops"]] == [
        (held["id"], waits["id"])
    ]
    assert client.requests.get(held["id"])["status"] == "allocated"
    (site / "less.yaml").write_text("policies: []\n")
    refused = cede("apply", "-f", "less.yaml", "--prune")
    assert refused.code == 5 and "is in use: queued=" in " ".join(refused.text.split())


WRONG = {
    "an unknown field": (
        SITE.replace("component: blue", "componet: blue"),
        "site.yaml:8: policies[1].componet: unknown field; did you mean component?",
    ),
    "an unknown kind": (f"{SITE}tenant: []\n", "site.yaml:11: tenant: unknown field; did you mean"),
    "a sum": (
        SITE.replace("gpu=2", "gpu=3"),
        "site.yaml:10: policies[1].reserved.gpu: policies red, blue would reserve 9 gpu together",
    ),
    "a setting": (
        SITE.replace("grace: 40s", "grase: 40s"),
        "site.yaml:4: pools[0].settings.grase: unknown setting; did you mean grace?",
    ),
    "a date": (
        SITE.replace("component: blue", "component: 2026-01-01"),
        "site.yaml:8: policies[1].component: is neither a text nor a number: write it in quotes",
    ),
    "a key twice": (f"{SITE}pools: []\n", "site.yaml:11: the key 'pools' is there twice"),
}


@pytest.mark.parametrize(("text", "said"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_has_its_file_and_line(
    server: Serving, client: Client, site: Path, text: str, said: str
) -> None:
    (site / "site.yaml").write_text(text)
    shown = typed(
        "apply", "-f", "tenants.yaml", "-f", "site.yaml", env=server.environment(), cwd=site
    )
    assert shown.code == 1
    assert said in shown.text
    assert not [each for each in client.pools.list() if each["name"] == "gpus"]
    assert list(client.tenants.list()) == []
