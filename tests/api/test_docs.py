"""The reference page is true: its examples run, and it names every route, code and metric."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cede.server.api.permissions import PERMISSIONS
from tests.api.conftest import Server

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "http-api.md"
SOURCE = Path(__file__).parents[2] / "src" / "cede"


def test_the_examples_run(server: Server) -> None:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl here")
    block = re.search(r"```bash\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    script = 'set -e\ncurl() { command curl --fail-with-body --noproxy "*" -w "\\n" "$@"; }\n'
    done = subprocess.run(
        ["bash", "-c", script + block[1]],
        env={
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "CEDE_SERVER": server.url,
            "CEDE_TOKEN": server.secrets["admin"],
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines() if line]
    assert len(answers) == 8
    assert answers[4]["status"] == "allocated"
    assert answers[5]["items"][0]["id"] == answers[4]["id"]


def test_every_route_is_on_the_page() -> None:
    page = PAGE.read_text().replace("\\|", "|")
    for _, path in PERMISSIONS:
        last = path.removeprefix("/api/v1").replace("{id}", "")
        short = "/" + last.strip("/").rpartition("/")[2] if "{" not in last else last
        assert short in page, path


def test_every_error_code_is_on_the_page() -> None:
    page = PAGE.read_text()
    found = set()
    for path in [*SOURCE.glob("server/**/*.py"), *SOURCE.glob("engine/*.py")]:
        text = path.read_text()
        found |= set(re.findall(r'Conflict\(\s*"(\w+)"', text))
        found |= set(re.findall(r'(?:Problem\(\s*\d+,|unavailable\()\s*"(\w+)"', text))
    assert len(found) > 15
    missing = {code for code in found - {"internal", "not_ended"} if f"`{code}`" not in page}
    assert not missing


def test_every_metric_is_on_the_page(shared: Server) -> None:
    page = PAGE.read_text()
    names = re.findall(r"^# TYPE (cede_\w+)", shared["viewer"].get("/metrics").text, re.MULTILINE)
    for name in names:
        if not name.endswith("_created"):
            assert name in page, name
