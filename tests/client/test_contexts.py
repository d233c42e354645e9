"""The file of contexts: its owner's alone, whole, and behind what a shell or a folder says."""

from __future__ import annotations

import stat
from pathlib import Path

import click
import pytest

from cede.cli.login_command import ContextName, use
from cede.client.config import resolve
from cede.client.contexts import Context, read_contexts
from cede.client.errors import NotConfigured, NotFound
from cede.client.trust import parse_fingerprint


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.chdir(tmp_path)
    found = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_DATA_HOME": str(tmp_path / "data")}
    none = read_contexts(found)
    lab = none.with_context("lab", Context("http://lab:1", "cede_a", "", "2030-01-01T00:00:00Z"))
    lab.with_context("farm", Context("http://farm:1", "cede_b")).write()
    return found


def test_the_one_in_use_is_the_last_logged_in_to(environ: dict[str, str], tmp_path: Path) -> None:
    assert resolve(environ=environ).server == "http://farm:1"
    read_contexts(environ).using("lab").write()
    found = resolve(environ=environ)
    assert (found.server, found.token, found.source) == ("http://lab:1", "cede_a", "context lab")
    assert found.expires.startswith("2030")
    own = {"CEDE_SERVER": "http://here:1", "CEDE_TOKEN": "cede_c"}
    assert resolve(environ={**environ, **own}).server == "http://here:1"
    (tmp_path / ".cede").mkdir()
    file = tmp_path / ".cede" / "client.yaml"
    file.write_text("server: http://folder:1\ntoken: cede_d\nca: /some/ca.pem\n")
    file.chmod(0o600)
    folder = resolve(environ=environ)
    assert (folder.server, folder.ca) == ("http://folder:1", "/some/ca.pem")


def test_what_cede_up_left_comes_last(environ: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "data" / "cede" / "client.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("server: http://up:1\ntoken: cede_d\n")
    file.chmod(0o600)
    assert resolve(environ=environ).server == "http://farm:1"
    read_contexts(environ).without("farm").write()
    assert resolve(environ=environ).server == "http://up:1"


def test_only_its_owner_may_read_it(environ: dict[str, str]) -> None:
    path = Path(read_contexts(environ).path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    with pytest.raises(NotConfigured, match="others than its owner may use it"):
        resolve(environ=environ)
    path.chmod(0o600)
    path.write_text("{")
    with pytest.raises(NotConfigured, match="cannot read"):
        resolve(environ=environ)


def test_a_name_that_is_none_gets_the_nearest(environ: dict[str, str]) -> None:
    with pytest.raises(NotFound, match=r"no context 'fram'; did you mean farm\?"):
        read_contexts(environ).using("fram")


def test_names_complete(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", environ["XDG_CONFIG_HOME"])
    found = ContextName().shell_complete(click.Context(use), use.params[0], "la")
    assert [each.value for each in found] == ["lab"]


def test_a_fingerprint_may_be_written_as_openssl_does() -> None:
    ours = "sha256:" + "0a" * 32
    assert parse_fingerprint("sha256 Fingerprint=" + ":".join(["0A"] * 32)) == ours
    assert parse_fingerprint(ours) == ours
    with pytest.raises(NotConfigured, match="is no fingerprint"):
        parse_fingerprint("0a")
