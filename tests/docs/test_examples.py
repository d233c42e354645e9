"""The two Python examples run against a real server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.client.serving import Serving

pytestmark = pytest.mark.system

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(server: Serving, name: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        env=server.environment(**environment),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_two_teams(server: Serving) -> None:
    said = run(server, "two_teams.py")
    for line in ("red holds 8, attempt 1", "red was told to stop", "blue holds 4 in two-teams"):
        assert line in said
    assert said.index("blue is done") < said.index("attempt 2") < said.index("red is done")


def test_a_pipeline_waits_for_its_units(server: Serving) -> None:
    with server.client() as client:
        client.pools.create("gpus", {"gpu": 2})
        client.policies.attach("gpus", "my-orch", priority=1, reserved={"gpu": 2})
    assert "trained: 45" in run(server, "pipeline.py", CEDE_ORCHESTRATOR="my-orch")
    with server.client() as client:
        asked = [each["resources"] for each in client.requests.list(component="my-orch")]
    assert asked == [{"gpu": 2, "step_run": 1}, {"step_run": 1}]


def test_a_pipeline_without_a_policy_runs_untracked(server: Serving) -> None:
    said = run(server, "pipeline.py", CEDE_ORCHESTRATOR="nobody")
    assert "trained: 45" in said and "untracked" in said


def test_every_example_has_a_test() -> None:
    source = Path(__file__).read_text()
    assert all(f'"{path.name}"' in source for path in EXAMPLES.glob("*.py"))
