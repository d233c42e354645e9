"""The wheel without extras is the library and the command line, and says what a part needs."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cede import Client
from cede.cli import exit_codes
from cede.cli.missing import explained
from tests.cli.terminal import Shown, Typing
from tests.client.serving import Serving, two_teams
from tests.support.wheels import built

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("wheel"))


def needed(name: str) -> Iterator[importlib.metadata.Distribution]:
    """A distribution that is installed here, and what it needs without extras."""
    found = importlib.metadata.distribution(name)
    yield found
    for each in found.requires or ():
        if "extra ==" not in each:
            marker = each.partition(";")[2]
            if "python_version" not in marker and "sys_platform" not in marker:
                yield from needed(re.split(r"[ ;<>=!~\[(]", each)[0])


@pytest.fixture(scope="module")
def fresh(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel and what it needs, copied from here: no network."""
    home = tmp_path_factory.mktemp("fresh")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = home / "lib" / version / "site-packages"
    for name in wanted(wheel):
        for each in needed(name):
            for file in each.files or ():
                source = Path(str(each.locate_file(file)))
                if ".." not in file.parts and source.is_file():
                    (packages / file).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(source, packages / file)
    zipfile.ZipFile(wheel).extractall(packages)
    return home


def wanted(wheel: Path) -> list[str]:
    """What the wheel needs without an extra, by its own metadata."""
    names = zipfile.ZipFile(wheel).namelist()
    metadata = next(each for each in names if each.endswith(".dist-info/METADATA"))
    text = zipfile.ZipFile(wheel).read(metadata).decode()
    found = re.findall(r"^Requires-Dist: ([\w.-]+)(.*)$", text, re.MULTILINE)
    return [name for name, rest in found if "extra ==" not in rest]


def test_the_wheel_has_every_file_and_needs_little(wheel: Path) -> None:
    assert wanted(wheel) == ["click", "pyyaml", "rich"]
    inside = set(zipfile.ZipFile(wheel).namelist())
    page = ROOT / "src" / "cede" / "server" / "api" / "page"
    data = [
        *(ROOT / "src" / "cede").rglob("*.py"),
        *(each for each in page.rglob("*") if each.is_file()),
        ROOT / "src" / "cede" / "py.typed",
        ROOT / "src" / "cede" / "checkpoint" / "checkpoint.proto",
    ]
    files = {
        str(each.relative_to(ROOT / "src")) for each in data if "__pycache__" not in each.parts
    }
    assert len(files) > 300 and files <= inside, sorted(files - inside)


def cede(fresh: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    base = {name: text for name, text in os.environ.items() if not name.startswith("CEDE_")}
    command = [str(fresh / "bin" / "python"), "-m", "cede.cli", *words]
    return subprocess.run(command, env={**base, **env}, capture_output=True, text=True, check=False)


def test_what_the_client_imports_is_small(fresh: Path) -> None:
    code = """
import json, sys
import cede
from cede import Client, step
import cede.cli.main
mine = [name for name in sys.modules if name.startswith("cede.")]
others = {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)
print(json.dumps([len(mine), sorted(others)]))
"""
    done = subprocess.run(
        [str(fresh / "bin" / "python"), "-I", "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    many, others = json.loads(done.stdout)
    assert set(others) - {"__main__", "_virtualenv", "_distutils_hack"} <= {"cede", "click"}
    assert many < 80, many


def test_commands_work_against_a_server(fresh: Path, server: Serving, client: Client) -> None:
    two_teams(client)
    listed = cede(fresh, "pool", "list", "--columns", "name", "-o", "csv", **server.environment())
    assert (listed.returncode, listed.stdout.split()) == (0, ["name", "gpus", "local"]), (
        listed.stderr
    )
    made = cede(fresh, "run", "-q", "--component", "red", "-t", "team", "--", "echo", "hi",
                **server.environment())  # fmt: skip
    assert (made.returncode, made.stdout) == (0, "hi\n"), made.stderr


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("up",), "server"),
        (("backup", "x"), "server"),
        (("agent", "--server", "http://127.0.0.1:1", "--join-file", "x"), "agent"),
    ],
    ids=lambda each: each if isinstance(each, str) else each[0],
)
def test_a_transcript_of_a_missing_part(
    fresh: Path, words: tuple[str, ...], extra: str, tmp_path: Path
) -> None:
    program = (str(fresh / "bin" / "python"), "-m", "cede.cli")
    env = {"PYTHONPATH": ""}
    with Typing(*words, env=env, cwd=tmp_path, program=program) as typing:
        shown: Shown = typing.ended()
    text = " ".join(shown.text.split())
    assert shown.code == exit_codes.ERROR, text
    assert text.startswith(f"error: cede {words[0]} needs ")
    assert text.endswith(f"which is not installed; to add it: pip install 'cede[{extra}]'")
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("module", "command", "extra"),
    [
        ("fastapi", "up", "server"),
        ("psycopg", "up", "postgres"),
        ("sortedcontainers", "plan", "server"),
        ("structlog", "agent", "agent"),
        ("google.protobuf", "run", "grpc"),
        ("cede.nonsense", "up", None),
        ("nonsense", "pool", None),
    ],
)
def test_each_part_has_its_extra(module: str, command: str, extra: str | None) -> None:
    told = explained(ModuleNotFoundError(name=module), command)
    assert (told is None) if extra is None else f"'cede[{extra}]'" in str(told)
