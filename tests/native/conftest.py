"""The command, compiled with checks of its memory, beside a Python program of two kinds."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.serving import BIN
from tests.native.running import Native
from tests.native.servers import Listening, listening
from tests.support.properties import in_ci
from tests.support.servers import client, own_server, server, shared_server

__all__ = ["client", "own_server", "server", "shared_server"]

ROOT = Path(__file__).parents[2]
CHECKED = ("-Werror", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
# Says what it was started with, and ends with a code of its own.
STUB = """#!/bin/sh
printf '%s\\0' "${CEDE_IDEMPOTENCY_KEY-}" "$@" > "${0%/*}/started"
exit 77
"""


def compiled(folder: Path, *options: str) -> Path:
    script = [sys.executable, str(ROOT / "native" / "compile.py"), str(folder / "cede")]
    done = subprocess.run([*script, *options], capture_output=True, text=True, check=False)
    if done.returncode and shutil.which("cc") is None:
        if in_ci():
            pytest.fail("a C compiler is required here")
        pytest.skip(
            "NOT TESTED: there is no C compiler for the compiled command (Debian: gcc libc6-dev)"
        )
    assert done.returncode == 0, (shlex.join(options), done.stderr)
    return folder


def has_sanitizers(folder: Path) -> bool:
    (folder / "empty.c").write_text("int main(void) { return 0; }\n")
    command = ["cc", *CHECKED, "-o", str(folder / "empty"), str(folder / "empty.c")]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled command, by itself. What it waits for takes a second, not ten."""
    folder = tmp_path_factory.mktemp("native")
    checks = CHECKED if shutil.which("cc") and has_sanitizers(folder) else CHECKED[:2]
    return compiled(folder, *checks, "-DPATIENCE=1") / "cede"


@pytest.fixture(scope="session")
def native(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Native:
    """Beside a program that is started in the place of Python's and says so."""
    folder = tmp_path_factory.mktemp("stub")
    shutil.copy(program, folder / "cede")
    (folder / "cede-python").write_text(STUB)
    (folder / "cede-python").chmod(0o755)
    return Native(folder / "cede")


@pytest.fixture(scope="session")
def whole(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Native:
    """Beside the installed Python program."""
    folder = tmp_path_factory.mktemp("whole")
    shutil.copy(program, folder / "cede")
    (folder / "cede-python").symlink_to(BIN / "cede-python")
    return Native(folder / "cede")


@pytest.fixture
def listener() -> Iterator[Listening]:
    with listening() as made:
        yield made
