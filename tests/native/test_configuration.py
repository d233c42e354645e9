"""the compiled command finds the server that the Python program finds, or leaves it to that."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cede.client.config import resolve
from cede.client.contexts import Context, Contexts
from tests.native.running import Native, is_untouched
from tests.native.servers import Listening, authority_and_token

pytestmark = pytest.mark.system
PLAIN = ["submit", "--", "true"]


class Home:
    """A home, a current folder, and what configures a server there."""

    def __init__(self, folder: Path, listener: Listening, native: Native) -> None:
        self.native, self.listener = native, listener
        self.home, self.here = folder / "home", folder / "here"
        self.own = self.here / ".cede" / "client.yaml"
        self.left = self.home / ".local" / "share" / "cede" / "client.yaml"
        self.contexts = self.home / ".config" / "cede" / "contexts.json"
        for each in (self.own, self.left, self.contexts):
            each.parent.mkdir(parents=True)
        self.env = {"HOME": str(self.home), "PATH": os.environ["PATH"]}

    def lines(self, token: str) -> str:
        return f"server: {self.listener.url}\ntoken: {token}\n"

    def logged_in(self, current: str | None = "b", **more: Context) -> None:
        url = self.listener.url
        known = {"a": Context(url, "cede_a"), "b": Context(url, "cede_b"), **more}
        Contexts(str(self.contexts), known, current).write()

    def is_left_to_python(self, monkeypatch: pytest.MonkeyPatch) -> bool:
        """Whether it is; if not, the call went where Python's would have gone."""
        monkeypatch.chdir(self.here)
        monkeypatch.setenv("HOME", self.env["HOME"])  # the tilde is not looked up in `environ`
        self.listener.reset()
        if is_untouched(self.native, PLAIN, self.env):
            assert self.listener.calls == []
            return True
        found = resolve(environ=self.env)
        assert [found.servers, found.ca] == [(self.listener.url,), ""]
        host = f"Host: 127.0.0.1:{self.listener.port}"
        said = (host.encode(), f"Authorization: Bearer {found.token}".encode())
        assert [tuple(authority_and_token(each)) for each in self.listener.calls] == [said]
        return False


@pytest.fixture
def home(tmp_path: Path, listener: Listening, native: Native) -> Home:
    return Home(tmp_path, listener, native)


def private(path: Path, text: str | bytes, mode: int = 0o600) -> None:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(mode)


def test_the_first_of_all_places_counts(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    assert home.is_left_to_python(monkeypatch)
    private(home.left, home.lines("cede_left"))
    assert not home.is_left_to_python(monkeypatch)
    home.logged_in(current=None)
    assert not home.is_left_to_python(monkeypatch)
    home.logged_in()
    assert not home.is_left_to_python(monkeypatch)
    private(home.own, home.lines("cede_own"))
    assert not home.is_left_to_python(monkeypatch)
    private(home.here / "given", home.lines("cede_given"))
    home.env["CEDE_CONFIG"] = "given"
    assert not home.is_left_to_python(monkeypatch)
    home.env |= {"CEDE_SERVER": home.listener.url, "CEDE_TOKEN": "cede_set"}
    assert not home.is_left_to_python(monkeypatch)
    del home.env["CEDE_SERVER"]
    assert home.is_left_to_python(monkeypatch)


@pytest.mark.parametrize(
    ("name", "place"),
    [("XDG_DATA_HOME", "cede/client.yaml"), ("XDG_CONFIG_HOME", "cede/contexts.json")],
)
def test_folders_of_the_desktop_are_followed(
    home: Home, monkeypatch: pytest.MonkeyPatch, name: str, place: str
) -> None:
    other = home.home / "other" / place
    other.parent.mkdir(parents=True)
    home.logged_in()
    private(home.left, home.lines("cede_left"))
    text = home.contexts.read_bytes() if place.endswith("json") else home.left.read_bytes()
    (home.contexts if place.endswith("json") else home.left).unlink()
    home.contexts.unlink(missing_ok=True)
    home.left.unlink(missing_ok=True)
    private(other, text)
    home.env[name] = str(home.home / "other")
    assert not home.is_left_to_python(monkeypatch)
    home.env[name] = ""
    assert home.is_left_to_python(monkeypatch)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o644, 0o660, 0o610, 0o601, 0o604, 0o700])
@pytest.mark.parametrize("place", ["own", "contexts"])
def test_a_file_that_others_may_use_is_pythons_to_refuse(
    home: Home, monkeypatch: pytest.MonkeyPatch, mode: int, place: str
) -> None:
    home.logged_in()
    private(home.own, home.lines("cede_x"))
    if place == "contexts":
        home.own.unlink()
    getattr(home, place).chmod(mode)
    secret = mode in ((0o600, 0o400, 0o640, 0o700) if os.geteuid() == 0 else (0o600, 0o400, 0o700))
    assert home.is_left_to_python(monkeypatch) is not secret


SPOILED = {
    "empty": "",
    "no line": "server: URL",
    "one line": "server: URL\n",
    "no end": "server: URL\ntoken: cede_x",
    "another": "server: URL\ntoken: cede_x\nca: /x\n",
    "first the token": "token: cede_x\nserver: URL\n",
    "comment": "# mine\nserver: URL\ntoken: cede_x\n",
    "quoted": 'server: "URL"\ntoken: cede_x\n',
    "blanks": "server:  URL\ntoken: cede_x\n",
    "other token": "server: URL\ntoken: 123\n",
    "empty token": "server: URL\ntoken: cede_\n",
    "of Windows": "server: URL\r\ntoken: cede_x\r\n",
    "marked": "\ufeffserver: URL\ntoken: cede_x\n",
    "NUL": "server: URL\ntoken: cede_x\n\0",
    "list": "server: [URL]\ntoken: cede_x\n",
    "TLS": "server: https://127.0.0.1:1\ntoken: cede_x\n",
    "large": "server: URL\ntoken: cede_x\n" + "#" * (1 << 20),
    "letters": "server: URL\ntoken: cede_é\n",
}


@pytest.mark.parametrize("spoiled", SPOILED)
def test_a_file_in_another_form_is_left_to_python(
    home: Home, monkeypatch: pytest.MonkeyPatch, spoiled: str
) -> None:
    private(home.own, SPOILED[spoiled].replace("URL", home.listener.url))
    private(home.left, home.lines("cede_left"))
    assert home.is_left_to_python(monkeypatch)


def test_what_is_no_file_is_left_to_python(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    private(home.left, home.lines("cede_left"))
    home.contexts.mkdir()
    assert home.is_left_to_python(monkeypatch)
    home.contexts.rmdir()
    home.own.mkdir()
    assert home.is_left_to_python(monkeypatch)
    home.own.rmdir()
    os.mkfifo(home.own)
    assert home.is_left_to_python(monkeypatch)
    home.own.unlink()
    home.env["CEDE_CONFIG"] = "/nowhere"
    assert home.is_left_to_python(monkeypatch)
    del home.env["CEDE_CONFIG"]
    assert not home.is_left_to_python(monkeypatch)
    home.env["HOME"] = ""
    assert home.is_left_to_python(monkeypatch)


def test_contexts_are_read_as_they_are_written(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    url = home.listener.url
    other = Context("https://x", "cede_x", "-----BEGIN\nx\n", "2027")
    home.logged_in(c=other)
    assert not home.is_left_to_python(monkeypatch)
    home.logged_in(current="c", c=other)
    assert home.is_left_to_python(monkeypatch)
    home.logged_in(current="c", c=Context(url, "cede_x", "ca"))
    assert home.is_left_to_python(monkeypatch)
    home.logged_in(current='é"\\', **{'é"\\': Context(url, "cede_c", "", "2027")})
    home.is_left_to_python(monkeypatch)  # if not, the call was the right one
    home.logged_in(current="gone")
    assert home.is_left_to_python(monkeypatch)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("}", ""),
        ('"token"', '"tokens"'),
        ('"cede_a"', "5"),
        ('"cede_b"', '"two words"'),
        ('"cede_b"', '"cede\\u005fb"'),
        ('"cede_b"', '"cede\\qb"'),
        ('"cede_b"', '"cede_b'),
        ('"cede_a"', '"é"'),
        ('"current": "b"', '"current": 7'),
        ('"current": "b"', '"current": nul'),
        ('  "a": {', '  "b": {'),
        ("\n}", "\n}x"),
        (' "contexts"', ' "context"'),
        ('"expires": ""', '"expires": "", "more": ""'),
    ],
)
def test_contexts_that_were_changed_are_left_to_python(
    home: Home, monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    home.logged_in()
    private(home.left, home.lines("cede_left"))
    assert not home.is_left_to_python(monkeypatch)
    text = home.contexts.read_text()
    assert old in text
    private(home.contexts, text.replace(old, new))
    assert home.is_left_to_python(monkeypatch)


def test_contexts_without_any_are_read(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    private(home.left, home.lines("cede_left"))
    private(home.contexts, json.dumps({"current": None, "contexts": {}}, indent=1))
    assert not home.is_left_to_python(monkeypatch)
    private(home.contexts, json.dumps({"current": None, "contexts": {}}))
    assert home.is_left_to_python(monkeypatch)
