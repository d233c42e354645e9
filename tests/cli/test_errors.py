"""Whatever goes wrong is one line on stderr, with the fix, and the documented exit code."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from cede import Client
from cede.cli import exit_codes
from tests.client.serving import BIN, Serving
from tests.support import ports

pytestmark = pytest.mark.system

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def cede(
    *arguments: str, env: dict[str, str] | None = None, **options: object
) -> subprocess.CompletedProcess:
    clean = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **(env or {})}
    return subprocess.run(
        [str(BIN / "cede"), *arguments], env=clean, capture_output=True, timeout=60, **options
    )


def one_line(done: subprocess.CompletedProcess) -> str:
    err = done.stderr if isinstance(done.stderr, str) else done.stderr.decode()
    assert len(err.splitlines()) == 1, err
    assert "Traceback" not in err
    return err


def test_no_server_configured(tmp_path: Path) -> None:
    done = cede("pool", "list", cwd=tmp_path)
    assert done.returncode == exit_codes.ERROR
    assert "cede up" in one_line(done)


def test_nobody_listens() -> None:
    started = time.monotonic()
    with ports.hold() as held:
        server = f"http://127.0.0.1:{ports.number_of(held)}"
        env = {"CEDE_SERVER": server, "CEDE_TOKEN": "cede_secret"}
        done = cede("pool", "list", env=env)
        assert done.returncode == exit_codes.UNREACHABLE
        assert "no answer from" in one_line(done)
        assert b"cede_secret" not in done.stderr
        assert time.monotonic() - started < 40  # three seconds where nothing else runs
        done = cede("--debug", "pool", "list", env=env)
        assert b"Traceback" in done.stderr and b"cede_secret" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ("pool describe nothing", exit_codes.NOT_FOUND, "no pool 'nothing'"),
        ("request describe nothing", exit_codes.NOT_FOUND, "no request 'nothing'"),
        ("pool create gpus -c gpu:_1", exit_codes.CONFLICT, "gpus"),
        ("policy attach gpus red -t team -p 1 -r {gpu:_9}", exit_codes.ERROR, "gpu"),
        ("policy detach gpus nobody", exit_codes.NOT_FOUND, "nobody has no policy"),
        ("request create --component green --gpu 1", exit_codes.REFUSED, "no policy"),
        ("request create --gpu 1 --memory 16XB", exit_codes.USAGE, "--memory"),
        ("plan /nowhere.yaml", exit_codes.ERROR, "error: /nowhere.yaml: No such file"),
        ("usage --by label --label=", exit_codes.ERROR, "error: label: must have at least 1"),
    ],
)
def test_each_kind_of_error_has_its_code(
    server: Serving, client: Client, arguments: str, code: int, said: str
) -> None:
    client.pools.create("gpus", {"gpu": 8})
    done = server.cede(*(each.replace("_", " ") for each in arguments.split()))
    assert (done.returncode, said in one_line(done)) == (code, True), done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("pool", "create"),
        ("pool", "create", "a", "-c", "{"),
        ("pool", "create", "a", "-c", "[1]"),
        ("pool", "create", "a", "-c", '{"gpu": 1.5}'),
        ("pool", "create", "a", "-c", '{"gpu": 0}'),
        ("pool", "update", "a"),
        ("pool", "update", "a", "--nodes", "rack"),
        ("pool", "requests", "a", "--view", "sideways"),
        ("poool", "list"),
        ("run", "--gpu", "1"),
        ("request", "list", "--label", "x"),
        ("pool", "list", "-o", "xml"),
    ],
)
def test_wrong_usage_is_two_and_needs_no_server(arguments: tuple[str, ...]) -> None:
    done = cede(*arguments)
    assert done.returncode == exit_codes.USAGE, done.stderr
    assert b"Traceback" not in done.stderr


def test_tokens_that_are_wrong_or_may_not(server: Serving, client: Client) -> None:
    assert server.cede("pool", "list", token="nonsense").returncode == exit_codes.UNAUTHORIZED
    made = server.cede("token", "create", "look", "--role", "viewer")
    viewer = made.stdout.strip()
    assert viewer.startswith("cede_") and viewer not in made.stderr
    assert server.cede("pool", "list", token=viewer).returncode == 0
    done = server.cede("pool", "create", "a", "-c", "gpu: 1", token=viewer)
    assert done.returncode == exit_codes.UNAUTHORIZED
    assert "operator" in one_line(done)
    listed = json.loads(server.cede("token", "list", "-o", "json").stdout)
    revoked = next(each["id"] for each in listed if each["name"] == "look")
    assert server.cede("token", "revoke", revoked).returncode == 0
    assert server.cede("pool", "list", token=viewer).returncode == exit_codes.UNAUTHORIZED


def test_a_token_may_come_from_a_file(server: Serving, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.touch(0o600)
    path.write_text(server.token)
    path.chmod(0o600)
    done = cede("--server", server.url, "--token-file", str(path), "whoami")
    assert done.returncode == 0
    assert b"admin" in done.stdout


def test_deleting_asks_first_and_takes_silence_for_no(server: Serving, client: Client) -> None:
    client.pools.create("gpus", {"gpu": 8})
    assert server.cede("pool", "delete", "gpus", stdin=subprocess.DEVNULL).returncode == 1
    assert server.cede("pool", "delete", "gpus", input="n\n").returncode == 1
    assert server.cede("pool", "delete", "gpus", input="y\n").returncode == 0
    assert [each["name"] for each in client.pools.list()] == ["local"]


def test_a_closed_pipe_is_silent(server: Serving, client: Client) -> None:
    for number in range(30):
        client.pools.create(f"pool-{number}", {"gpu": 8}, description="x" * 1500)
    command = f"{BIN}/cede pool list -o json | head -c 10"
    done = subprocess.run(
        ["bash", "-c", command], env=server.environment(), capture_output=True, timeout=60
    )
    assert (len(done.stdout), done.stderr) == (10, b"")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_locale_that_cannot_show_a_name(server: Serving, client: Client, encoding: str) -> None:
    client.pools.create("größe-日本", {"gpu": 8})
    for output in ("table", "json", "yaml", "csv"):
        env = server.environment(PYTHONIOENCODING=encoding)
        done = subprocess.run(
            [str(BIN / "cede"), "pool", "list", "-o", output],
            env=env,
            capture_output=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"gr" in done.stdout


def test_ctrl_c_in_the_middle_of_a_call() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        env = {
            "CEDE_SERVER": f"http://127.0.0.1:{listener.getsockname()[1]}",
            "CEDE_TOKEN": "t",
            "PATH": "/usr/bin",
        }
        running = subprocess.Popen(
            [str(BIN / "cede"), "pool", "list"], env=env, stderr=subprocess.PIPE
        )
        connection, _ = listener.accept()
        with connection:
            connection.recv(4096)
            running.send_signal(signal.SIGINT)
            _, err = running.communicate(timeout=60)
    assert (running.returncode, err.strip()) == (exit_codes.INTERRUPTED, b"interrupted")


def test_something_else_listens_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
            connection.close()

        threading.Thread(target=answer, daemon=True).start()
        env = {"CEDE_SERVER": f"http://127.0.0.1:{listener.getsockname()[1]}", "CEDE_TOKEN": "t"}
        done = cede("pool", "list", env=env)
    assert done.returncode == exit_codes.ERROR
    assert "not cede's" in one_line(done)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(shell: str) -> None:
    done = cede("completion", shell)
    assert done.returncode == 0
    assert b"_CEDE_COMPLETE" in done.stdout


def test_pool_names_complete_from_the_server_and_never_hang(
    server: Serving, client: Client
) -> None:
    client.pools.create("training", {"gpu": 1})
    assert server.completes("cede pool describe tr") == "plain,training\n"
    asked = {
        "_CEDE_COMPLETE": "bash_complete",
        "COMP_WORDS": "cede pool describe tr",
        "COMP_CWORD": "3",
    }
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        env = {"CEDE_SERVER": f"http://127.0.0.1:{silent.getsockname()[1]}", "CEDE_TOKEN": "t"}
        done = cede(env=env | asked)
    # Other calls wait for ten seconds, four times.
    assert (done.stdout.strip(), time.monotonic() - started < 30) == (b"", True)


def test_the_documented_codes_are_the_ones_in_use() -> None:
    table = DOCS.read_text().split("## Exit codes")[1]
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    used = {
        value
        for name, value in vars(exit_codes).items()
        if name.isupper() and name != "SIGNAL_BASE" and isinstance(value, int)
    }
    assert documented == used


def test_help_imports_neither_the_client_nor_the_server() -> None:
    import sys

    code = (
        "import sys; from cede.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "bad = [m for m in sys.modules if m.startswith(('httpx2', 'rich', 'yaml', 'cede.client', "
        "'cede.server', 'cede.engine', 'sqlalchemy', 'fastapi'))]\n"
        "print('imported', bad)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.rstrip().endswith("imported []"), done.stdout[-300:]


def test_an_agent_in_a_group_that_is_no_path_does_not_start(tmp_path: Path) -> None:
    server = ["--server", "http://127.0.0.1:9", "--data", str(tmp_path)]
    done = cede("agent", *server, "--group", "/rack-3")
    assert done.returncode == exit_codes.ERROR
    assert "group: '/rack-3'" in one_line(done)
