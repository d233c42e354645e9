"""A plain command line means what click says it means, and imports less."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from cede.cli import plain
from cede.cli.submission import body_of
from cede.cli.submit_command import submit
from cede.client.demand import settings_body, submission
from cede.model.resources import ResourceSettings
from tests.cli.test_imports import imported
from tests.client.serving import Serving

WORDS = some.text("abz09.=/_", min_size=1, max_size=8)
TYPES = some.sampled_from(["team", "orchestrator", "step_operator", "user"])
VALUES: dict[str, some.SearchStrategy[str]] = {
    "gpu": some.integers(0, 10**8).map(str),
    "component_type": TYPES,
}
OPTIONS = some.one_of(
    *(
        some.tuples(some.just(option), VALUES.get(keyword, WORDS))
        for option, keyword in plain.SUBMIT.items()
    ),
    *(some.tuples(some.just(flag)) for flag in plain.SUBMIT_FLAGS),
)
COMMANDS = some.lists(some.sampled_from(["true", "--", "-x", "--gpu", "", "a b"]), min_size=1)


def by_click(line: list[str]) -> tuple[dict[str, Any], bool]:
    with submit.make_context("submit", list(line)) as context:
        found = dict(context.params)
    assert not found.pop("wait_for_it") and not found.pop("follow")
    as_json = found.pop("as_json")
    return body_of(**found), as_json


@given(options=some.lists(OPTIONS, max_size=6), command=COMMANDS)
def test_a_plain_submission_is_the_one_that_click_reads(
    options: list[tuple[str, ...]], command: list[str]
) -> None:
    line = [*(word for each in options for word in each), "--", *command]
    assert plain.submission(line) == by_click(line)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--",
        "true",
        "--help",
        "--gpu 1 true",
        "--gpu one -- true",
        "--gpu -1 -- true",
        "--gpu=1 -- true",
        "--gpu -- true",
        "--gpu 99999999999999999999 -- true",
        "-t nobody -- true",
        "--no-such-option -- true",
        "--wait -- true",
        "--array 0-9 -- true",
    ],
)
def test_what_is_not_plain_is_left_to_click(line: str) -> None:
    assert plain.submission(line.split()) is None


@pytest.mark.parametrize("line", ["", "--help", "pool", "pool list x", "pool list -o csv", "run"])
def test_other_commands_are_left_to_click(line: str) -> None:
    assert plain.run(line.split()) is False


@given(gpu=some.none() | some.integers(0, 2**53 - 1), preemptible=some.booleans())
def test_a_demand_of_gpus_alone_is_what_resource_settings_make_of_it(
    gpu: int | None, preemptible: bool
) -> None:
    needs = ResourceSettings(gpu_count=gpu, preemptible=preemptible)
    assert submission(gpu=gpu, preemptible=preemptible)["settings"] == settings_body(needs)


SLOW = {"click", "dataclasses", "inspect", "uuid", "cede.model.fields"}
SUBMITS = """
import sys
from cede.cli import plain
from cede.cli.connecting import connect
assert plain.submission(sys.argv[1:])
connect().close()
print(*sys.modules)
"""


def test_a_plain_submission_imports_neither_click_nor_the_model() -> None:
    line = ["--component", "red", "-t", "team", "--pool", "gpus", "--gpu", "1", "--", "true"]
    environ = {**os.environ, "CEDE_SERVER": "http://127.0.0.1:9", "CEDE_TOKEN": "cede_x"}
    printed = subprocess.check_output(
        [sys.executable, "-c", SUBMITS, *line], env=environ, text=True
    )
    modules = set(printed.split())
    assert "cede.client.client" in modules
    assert not modules & SLOW


@pytest.mark.system
def test_a_plain_list_imports_neither_click_nor_the_model(server: Serving) -> None:
    modules = imported(server, "pool", "list")
    assert "cede.cli.tables" in modules
    assert not modules & SLOW
