"""A program's name means on the node what it means where it was submitted."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click
import pytest

from cede.cli.submission import environment_of
from cede.model.ids import short_id
from tests.agent.cluster import Cluster
from tests.cli.terminal import CTRL_C, Shown, Typing, typed

HERE = {
    "PATH": "/opt/bin:/bin",
    "VIRTUAL_ENV": "/opt",
    "LANG": "C.UTF-8",
    "CONDA_PREFIX": "",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "EMPTY": "",
    "BROKEN": os.fsdecode(b"\xff"),
}


def test_only_the_fixed_list_goes_along() -> None:
    along = {"PATH": "/opt/bin:/bin", "VIRTUAL_ENV": "/opt", "LANG": "C.UTF-8"}
    assert environment_of((), HERE) == along
    assert environment_of(("EMPTY", "A=b=c", "PATH=/x"), HERE) == {
        **along,
        "EMPTY": "",
        "A": "b=c",
        "PATH": "/x",
    }
    assert environment_of(("LANG",), HERE, captured=()) == {"LANG": "C.UTF-8"}
    assert environment_of((), HERE, captured=()) == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "NAME=VALUE or NAME"),
        ("=x", "NAME=VALUE or NAME"),
        ("NOBODY", "NOBODY: it is not set here; write NOBODY=VALUE"),
        ("BROKEN", "BROKEN: its value here is not UTF-8"),
    ],
)
def test_a_variable_that_cannot_go_along_is_wrong_usage(given: str, said: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        environment_of((given,), HERE)
    assert "--env" in str(caught.value) and said in str(caught.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a program that no other PATH has, as a virtual environment is one."""
    tool = tmp_path / "bin" / "my-tool"
    tool.parent.mkdir()
    code = "import json, os; print(json.dumps({**os.environ, 'cwd': os.getcwd()}))"
    tool.write_text(f'#!/bin/sh\nexec python3 -c "{code}"\n')
    tool.chmod(0o755)
    for each in (tmp_path, tool.parent):
        each.chmod(0o755)
    return tmp_path


@pytest.mark.system
def test_a_transcript_of_what_goes_along(shared: Cluster, folder: Path) -> None:
    own = ("--pool", "nodes", "--component", "red", "-t", "team")
    path = f"{folder}/bin:/usr/local/bin:/usr/bin:/bin"
    env = {
        **shared.server.environment(),
        "PATH": path,
        "VIRTUAL_ENV": str(folder),
        "LANG": "en_GB.UTF-8",
        "MY_SECRET": "secret",
        "MY_CHOICE": "blue",
    }

    def submitted(*options: str) -> Shown:
        return typed("submit", *own, *options, "--wait", "--", "my-tool", env=env, cwd=folder)

    def seen(request: str) -> dict[str, str]:
        found: dict[str, str] = json.loads(shared.printed(request))
        return found

    shown = submitted()
    assert shown.code == 0, shown.text
    assert shown.lines[0] == short_id(shared.get(shown.lines[0])["id"])
    there = seen(shown.lines[0])
    assert (there["PATH"], there["VIRTUAL_ENV"]) == (path, str(folder))
    assert (there["LANG"], there["cwd"]) == ("en_GB.UTF-8", str(folder))
    assert "MY_SECRET" not in there and "MY_CHOICE" not in there

    shown = submitted("--env", "MY_CHOICE", "--env", "LANG=C.UTF-8")
    there = seen(shown.lines[0])
    assert (there["MY_CHOICE"], there["LANG"]) == ("blue", "C.UTF-8")
    assert "MY_SECRET" not in there

    shown = submitted("--no-env")
    assert shown.code == 127, shown.text
    assert "No such file or directory: my-tool (looked up in PATH /" in shown.text
    assert f"{folder}/bin" not in shown.text
    made = shared.get(shown.lines[0])
    assert made["work"].get("env") == {}


@pytest.mark.system
def test_cede_run_tells_the_path_too(shared: Cluster, tmp_path: Path) -> None:
    client = shared.client
    client.pools.create("counted", {"gpu": 1})
    client.policies.attach("counted", "red", component_type="team", priority=1)
    try:
        env = {**shared.server.environment(), "PATH": str(tmp_path)}
        who = ("--pool", "counted", "--component", "red", "-t", "team")
        shown = typed("run", *who, "--", "my-tool", env=env)
    finally:
        client.pools.delete("counted")
    assert shown.code == 127, shown.text
    assert f"No such file or directory: my-tool (looked up in PATH {tmp_path})" in shown.text


@pytest.mark.system
def test_submitted_work_goes_on_when_its_waiter_is_interrupted(shared: Cluster) -> None:
    own = ("--pool", "nodes", "--component", "red", "-t", "team", "--wait")
    env = shared.server.environment()
    with Typing("submit", *own, "--", "sleep", "600", env=env) as waiting:
        waiting.until("allocated: attempt 1 on ")
        waiting.press(CTRL_C)
        shown = waiting.ended()
    short = shown.lines[0]
    assert shown.code == 130
    assert f"the work goes on; to end it: cede cancel {short}" in shown.text
    assert shared.get(short)["status"] == "allocated"
    assert typed("cancel", short, env=env).code == 0
    assert shared.ended(short)["status"] == "cancelled"
