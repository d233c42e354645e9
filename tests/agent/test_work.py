"""Submitted work runs on a node, with what it was promised, and its end is known everywhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.agent.cluster import Cluster

pytestmark = pytest.mark.system


def test_it_runs_once_and_its_exit_code_is_known(shared: Cluster) -> None:
    request = shared.submit("sh", "-c", "echo out; echo err >&2; exit 3")
    ended = shared.ended(request)
    assert ended["status"] == "failed"
    assert ended["reason"]["exit_code"] == 3
    assert ended["allocation"]["members"][0]["exit_code"] == 3
    streams = {
        stream: b"".join(data for _, data in shared.client.requests.logs(request, stream=stream))
        for stream in ("stdout", "stderr")
    }
    assert streams == {"stdout": b"out\n", "stderr": b"err\n"}


def test_its_surroundings_are_clean_and_say_what_it_is(shared: Cluster) -> None:
    request = shared.submit(
        "python3",
        "-c",
        "import json, os; print(json.dumps(dict(os.environ)))",
        gpus=2,
        work={"env": {"MINE": "é x"}},
    )
    assert shared.ended(request)["status"] == "released"
    env = json.loads(b"".join(data for _, data in shared.client.requests.logs(request)))
    told = {name: env.pop(name) for name in list(env) if name.startswith("CEDE_")}
    assert told == {
        "CEDE_REQUEST_ID": request,
        "CEDE_ALLOCATION": f"{request}.1",
        "CEDE_ATTEMPT": "1",
        "CEDE_TASK": "0",
        "CEDE_TASKS": "1",
        "CEDE_NODE": "n1",
        "CEDE_NODES": "n1",
        "CEDE_POOL": "nodes",
    }
    assert env.pop("CUDA_VISIBLE_DEVICES") == "0,1"
    assert env.pop("MINE") == "é x"
    assert Path(env.pop("TMPDIR")).is_dir()
    known = {"PATH", "HOME", "USER", "LOGNAME", "LANG"}
    assert set(env) - {"LC_CTYPE", "SHLVL", "PWD", "_"} == known
