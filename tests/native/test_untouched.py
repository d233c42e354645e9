"""What is not plain reaches the Python program as it was typed, and nothing was sent."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.native.running import UNTOUCHED, Native, environment, is_untouched
from tests.native.servers import Listening, listening

pytestmark = pytest.mark.system

LINES: list[list[str | bytes]] = [
    [],
    ["--help"],
    ["pool", "list"],
    ["subm"],
    ["submit"],
    ["submit", "--"],
    ["submit", "true"],
    ["submit", "--help"],
    ["submit", "--gpu", "one", "--", "true"],
    ["submit", "--gpu", "-1", "--", "true"],
    ["submit", "--gpu", "1234567890", "--", "true"],
    ["submit", "--gpu=1", "--", "true"],
    ["submit", "--gpu", "--", "true"],
    ["submit", "--pool", "", "--", "true"],
    ["submit", "-t", "nobody", "--", "true"],
    ["submit", "--name", "é", "--", "true"],
    ["submit", "--name", "a\tb", "--", "true"],
    ["submit", "--name", "x" * 513, "--", "true"],
    ["submit", "--directory", "a/./b", "--", "true"],
    ["submit", "--directory", "a//b", "--", "true"],
    ["submit", "--directory", "/", "--", "true"],
    ["submit", "--directory", "a/", "--", "true"],
    ["submit", "--json", "--", "true"],
    ["submit", "--wait", "--", "true"],
    ["submit", "--array", "0-9", "--", "true"],
    ["submit", "--no-such-option", "--", "true"],
    ["--server", "http://127.0.0.1:1", "submit", "--", "true"],
    ["submit", "--", "true", b"\xff"],
    ["submit", "--", b"\xed\xa0\x80"],
    ["submit", "--", b"\xc0\xaf"],
    ["submit", "--", b"\xf4\x90\x80\x80"],
    ["submit", "--", b"\xe2\x82"],
    ["submit", "--user", b"\xfe", "--", "true"],
]


@pytest.mark.parametrize("line", LINES, ids=repr)
def test_a_line_that_is_not_plain_is_pythons(
    native: Native, listener: Listening, tmp_path: Path, line: list[str | bytes]
) -> None:
    assert is_untouched(native, line, environment(listener, tmp_path))
    assert listener.calls == []


PLAIN = ["submit", "--", "true"]
STRANGE = [
    {"CEDE_IDEMPOTENCY_KEY": "mine"},
    {"PYTHONIOENCODING": "utf-16"},
    {"CEDE_TOKEN": "two words"},
    {"CEDE_TOKEN": "with\nbreak"},
    {"CEDE_TOKEN": ""},
    {"CEDE_SERVER": ""},
    {"CEDE_SERVER": "https://127.0.0.1:1"},
    {"CEDE_SERVER": "127.0.0.1:1"},
    {"CEDE_SERVER": "http://127.0.0.1:1,http://127.0.0.1:2"},
    {"CEDE_SERVER": "http://127.0.0.1:1/below"},
    {"CEDE_SERVER": "http://me@127.0.0.1:1"},
    {"CEDE_SERVER": "http://127.0.0.1:one"},
    {"CEDE_SERVER": "http://127.0.0.1:"},
    {"CEDE_SERVER": "http://127.0.0.1:08080"},
    {"CEDE_SERVER": "http://LOCALHOST:1"},
    {"CEDE_SERVER": "http://[::1"},
    {"CEDE_SERVER": "http://[::1]x"},
    {"CEDE_SERVER": "http://"},
]


@pytest.mark.parametrize("strange", STRANGE, ids=repr)
def test_an_environment_that_is_not_plain_is_pythons(
    native: Native, listener: Listening, tmp_path: Path, strange: dict[str, str]
) -> None:
    assert is_untouched(native, PLAIN, environment(listener, tmp_path, **strange))
    assert listener.calls == []


@pytest.mark.parametrize(
    ("strange", "sends"),
    [
        ({}, True),
        ({"LC_ALL": "de_DE.utf8"}, True),
        ({"LC_ALL": "", "LC_CTYPE": "", "LANG": "en_US.UTF-8"}, True),
        ({"LC_ALL": "", "LC_CTYPE": "C", "LANG": "en_US.UTF-8"}, False),
        ({"LC_ALL": "C"}, False),
        ({"LC_ALL": "de_DE.ISO-8859-1"}, False),
        ({"LC_ALL": "de_DE.UTF-8@euro"}, False),
        ({"PYTHONUTF8": "0"}, False),
        ({"PYTHONUTF8": "1"}, True),
    ],
    ids=repr,
)
def test_other_characters_are_sent_where_arguments_are_utf8(
    native: Native, listener: Listening, tmp_path: Path, strange: dict[str, str], sends: bool
) -> None:
    env = environment(listener, tmp_path, **strange)
    assert is_untouched(native, ["submit", "--", "é"], env) is not sends
    assert len(listener.calls) == sends


def test_a_server_that_no_proxy_stands_before_is_asked(
    native: Native, listener: Listening, tmp_path: Path
) -> None:
    env = environment(listener, tmp_path, http_proxy="http://127.0.0.1:1")
    assert not is_untouched(native, PLAIN, env)
    env["CEDE_SERVER"] = f"http://localhost:{listener.port}//"
    assert not is_untouched(native, PLAIN, env)
    assert len(listener.calls) == 2


@pytest.mark.parametrize(
    ("proxy", "sends"), [("http_proxy", False), ("ALL_PROXY", False), ("PROXY", True)]
)
def test_a_server_that_a_proxy_may_stand_before_is_left_to_python(
    native: Native, tmp_path: Path, proxy: str, sends: bool
) -> None:
    with listening("127.0.0.2") as listener:
        env = environment(listener, tmp_path, **{proxy: "http://127.0.0.1:1"})
        assert is_untouched(native, PLAIN, env) is not sends
        assert len(listener.calls) == sends


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_a_closed_standard_file_is_pythons_trouble(
    native: Native, listener: Listening, tmp_path: Path, closed: int
) -> None:
    command = ["sh", "-c", f'exec "$0" "$@" {closed}>&-', native.path, *PLAIN]
    done = subprocess.run(command, env=environment(listener, tmp_path), check=False)
    assert (done.returncode, listener.calls) == (UNTOUCHED, [])


def test_a_server_that_is_away_is_left_to_python(native: Native, tmp_path: Path) -> None:
    with listening() as gone:
        env = environment(gone, tmp_path)
    assert is_untouched(native, PLAIN, env)


def test_the_program_beside_the_command_is_found_through_a_link(
    native: Native, listener: Listening, tmp_path: Path
) -> None:
    (tmp_path / "cede").symlink_to(native.path)
    linked = [tmp_path / "cede", "--version"]
    assert subprocess.run(linked, check=False).returncode == UNTOUCHED


def test_a_command_without_its_program_says_so(native: Native, tmp_path: Path) -> None:
    alone = tmp_path / "cede"
    alone.write_bytes(native.path.read_bytes())
    alone.chmod(0o755)
    env = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run([alone, "up"], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: cede cannot start cede-python: No such file or directory\n"
