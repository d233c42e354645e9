"""A command imports what it needs: start-up is most of what a short command costs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from cede import Client
from tests.client.serving import WAIT_SECONDS, Serving

pytestmark = pytest.mark.system

# Each of these takes longer to import than the rest of a short command takes to run.
SLOW = {
    *("asyncio", "decimal", "email", "http", "httpx2", "logging", "random", "rich", "shutil"),
    *("sqlalchemy", "ssl", "subprocess", "tempfile", "yaml", "pydantic", "fastapi", "uvicorn"),
}
NEVER = {"cede.server", "cede.engine", "cede.store", "cede.agent", "cede.launch", "cede.sim"}

PROGRAM = """
import json, sys
from cede.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    code = end.code
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
"""


def imported(server: Serving, *arguments: str) -> set[str]:
    """Every module that a command had at its end."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env=server.environment(),
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
    )
    code, modules = json.loads(done.stderr.splitlines()[-1])
    assert code == 0, done.stderr
    return set(modules)


@pytest.mark.parametrize(
    "command",
    ["pool list", "resource-pool list", "node list", "tenant list", "token list", "whoami"],
)
def test_a_list_imports_nothing_slow(server: Serving, client: Client, command: str) -> None:
    client.pools.create("gpus", {"gpu": 8})
    modules = imported(server, *command.split())
    assert modules & (SLOW | NEVER) == set()
    # The fields that people write are declared in dataclasses, and those take their time.
    assert not {"cede.model.fields", "cede.cli.policies"} & modules


@pytest.mark.parametrize("command", ["policy list", "request list", "shares gpus", "events"])
def test_what_shows_more_imports_no_other_part_of_cede(
    server: Serving, client: Client, command: str
) -> None:
    client.pools.create("gpus", {"gpu": 8})
    modules = imported(server, *command.split())
    assert modules & NEVER == set()
    assert not {"rich", "yaml", "ssl", "httpx2", "http", "sqlalchemy"} & modules


def test_the_check_sees_what_is_imported(server: Serving, client: Client) -> None:
    client.pools.create("gpus", {"gpu": 8})
    modules = imported(server, "pool", "list", "-o", "yaml")
    assert "yaml" in modules & SLOW


def test_a_server_on_sqlite_imports_nothing_of_postgresql() -> None:
    program = "import cede.server.run, cede.server.api.app, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT_SECONDS
    )
    modules = done.stdout.split()
    assert "sqlalchemy.dialects.sqlite" in modules
    assert not {"sqlalchemy.dialects.postgresql", "psycopg", "alembic"} & set(modules)
