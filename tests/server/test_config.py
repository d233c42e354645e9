"""What a server may be told, and that it says everything that is wrong at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from cede.server.config import Config, ConfigError, load_config


def problems(arguments: list[str], environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as refusal:
        load_config(arguments, environ or {})
    return refusal.value.problems


def test_without_anything_it_serves_this_machine_only() -> None:
    config = load_config([], {"XDG_DATA_HOME": "/data"})
    assert config == Config(Path("/data/cede"), "sqlite:////data/cede/cede.db")
    assert (config.host, config.port) == ("127.0.0.1", 8080)


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    file.write_text("port: 1\nhost: 127.0.0.3\nunpooled: refuse\nallowed_hosts: [gpu.lab]\n")
    environ = {"CEDE_PORT": "2", "CEDE_HOST": "127.0.0.2", "CEDE_SERVER_CONFIG": str(file)}
    config = load_config(["--port", "3", "--data", str(tmp_path)], environ)
    assert (config.port, config.host, config.unpooled) == (3, "127.0.0.2", "refuse")
    assert config.allowed_hosts == ("gpu.lab",)
    assert config.database == f"sqlite:///{tmp_path}/cede.db"


def test_every_problem_is_named_at_once(tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    file.write_text("port: '8080'\nprot: 1\nunpooled: maybe\nallowed_hosts: gpu.lab\n")
    found = problems(["--config", str(file), "--log-level", "loud"], {"CEDE_INSECURE_LISTEN": "ja"})
    assert [each.split(": ")[1 if each.startswith("/") else 0] for each in found] == [
        "port",
        "unknown key 'prot'; did you mean port? known are agent, allow_root_jobs, allowed_hosts, "
        "data, database, "
        "heartbeat, host, insecure_listen, keep_audit, keep_events, keep_idempotency, "
        "keep_requests, log_level, port, tls, tls_cert, tls_key, unpooled",
        "unpooled",
        "allowed_hosts",
        "CEDE_INSECURE_LISTEN",
        "--log-level",
    ]


@pytest.mark.parametrize(
    "content", ["- a list", "port: [", "1: 2", "\x00"], ids=["a list", "broken", "numbers", "NUL"]
)
def test_a_file_that_is_no_map_is_refused(content: str, tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    file.write_text(content)
    assert len(problems(["--config", str(file)])) == 1


def test_a_missing_file_is_a_problem_and_an_empty_one_is_not(tmp_path: Path) -> None:
    assert "cannot read" in problems(["--config", str(tmp_path / "gone")])[0]
    (tmp_path / "empty").write_text("")
    load_config(["--config", str(tmp_path / "empty")], {})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "gpu.lab"])
def test_other_machines_are_served_only_on_purpose(host: str, tmp_path: Path) -> None:
    assert "tokens would travel in the clear" in problems(["--host", host])[0]
    load_config(["--host", host, "--insecure-listen"], {})
    for name in ("cert", "key"):
        (tmp_path / name).touch(0o600)
    tls = ["--tls-cert", str(tmp_path / "cert"), "--tls-key", str(tmp_path / "key")]
    config = load_config(["--host", host, *tls], {})
    assert config.url(443).startswith("https://")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_nothing(host: str) -> None:
    assert load_config(["--host", host], {}).host == host


def test_a_certificate_needs_its_key_and_both_must_exist() -> None:
    assert problems(["--tls-cert", "/nowhere"]) == [
        "tls_cert and tls_key come together",
        "tls_cert: /nowhere is not a file",
    ]


def test_a_server_beyond_this_machine_has_tls_or_is_told() -> None:
    (found,) = problems(["--host", "0.0.0.0"])
    assert "cede up --tls makes a certificate" in found
    for flag in ("--tls", "--insecure-listen"):
        assert load_config(["--host", "0.0.0.0", flag], {}).host == "0.0.0.0"
    assert load_config(["--tls"], {}).url(1) == "https://127.0.0.1:1"
    assert problems(["--tls", "--tls-cert", "/nowhere", "--tls-key", "/nowhere"])[0] == (
        "tls makes a certificate, and tls_cert names one: give one of them"
    )


@pytest.mark.parametrize(("mode", "ok"), [(0o600, True), (0o400, True), (0o644, False)])
def test_a_key_that_others_may_use_is_refused_with_the_fix(
    tmp_path: Path, mode: int, ok: bool
) -> None:
    cert, key = tmp_path / "cert", tmp_path / "a key"
    cert.touch(0o644)  # everybody may see it
    key.touch()
    key.chmod(mode)
    flags = ["--tls-cert", str(cert), "--tls-key", str(key)]
    if ok:
        assert load_config(flags, {}).tls_key == key
    else:
        fix = f"chmod 600 '{key}'"
        assert problems(flags) == [f"tls_key: others than its owner may use {key}; {fix}"]


@pytest.mark.parametrize(
    ("address", "mode", "ok"),
    [
        ("postgresql://cede:secret@db/cede", 0o644, False),
        ("postgresql://cede:secret@db/cede", 0o600, True),
        ("postgresql://cede@db/cede", 0o644, True),
    ],
    ids=["a password that others may read", "a private file", "no password"],
)
def test_a_file_with_a_password_that_others_may_use_is_refused_with_the_fix(
    tmp_path: Path, address: str, mode: int, ok: bool
) -> None:
    file = tmp_path / "server.yaml"
    file.write_text(f"database: {address}\n")
    file.chmod(mode)
    flags = ["--config", str(file)]
    if ok:
        assert load_config(flags, {}).file == file
    else:
        [said] = problems(flags)
        assert "database has a password" in said and said.endswith(f"chmod 600 {file}")
        assert "secret" not in said


def test_urls_are_for_this_machine() -> None:
    config = load_config(["--host", "0.0.0.0", "--insecure-listen"], {})
    assert config.url(80) == "http://127.0.0.1:80"
    assert load_config(["--host", "::1"], {}).url(80) == "http://[::1]:80"


def test_every_setting_is_in_the_reference() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "server.md").read_text()
    for name in Config.__dataclass_fields__.keys() - {"file"}:  # that says where they were read
        assert f"`{name}`" in page
        assert f"`--{name.replace('_', '-')}`" in page
        assert f"`CEDE_{name.upper()}`" in page


@pytest.mark.parametrize("text", ["0", "0.05", "soon", "-1", "1e3", "86400"])
def test_a_heartbeat_has_bounds(text: str) -> None:
    with pytest.raises(ConfigError, match="--heartbeat"):
        load_config([f"--heartbeat={text}"], {})


def test_a_heartbeat_is_in_seconds() -> None:
    assert load_config(["--heartbeat", "2.5"], {}).heartbeat == 2_500
    assert load_config([], {"CEDE_HEARTBEAT": "7"}).heartbeat == 7_000
