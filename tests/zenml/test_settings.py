"""The plug-in's environment, and how long it lets a ZenML server wait; without ZenML."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cede.client.config import Connection
from cede.client.errors import (
    Forbidden,
    Invalid,
    NotConfigured,
    ServerBroken,
    ServerUnreachable,
    Unauthorized,
)
from cede.integrations.zenml import mapping
from cede.integrations.zenml.line import Line, advice
from cede.integrations.zenml.settings import Settings

WHERE = {"CEDE_SERVER": "http://127.0.0.1:1", "CEDE_TOKEN": "t", "HOME": "/nonexistent"}


def test_the_usual_settings_fail_closed() -> None:
    found = Settings.read(WHERE)
    assert (found.fail_open, found.timeout, found.lease) == (False, 10.0, 330.0)
    assert found.connection.server == "http://127.0.0.1:1"


def test_each_setting_is_read() -> None:
    given = {"CEDE_ZENML_FAIL_OPEN": "True", "CEDE_ZENML_TIMEOUT": "2", "CEDE_ZENML_LEASE": "60"}
    found = Settings.read(WHERE | given)
    assert (found.fail_open, found.timeout, found.lease) == (True, 2.0, 60.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CEDE_ZENML_FAIL_OPEN", "maybe"),
        ("CEDE_ZENML_TIMEOUT", "0"),
        ("CEDE_ZENML_TIMEOUT", "3600"),
        ("CEDE_ZENML_TIMEOUT", "nan"),
        ("CEDE_ZENML_LEASE", "soon"),
        ("CEDE_SERVER", "cede.example.org"),
    ],
)
def test_a_value_that_cannot_be_right_names_its_variable(name: str, value: str) -> None:
    with pytest.raises(NotConfigured) as caught:
        Settings.read(WHERE | {name: value})
    assert name in caught.value.message or value in caught.value.message


@pytest.mark.parametrize("absent", ["CEDE_SERVER", "CEDE_TOKEN"])
def test_what_is_missing_is_named_with_what_to_do_in_one_line(absent: str, tmp_path: Path) -> None:
    """All that a ZenML server shows of it is its message."""
    environ = {**WHERE, "XDG_DATA_HOME": str(tmp_path)}
    del environ[absent]
    with pytest.raises(NotConfigured, match=f"give the ZenML server .*{absent}"):
        Settings.read(environ)


def test_a_misspelt_setting_is_found_at_the_start_and_not_when_it_is_needed() -> None:
    with pytest.raises(NotConfigured, match=r"_FAILOPEN is no .*CEDE_ZENML_FAIL_OPEN"):
        Settings.read(WHERE | {"CEDE_ZENML_FAILOPEN": "true"})


def test_the_token_may_be_in_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-a-file\n")
    (tmp_path / "token").chmod(0o600)
    environ = {**WHERE, "CEDE_TOKEN_FILE": str(tmp_path / "token")}
    del environ["CEDE_TOKEN"]
    assert Settings.read(environ).connection.token == "from-a-file"
    with pytest.raises(NotConfigured, match="cannot read"):
        Settings.read(environ | {"CEDE_TOKEN_FILE": str(tmp_path / "absent")})


class Silent:
    """Something that takes connections and never answers; it counts them."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"

    def asked(self) -> int:
        self._listening.setblocking(False)
        for count in itertools.count():
            try:
                self._listening.accept()[0].close()
            except BlockingIOError:
                return count
        raise AssertionError("the loop above returns")


@pytest.fixture
def silent() -> Iterator[Silent]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield Silent(listening)


def line(server: str, timeout: float) -> Line:
    return Line(Settings(Connection(server, "t"), timeout=timeout))


def test_a_server_that_never_answers_is_asked_twice_at_most(silent: Silent) -> None:
    """Each time for half of what it was given."""
    with pytest.raises(ServerUnreachable):
        line(silent.url, 1.0).create({}, key="k")
    assert 1 <= silent.asked() <= 2


def test_a_server_that_is_not_there_is_tried_until_the_time_is_over() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        gone = f"http://127.0.0.1:{listening.getsockname()[1]}"
    began = time.monotonic()
    with pytest.raises(ServerUnreachable):
        line(gone, 1.0).create({}, key="k")
    assert time.monotonic() - began > 0.5


def test_a_heartbeat_is_tried_once(silent: Silent) -> None:
    with pytest.raises(ServerUnreachable):
        line(silent.url, 1.0).renew("r", running=True)
    assert silent.asked() == 1


def test_an_answer_that_cannot_be_read_is_not_a_request_that_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a `KeyError` ZenML would understand just that, and stop the step."""
    asked = line("http://127.0.0.1:1", 1.0)
    fields = dict.fromkeys(mapping.FIELDS)
    for answer in ({}, {"status": "allocated"}, fields | {"status": "of a later version"}):
        monkeypatch.setattr(asked.client.requests, "renew", lambda *_, a=answer, **__: a)
        with pytest.raises(ServerBroken, match="is no request that this plug-in knows"):
            asked.renew("r", running=True)


def test_what_is_said_says_what_to_do() -> None:
    said = advice(ServerUnreachable("no answer"), "http://cede")
    assert said.startswith("cede at http://cede: no answer; start the cede server")
    assert "CEDE_ZENML_FAIL_OPEN" in said
    busy = advice(ServerUnreachable("later", status=503), "http://cede")
    assert busy.endswith("it is busy or being restarted; run the step again, or give it retries")
    assert "a valid token" in advice(Unauthorized("no"), "http://cede")
    assert "role operator" in advice(Forbidden("not bound to orchestrator:x"), "http://cede")
    assert advice(Invalid("gpu: no", fix="ask for 1"), "http://cede").endswith("; ask for 1")
