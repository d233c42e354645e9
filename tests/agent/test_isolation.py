"""C9, C11: work reaches neither the credentials of its operator nor anything of another account.

Each thing that work must not reach is tried by a program that tries everything; the same program
run where nothing is closed shows that it would succeed.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cede import Client
from cede.agent import identity
from cede.agent.accounts import FIRST_ID
from cede.agent.identity import Identity
from cede.client.errors import CedeClientError
from cede.launch import namespace
from tests.agent.cluster import BLUE, TEAM, Cluster, read_when_there, sweep
from tests.agent.operator import Up, intrusion
from tests.client.serving import Serving, eventually
from tests.support import ordinary

pytestmark = pytest.mark.system

VICTIM = Path(__file__).parent / "programs" / "victim.py"
PROTOCOLS = ("signal", "shm", "grpc")


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Where other accounts come by, unlike below pytest's own directory."""
    made = Path(tempfile.mkdtemp(prefix="cede-apart-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="module")
def up(place: Path) -> Iterator[Up]:
    """One for all tests: each makes files of its own in its home."""
    made = Up(place / "ann")
    yield made
    made.stop()


def victim(run: Callable[..., str], home: Path, **fields: Any) -> str:
    """Work that talks with its agent by gRPC and runs until it is asked to save itself."""
    ordinary.own(home)
    terms = {"checkpoint": "auto", "checkpoint_protocol": "grpc", **fields}
    request = run(ordinary.python(), VICTIM, "saves", home, **terms)
    read_when_there(home / "notes")
    return request


def files_of(attempt: Path, checkpoints: Path) -> dict[str, Path]:
    """What an agent has of an attempt."""
    names = ["spec.json", "started.json", "wake", "lock"]
    logs = ("stdout.log", "stderr.log", "order.log")
    talk = attempt / "talk"
    eventually((talk / "app.sock").exists)
    (attempt / "tmp" / "own").write_text("secret\n")
    (checkpoints / "own").write_text("secret\n")
    owner = (attempt / "spec.json").stat()
    if (attempt / "control.json").exists():  # once something is wanted of it
        names.append("control.json")
    for name in logs:  # which are there once there is something in them
        if not (attempt / name).exists():
            (attempt / name).touch(mode=0o600)
            os.chown(attempt / name, owner.st_uid, owner.st_gid)
    return {
        **{name: attempt / name for name in (*names, *logs)},
        "temporary folder": attempt / "tmp",
        "temporary file": attempt / "tmp" / "own",
        "talk folder": talk,
        "talk socket": talk / "app.sock",
        "checkpoint folder": checkpoints,
        "checkpoint": checkpoints / "own",
    }


def processes_of(attempt: Path) -> dict[str, int]:
    started = json.loads((attempt / "started.json").read_text())
    return {"supervisor": started["keeper"], "work": started["pid"]}


def has_signal_scope() -> bool:
    libc = ctypes.CDLL(None)
    version = libc.syscall(
        namespace.SYS_LANDLOCK_CREATE_RULESET, None, 0, namespace.LANDLOCK_VERSION
    )
    return int(version) >= namespace.LANDLOCK_ABI_WITH_SCOPES


def test_work_of_an_ordinary_account_reaches_nothing_of_its_operator(up: Up) -> None:
    other = victim(up.submit, up.home / "other")
    attempt = up.attempt(other)
    checkpoints = up.agent / "checkpoints" / other / "0"
    paths = {
        "client.yaml": up.data / "client.yaml",
        "database": up.data / "cede.db",
        "write-ahead log": up.data / "cede.db-wal",
        "server's folder": up.data,
        "server's settings": up.config,
        "agent.json": up.agent / "agent.json",
        "journal": up.agent / "journal",
        "all attempts": up.agent / "attempts",
        **{f"other's {name}": path for name, path in files_of(attempt, checkpoints).items()},
    }
    bystander = subprocess.Popen(ordinary.command("sleep", 600), env={"SECRET": "secret"})
    try:
        pids = {
            "server": up.process.pid,
            "agent": up.agent_pid,
            "bystander": bystander.pid,
            **{f"other's {name}": pid for name, pid in processes_of(attempt).items()},
        }
        signals = has_signal_scope()
        tried = up.submit(*intrusion(paths, pids, signals=signals))
        assert up.ended(tried)["status"] == "released", up.printed(tried)
        # Folders on the way to its own are there for it, with nothing else in them.
        on_the_way = {"read server's folder", "read all attempts"}
        assert set(json.loads(up.printed(tried))) <= on_the_way
        # Outside of the namespace all of it is the account's.
        control = subprocess.run(
            ordinary.command(*intrusion(paths, pids, signals=signals)),
            env=ordinary.environment(up.home),
            capture_output=True,
            text=True,
            check=True,
        )
        reached = set(json.loads(control.stdout))
        assert reached >= {f"read {name}" for name in paths}
        assert reached >= {"environ bystander", "environ other's work", "ptrace bystander"}
        assert not signals or reached >= {f"signal {name}" for name in pids}
        # What the operator's own processes are is closed even there.
        for name in ("server", "agent", "other's supervisor"):
            assert not reached & {f"{what} {name}" for what in ("environ", "mem", "fd", "ptrace")}
    finally:
        bystander.kill()
        bystander.wait()
    [node] = up.client.nodes.list()
    assert node["labels"]["isolation"] == "namespace"
    assert "isolation: namespace; work runs as your account" in up.said


def test_work_in_its_namespace_runs_as_elsewhere(up: Up) -> None:
    script = (
        "id -u; echo out > /dev/stdout; touch $TMPDIR/x && touch $1/x && echo written;"
        "mkdir $1/a; mv $1/x $1/a/ && echo moved; sleep 600 & kill $! && echo killed; exit 7"
    )
    request = up.submit("sh", "-c", script, "sh", up.home)
    assert up.ended(request)["reason"]["exit_code"] == 7
    wanted = f"{ordinary.account().pw_uid}\nout\nwritten\nmoved\nkilled\n"
    assert up.printed(request) == wanted
    told = up.ended(up.submit("true", work={"argv": ["true"], "directory": str(up.data)}))
    assert "is hidden from work" in json.dumps(told["reason"])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_work_in_its_namespace_saves_itself_and_goes_on(up: Up, protocol: str) -> None:
    home = up.home / protocol
    request = victim(up.submit, home, checkpoint_protocol=protocol, checkpoint_timeout=60)
    [node] = up.client.nodes.list()
    up.client.nodes.claim([node["name"]], "bob")
    eventually(lambda: up.client.requests.get(request)["status"] == "suspended")
    up.client.nodes.unclaim([node["name"]])
    assert up.ended(request)["status"] == "released"
    notes = [line.split(" ", 1)[1] for line in (home / "notes").read_text().splitlines()]
    assert notes[-1] == "from 42", notes


def test_without_user_namespaces_it_is_said_and_the_file_has_the_least_role(place: Path) -> None:
    up = Up(place / "bob", namespaces=False)
    try:
        assert "isolation: none; WORK CAN READ AND CHANGE ALL FILES OF CEDE" in up.said
        [shown] = [line for line in up.said.splitlines() if "kept in no file" in line]
        secret = shown.split()[-1]
        with pytest.raises(CedeClientError, match="submitter"):
            list(up.client.tokens.list())
        request = up.submit("cat", up.data / "client.yaml")
        assert up.ended(request)["status"] == "released"
        assert up.token in up.printed(request) and secret not in up.printed(request)
        for path in up.data.rglob("*"):
            if path.is_file():
                assert secret.encode() not in path.read_bytes(), path
        with Client(up.url, secret) as admin:
            assert {each["role"] for each in admin.tokens.list()} >= {"admin", "submitter"}
            [node] = admin.nodes.list()
        assert node["labels"]["isolation"] == "none"
        eventually(lambda: "can read its token and all files of cede" in up.said)
    finally:
        up.stop()


def test_work_of_one_team_reaches_nothing_of_another(shared: Cluster, place: Path) -> None:
    shared.allow_blue()
    agent = shared.agent("apart", 2, "--group", "none")
    on = {"node_labels": {"host": "apart"}}
    env = {"PYTHONPATH": ordinary.environment(place)["PYTHONPATH"]}

    def run(*argv: object, **fields: Any) -> str:
        return shared.submit(*map(str, argv), **on, **fields, work={"env": env})

    notes = place / "notes"
    notes.mkdir()
    notes.chmod(0o777)
    terms = {"checkpoint": "auto", "checkpoint_protocol": "grpc"}
    red = run(ordinary.python(), VICTIM, "saves", notes, component=TEAM, **terms)
    read_when_there(notes / "notes")
    attempt = agent.attempt(red)
    uid = json.loads((attempt / "spec.json").read_text())["user"]["uid"]
    paths = {
        **files_of(attempt, agent.data / "checkpoints" / red / "0"),
        "home": agent.data / "homes" / str(uid),
        "agent.json": agent.data / "agent.json",
        "journal": agent.data / "journal",
        "lock of the agent": agent.data / "lock",
        "all attempts": agent.data / "attempts",
        "all checkpoints": agent.data / "checkpoints",
        "all homes": agent.data / "homes",
        "client.yaml": shared.server.data / "client.yaml",
        "database": shared.server.data / "cede.db",
    }
    pids = {"server": shared.server.process.pid, "agent": agent.pid, **processes_of(attempt)}
    command = intrusion(paths, pids, signals=True)
    blue = run(*command, component=BLUE)
    assert shared.ended(blue)["status"] == "released", shared.printed(blue)
    assert json.loads(shared.printed(blue)) == []
    assert shared.client.nodes.get("apart")["labels"]["isolation"] == "account"
    # Work of its own team, which has its account, reaches what is the account's and no more.
    own = run(*command, component=TEAM)
    assert shared.ended(own)["status"] == "released", shared.printed(own)
    reached = set(json.loads(shared.printed(own)))
    assert reached >= {"read checkpoint", "read talk socket", "environ work", "signal work"}
    closed = {"spec.json", "stdout.log", "control.json", "wake", "agent.json", "database"}
    assert not reached & {f"{what} {name}" for what in ("read", "write") for name in closed}
    assert not reached & {f"{what} supervisor" for what in ("environ", "mem", "fd", "signal")}


def test_an_agents_file_that_others_may_use_is_refused_with_the_fix(tmp_path: Path) -> None:
    identity.save(tmp_path, Identity("n", "secret-token"))
    assert identity.load(tmp_path).token == "secret-token"
    file = tmp_path / identity.FILE
    file.chmod(0o644)
    with pytest.raises(identity.Unusable, match="others than its owner") as refused:
        identity.load(tmp_path)
    assert str(refused.value).endswith(f"chmod 600 {file}")
    assert "secret-token" not in str(refused.value)


def test_a_join_token_comes_from_a_file_that_nobody_else_may_use(
    shared: Cluster, tmp_path: Path
) -> None:
    file = tmp_path / "join.token"
    file.write_text(shared.join)
    file.chmod(0o644)
    command = ("agent", "--data", tmp_path / "data", "--join-file", file, "--name", "by-file")
    refused = shared.server.cede(*command)
    assert refused.returncode != 0
    assert "others than its owner" in refused.stderr and f"chmod 600 {file}" in refused.stderr
    assert shared.join not in refused.stderr
    file.chmod(0o600)
    agent = shared.server.start_cede(*command)
    try:
        shared.until_ready("by-file")
    finally:
        agent.terminate()
        agent.wait()
        shared.client.nodes.delete("by-file", force=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: only root may switch accounts")
def test_a_server_that_is_root_runs_work_as_an_account_of_the_team(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(place))
    server = Serving(place / "root", options=("--heartbeat", "1"))
    try:
        script = "id -u; touch $HOME/x $TMPDIR/x && echo written; cat $1; kill -0 $PPID"
        file = server.data / "client.yaml"
        done = server.cede(
            "submit", "--follow", "--", "sh", "-c", script, "sh", file, cwd=str(place)
        )
        assert done.returncode == 1, done.stderr
        _, uid, written = done.stdout.splitlines()[:3]
        assert int(uid) >= FIRST_ID and written == "written"
        assert server.token not in done.stdout
        with server.client() as client:
            [node] = client.nodes.list()
        assert node["labels"]["isolation"] == "account"
    finally:
        server.stop()
        for spec in place.glob("cede-agent-*/attempts/*/spec.json"):
            sweep(spec.parent)
