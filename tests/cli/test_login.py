"""`cede login`, `cede use` and `cede up --tls`, as typed at a terminal of 80 columns."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from cede import Client
from tests.cli.terminal import Shown, Typing, typed
from tests.client.serving import Serving

pytestmark = pytest.mark.system


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "XDG_DATA_HOME": "/nowhere"}


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    serving = Serving(tmp_path_factory.mktemp("secure") / "data", options=("--tls", "--no-agent"))
    yield serving
    serving.stop()


def in_words(shown: Shown) -> str:
    return " ".join(shown.text.split())


def test_a_token_at_the_prompt_in_a_file_and_on_stdin(
    server: Serving, client: Client, home: dict[str, str], tmp_path: Path
) -> None:
    with Typing("login", server.url, "--name", "lab", env=home, cwd=tmp_path) as typing:
        typing.until("token for ")
        typing.press(f"{server.token}\n")
        shown = typing.ended()
    assert shown.code == 0 and server.token not in shown.text
    assert shown.lines[-1].startswith("logged in to lab as ")
    kept = tmp_path / "cede" / "contexts.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert typed("whoami", env=home, cwd=tmp_path).code == 0
    viewer = client.tokens.create("eyes", "viewer", expires_in=3600)
    (tmp_path / "token").write_text(viewer["token"])
    (tmp_path / "token").chmod(0o600)
    second = typed(
        "login", server.url, "--name", "eyes", "--token-file", "token", env=home, cwd=tmp_path
    )
    assert in_words(second).startswith("logged in to eyes as eyes, role viewer, until 20")
    assert typed("use", "--current", env=home, cwd=tmp_path).line == "eyes"
    listed = typed("use", env=home, cwd=tmp_path)
    assert [line.split()[:2] for line in listed.lines[1:]] == [
        *(["*", "eyes"], ["lab", server.url]),
    ]
    assert max(map(len, listed.lines)) <= 80
    assert typed("use", "lab", env=home, cwd=tmp_path).line == f"using lab ({server.url})"
    assert "did you mean lab?" in in_words(typed("use", "lap", env=home, cwd=tmp_path))
    piped = server.cede("login", server.url, "--name", "piped", input=viewer["token"], cwd=tmp_path)
    assert "logged in to piped as eyes" in piped.stdout
    # What the token may no longer do is said in words, and where it came from.
    typed("use", "eyes", env=home, cwd=tmp_path)
    client.tokens.revoke(viewer["id"])
    refused = typed("pool", "list", env=home, cwd=tmp_path)
    assert refused.code == 7
    assert "does not accept the token of context eyes: it is wrong, was revoked" in in_words(
        refused
    )
    assert f"then: cede login {server.url}" in in_words(refused)
    assert typed("logout", "eyes", env=home, cwd=tmp_path).line == "forgot eyes"
    assert "none is in use" in typed("use", "--current", env=home, cwd=tmp_path).text


def test_a_wrong_token_and_no_server_are_not_kept(
    server: Serving, home: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("cede_wrong")
    (tmp_path / "token").chmod(0o600)
    wrong = typed("login", server.url, "--token-file", "token", env=home, cwd=tmp_path)
    assert wrong.code == 7 and "does not accept the token" in in_words(wrong)
    away = typed("login", "http://127.0.0.1:9", "--token-file", "token", env=home, cwd=tmp_path)
    assert away.code == 6
    assert "no answer from http://127.0.0.1:9: nobody listens there" in in_words(away)
    assert "no TLS" not in in_words(away)
    plain = server.url.replace("http://", "https://")
    mixed = typed("login", plain, "--token-file", "token", env=home, cwd=tmp_path)
    assert mixed.code == 6 and "it does not speak TLS: write http://" in in_words(mixed)
    assert not (tmp_path / "cede" / "contexts.json").exists()


def test_a_file_of_this_folder_comes_first_and_is_named(
    server: Serving, home: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / ".cede").mkdir()
    shutil.copy(server.data / "client.yaml", tmp_path / ".cede" / "client.yaml")
    (tmp_path / "token").write_text(server.token)
    (tmp_path / "token").chmod(0o600)
    shown = typed("login", server.url, "--token-file", "token", env=home, cwd=tmp_path)
    assert "note: .cede/client.yaml comes first here" in in_words(shown)


def test_tls_is_trusted_by_its_fingerprint_or_its_authority(
    secure: Serving, home: dict[str, str], tmp_path: Path
) -> None:
    said = secure._log.read_text()
    printed = said.split("--trust ")[1].split()[0]
    assert secure.url.startswith("https://") and f"cede login {secure.url} --trust" in said
    (tmp_path / "token").write_text(secure.token)
    (tmp_path / "token").chmod(0o600)
    given = ("login", secure.url, "--name", "safe", "--token-file", "token")
    refused = typed(*given, env=home, cwd=tmp_path)
    assert refused.code == 6
    why = "self-signed certificate in certificate chain; its fingerprint is"
    assert f"is not trusted here: {why} {printed}" in in_words(refused)
    assert f"cede login {secure.url} --trust {printed}" in in_words(refused)
    other = "sha256:" + "0" * 64
    wrong = typed(*given, "--trust", other, env=home, cwd=tmp_path)
    assert "the server shows another certificate" in in_words(wrong)
    assert "is no fingerprint" in in_words(typed(*given, "--trust", "abc", env=home, cwd=tmp_path))
    authority = str(secure.data / "tls" / "ca.pem")
    for trust in (("--trust", printed), ("--ca", authority)):
        assert typed(*given, *trust, env=home, cwd=tmp_path).code == 0
        assert "local" in typed("pool", "list", env=home, cwd=tmp_path).text
    # The server's own client file trusts it too.
    env = {**home, "CEDE_CONFIG": str(secure.data / "client.yaml")}
    assert typed("whoami", env=env, cwd=tmp_path).code == 0


def test_the_own_agent_of_a_server_with_tls_joins(home: dict[str, str], tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    serving = Serving(tmp_path / "data", options=("--tls", "--allow-root-jobs"))
    try:
        env = {**home, "CEDE_CONFIG": str(tmp_path / "data" / "client.yaml")}
        assert typed("submit", "--wait", "--", "true", env=env, cwd=tmp_path).code == 0
    finally:
        serving.stop()
