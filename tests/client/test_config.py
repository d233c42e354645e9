"""Which server and which token, and that a token never travels to a server it was not meant for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cede.client.config import read_token, resolve
from cede.client.errors import NotConfigured
from cede.server.boot import CLIENT_FILE
from cede.server.config import default_data


@pytest.fixture(autouse=True)
def clean_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def write(path: Path, server: str = "http://filed:1", token: str = "from-file") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"server: {server}\ntoken: {token}\n")
    path.chmod(0o600)
    return path


def test_the_environment_comes_before_files(clean_home: Path) -> None:
    write(clean_home / ".cede" / "client.yaml")
    found = resolve(environ={"CEDE_SERVER": "http://here:1/", "CEDE_TOKEN": "t"})
    assert (found.server, found.token) == ("http://here:1", "t")


def test_files_are_read_in_the_documented_order(clean_home: Path) -> None:
    home = write(clean_home / "home/.local/share/cede/client.yaml", "http://home:1")
    assert resolve(environ={}).server == "http://home:1"
    write(clean_home / ".cede" / "client.yaml", "http://folder:1")
    assert resolve(environ={}).server == "http://folder:1"
    named = write(clean_home / "named.yaml", "http://named:1")
    assert resolve(environ={"CEDE_CONFIG": str(named)}).server == "http://named:1"
    assert home.exists()


def test_client_and_server_agree_where_the_file_is(clean_home: Path) -> None:
    for environ in ({}, {"XDG_DATA_HOME": str(clean_home / "data")}):
        write(default_data(environ) / CLIENT_FILE, "http://left-by-the-server:1")
        assert resolve(environ=environ).server == "http://left-by-the-server:1"


def test_several_servers_are_one_line_or_a_list(clean_home: Path) -> None:
    given = {"CEDE_SERVER": "http://a:1/, https://b:2", "CEDE_TOKEN": "t"}
    assert resolve(environ=given).servers == ("http://a:1", "https://b:2")
    write(clean_home / ".cede" / "client.yaml", "[http://a:1, https://b:2/]")
    assert resolve(environ={}).servers == ("http://a:1", "https://b:2")
    assert resolve("http://a:1,https://b:2", environ={}).token == "from-file"
    with pytest.raises(NotConfigured, match="no token"):
        resolve("http://a:1", environ={})
    write(clean_home / ".cede" / "client.yaml", "[http://a:1, 7]")
    with pytest.raises(NotConfigured, match="may be a list"):
        resolve(environ={})


def test_a_token_from_the_environment_is_not_sent_to_a_server_from_a_file(clean_home: Path) -> None:
    write(clean_home / ".cede" / "client.yaml", "http://somebody-elses:1")
    with pytest.raises(NotConfigured, match="no server"):
        resolve(environ={"CEDE_TOKEN": "secret"})


def test_a_token_from_a_file_is_not_sent_to_another_server(clean_home: Path) -> None:
    write(clean_home / ".cede" / "client.yaml")
    with pytest.raises(NotConfigured, match="no token"):
        resolve(server="http://other:1", environ={})
    assert resolve(server="http://filed:1", environ={}).token == "from-file"


def test_nothing_configured_says_what_to_do() -> None:
    with pytest.raises(NotConfigured) as caught:
        resolve(environ={})
    assert "cede up" in caught.value.fix


@pytest.mark.parametrize("text", ["", "[1]", "server: http://a:1", "server: [\n", "\x00"])
def test_a_broken_file_is_named(clean_home: Path, text: str) -> None:
    path = clean_home / "broken.yaml"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(NotConfigured, match=r"broken\.yaml") as caught:
        resolve(environ={"CEDE_CONFIG": str(path)})
    assert "chmod" not in caught.value.fix


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o620, 0o602, 0o610, 0o666])
def test_a_file_that_others_may_use_is_refused_with_the_fix(clean_home: Path, mode: int) -> None:
    path = write(clean_home / "our files" / "client.yaml")
    path.chmod(mode)
    environ = {"CEDE_CONFIG": str(path)}
    with pytest.raises(NotConfigured, match="others than its owner") as caught:
        resolve(environ=environ)
    assert "from-file" not in str(caught.value)
    subprocess.run(["sh", "-c", caught.value.fix], check=True)  # as a person would type it
    assert resolve(environ=environ).token == "from-file"


def test_a_file_of_another_name_is_judged_by_what_it_points_to(clean_home: Path) -> None:
    path = write(clean_home / "real.yaml")
    (clean_home / "link.yaml").symlink_to(path)  # whose own mode says nothing
    environ = {"CEDE_CONFIG": str(clean_home / "link.yaml")}
    assert resolve(environ=environ).token == "from-file"
    path.chmod(0o604)
    with pytest.raises(NotConfigured, match="others than its owner"):
        resolve(environ=environ)


def test_arguments_need_no_file_to_be_private(clean_home: Path) -> None:
    write(clean_home / ".cede" / "client.yaml").chmod(0o644)
    assert resolve("http://a:1", "t", environ={}).token == "t"


def test_a_missing_named_file_is_an_error_and_not_a_fallback(clean_home: Path) -> None:
    write(clean_home / ".cede" / "client.yaml")
    with pytest.raises(NotConfigured, match="nowhere"):
        resolve(environ={"CEDE_CONFIG": "nowhere.yaml"})


def test_the_token_is_not_in_the_repr() -> None:
    found = resolve("http://a:1", "very-secret", environ={})
    assert "very-secret" not in repr(found)


def test_a_token_file_holds_one_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.touch(mode=0o600)
    path.write_text("cede_abc\n")
    assert read_token(path) == "cede_abc"
    for bad in ("", "two words"):
        path.write_text(bad)
        with pytest.raises(NotConfigured, match="one token"):
            read_token(path)
    path.write_text("cede_abc\n")
    path.chmod(0o644)
    with pytest.raises(NotConfigured, match="others than its owner") as refused:
        read_token(path)
    assert refused.value.fix == f"chmod 600 {path}"
    with pytest.raises(NotConfigured, match="cannot read"):
        read_token(tmp_path / "missing")
