"""Submitted work runs on a node, with what it was promised, and its end is known everywhere."""

from __future__ import annotations

import json
import subprocess
from itertools import groupby
from pathlib import Path

import pytest

from cede.model import bounds
from tests.agent.cluster import Cluster, alive, read_when_there
from tests.client.serving import BIN, WAIT_SECONDS

pytestmark = pytest.mark.system

HOLD = "while ! test -e {home}/go; do sleep 0.05; done"


def test_it_runs_once_and_its_exit_code_is_known(shared: Cluster) -> None:
    request = shared.submit("sh", "-c", "echo out; echo err >&2; exit 3")
    ended = shared.ended(request)
    assert ended["status"] == "failed"
    assert ended["reason"]["exit_code"] == 3
    assert ended["allocation"]["members"][0]["exit_code"] == 3
    streams = {each: shared.printed(request, stream=each) for each in ("stdout", "stderr")}
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
    env = json.loads(shared.printed(request))
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


def test_the_command_line_submits_follows_and_ends_as_the_work_did(shared: Cluster) -> None:
    own = ("--pool", "nodes", "--component", "red", "-t", "team", "--gpu", "1")
    command = "echo one; sleep 0.3; echo two; exit 5"
    done = shared.server.cede("submit", *own, "--follow", "--", "sh", "-c", command)
    assert done.returncode == 5, done.stderr
    request, *printed = done.stdout.splitlines()
    assert printed == ["one", "two"]
    assert "failed" in done.stderr
    assert shared.server.cede("logs", request).stdout == "one\ntwo\n"
    assert shared.server.cede("wait", "-q", request).returncode == 5
    assert shared.get(request)["work"]["directory"] == str(Path.cwd())


def test_whoever_follows_is_told_why_it_waits(shared: Cluster, tmp_path: Path) -> None:
    on = {"node_labels": {"host": "n1"}}
    holder = shared.submit("sh", "-c", HOLD.format(home=tmp_path), gpus=2, **on)
    own = ("--pool", "nodes", "--component", "red", "-t", "team", "--node-label", "host=n1")
    errors = tmp_path / "errors"
    with errors.open("w") as stream:
        follower = shared.server.start_cede(
            "submit", *own, "--gpu", 1, "--follow", "--", "echo", "at last", stderr=stream
        )
    shared.until(lambda: "cede: waiting: " in errors.read_text(), about=holder)
    (tmp_path / "go").touch()
    printed, _ = follower.communicate(timeout=WAIT_SECONDS)
    assert (follower.returncode, printed.splitlines()[1:]) == (0, ["at last"])
    # Whether it was seen to run before it was done is a matter of luck, and so is whether its node
    # was late meanwhile, which is another reason to wait.
    lines = errors.read_text().splitlines()
    said = [word for word, _ in groupby(line.split(":")[1].strip() for line in lines)]
    assert said in (["waiting"], ["waiting", "allocated"]) and len(set(lines)) == len(lines)


def test_independent_tasks_are_waited_for_and_cancelled_together(shared: Cluster) -> None:
    own = ("--pool", "nodes", "--component", "red", "-t", "team", "--gpu", "1")
    many = ("--tasks", "3", "--independent")
    done = shared.server.cede("submit", *own, *many, "--wait", "--", "true")
    assert done.returncode == 0, done.stderr
    parts = list(shared.client.requests.list(part_of=done.stdout.strip()))
    assert [each["status"] for each in parts] == ["released"] * 3
    made = shared.server.cede("submit", *own, *many, "--", "sleep", "600").stdout.strip()
    assert shared.server.cede("cancel", made).returncode == 0
    ended = shared.server.cede("wait", made)
    assert ended.returncode == 9, ended.stderr
    parts = list(shared.client.requests.list(part_of=made))
    assert [each["status"] for each in parts] == ["cancelled"] * 3


def test_what_is_cancelled_is_gone_with_all_it_started(shared: Cluster, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    stubborn = f"trap '' TERM; sleep 600 & (setsid sleep 600 & echo $! $$ >> {pids}); wait"
    request = shared.submit("sh", "-c", stubborn)
    found = [int(each) for each in read_when_there(pids).split()]
    shared.client.requests.cancel(request)
    assert shared.ended(request)["status"] == "cancelled"
    assert not [each for each in found if alive(each)]


def test_its_walltime_ends_it(shared: Cluster) -> None:
    ended = shared.ended(shared.submit("sleep", "600", walltime=0.5))
    assert ended["status"] == "failed"
    assert ended["reason"]["code"] == "walltime_exceeded"


def test_a_program_that_is_not_there_is_its_users_mistake(shared: Cluster) -> None:
    ended = shared.ended(shared.submit("no-such-program"))
    assert ended["status"] == "failed"
    assert ended["reason"]["code"] == "not_started"
    assert "no-such-program" in ended["reason"]["text"]
    member = ended["allocation"]["members"][0]
    assert (member["exit_code"], member["cause"]) == (127, "start_failed")


def not_at_fault(cluster: Cluster, name: str) -> None:
    """A node that is late by some heartbeats is degraded too, and nobody was wrong."""
    node = cluster.client.nodes.get(name)
    assert node["state"] == "ready" or node["reason"] == "silent", node


def test_work_runs_as_the_mapped_account_or_not_at_all(shared: Cluster, tmp_path: Path) -> None:
    shared.agent("mapped", 1, "--user-map", "team:red=nobody")
    on = {"node_labels": {"host": "mapped"}}
    done = shared.submit("sh", "-c", "id -un; touch $TMPDIR/x && echo written", **on)
    assert shared.ended(done)["status"] == "released"
    assert shared.printed(done) == b"nobody\nwritten\n"
    # Whoever asks for somebody else's account has made a mistake; the node is not at fault.
    refused = shared.ended(shared.submit("id", work={"user": "daemon"}, **on))
    assert refused["status"] == "failed"
    assert refused["reason"]["exit_code"] == 126
    said = shared.printed(refused["id"], stream="stderr")
    assert said == b"cede: the account daemon is not for root or team:red\n"
    # A folder that its account may not enter is named, with what to do.
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    kept_out = shared.ended(shared.submit("true", work={"directory": str(closed)}, **on))
    assert "which may not enter that folder: submit from another" in kept_out["reason"]["text"]
    not_at_fault(shared, "mapped")


def test_a_root_agent_without_a_map_names_the_fix_to_whoever_asks_for_an_account(
    shared: Cluster,
) -> None:
    shared.agent("root", 1, "--group", "none")
    for _ in range(bounds.NODE_FAILURES_MAX + 1):  # the node is not at fault, however often
        wanted = {"work": {"user": "root"}, "node_labels": {"host": "root"}}
        request = shared.submit("touch", "/cede-was-here", **wanted)
        ended = shared.ended(request)
        assert (ended["status"], ended["attempt"]) == ("failed", 1)
    assert not Path("/cede-was-here").exists()
    waited = shared.server.cede("wait", request)
    assert waited.returncode == 126
    for said in (waited.stderr, shared.server.cede("why", request).stdout):
        assert "--user-map" in said and "--allow-root-jobs" in said
    not_at_fault(shared, "root")


def test_a_gang_sits_on_two_nodes_and_each_knows_the_others(shared: Cluster) -> None:
    shared.agent("second", 2)
    gang = shared.submit(
        "sh", "-c", "echo $CEDE_TASK of $CEDE_TASKS on $CEDE_NODES", gpus=2, tasks=2, per_node=1
    )
    assert shared.ended(gang)["status"] == "released"
    printed = [shared.printed(gang, task=n) for n in (0, 1)]
    nodes = [each["node"] for each in shared.get(gang)["allocation"]["members"]]
    assert set(nodes) == {"n1", "second"}
    assert printed == [f"{n} of 2 on {','.join(nodes)}\n".encode() for n in (0, 1)]


def test_nodes_are_looked_after(shared: Cluster) -> None:
    run = shared.server.cede
    assert "n1" in run("node", "list").stdout
    assert run("node", "drain", "n1", "--reason", "fan").stdout.startswith("node n1 is dra")
    shared.until(lambda: shared.nodes()["n1"] == "drained")
    assert "fan" in run("node", "describe", "n1").stdout
    assert run("node", "undrain", "n1").stdout == "node n1 is ready\n"
    assert run("node", "undrain", "n1").returncode == 5
    assert run("node", "describe", "nobody").returncode == 3


def test_a_second_agent_on_the_same_data_is_refused(shared: Cluster) -> None:
    first = shared.agents[0]
    second = subprocess.run(
        [BIN / "cede", "agent", "--server", shared.server.url, "--data", first.data],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert second.returncode == 1
    assert "another agent runs on" in second.stderr


def test_an_empty_join_token_is_said_to_be_empty(tmp_path: Path) -> None:
    options = ("--server", "http://127.0.0.1:9", "--data", str(tmp_path), "--join", "")
    done = subprocess.run([BIN / "cede", "agent", *options], capture_output=True, text=True)
    assert done.returncode == 2
    assert "the join token is empty" in done.stderr
