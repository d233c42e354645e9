"""A real server as a real process: it says when it serves, and stops without losing anybody."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.server.helpers import PATIENCE, until

pytestmark = [pytest.mark.system, pytest.mark.slow]

START = (
    "import sys; from cede.server.run import main; sys.exit(main([*sys.argv[1:], '--no-agent']))"
)


class Server:
    def __init__(self, data: Path, *flags: str) -> None:
        self.data = data
        self.process = subprocess.Popen(
            self.command(data, *flags), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def command(self, data: Path, *flags: str) -> list[str]:
        return [sys.executable, "-c", START, "--data", str(data), "--port", "0", *flags]

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def said(self, start: str) -> str | None:
        return next((line for line in self.lines if line.startswith(start)), None)

    @property
    def url(self) -> str:
        return str(until(lambda: self.said("cede is serving on "), "serving").split()[-1])

    def call(self, method: str, path: str, body: Any = None) -> Any:
        url = self.url + path
        token = yaml.safe_load((self.data / "client.yaml").read_text())["token"]
        request = urllib.request.Request(
            url,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.load(answer)

    def end(self) -> int:
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code


@contextmanager
def serving(data: Path, *flags: str) -> Iterator[Server]:
    server = Server(data, *flags)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
        server.process.wait(PATIENCE)
        server._reader.join(PATIENCE)
        for stream in (server.process.stdout, server.process.stderr):
            if stream is not None:
                stream.close()


def errors(server: Server) -> str:
    assert server.process.stderr is not None
    return server.process.stderr.read()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_and_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path / "data") as server:
        made = server.call("POST", "/api/v1/requests", {"resources": {"mcpu": 100}})
        assert made["status"] == "allocated"
        secret = yaml.safe_load((tmp_path / "data" / "client.yaml").read_text())["token"]
        # The page is opened by a link; said before the line that we have waited for.
        (said,) = [line for line in server.lines if f" {server.url}/#link=" in line]
        opened = server.call("POST", "/api/v1/links/open", {"code": said.rpartition("=")[2]})
        assert opened == {"token": secret}
        server.process.send_signal(number)
        assert server.end() == 0
        assert errors(server) == ""
    if number == signal.SIGTERM:
        with serving(tmp_path / "data") as server:
            assert server.call("GET", f"/api/v1/requests/{made['id']}")["status"] == "allocated"
            assert server.said("administrator token") is None
            assert not any(secret in line for line in server.lines)


def test_an_open_stream_does_not_keep_it_from_stopping(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server:
        url = server.url + "/api/v1/events?after=0&follow=true"
        token = yaml.safe_load((tmp_path / "data" / "client.yaml").read_text())
        request = urllib.request.Request(
            url,
            headers={
                "Authorization": f"Bearer {token['token']}",
                "Accept": "text/event-stream",
            },
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as stream:
            assert stream.readline()
            server.process.send_signal(signal.SIGTERM)
            assert server.end() == 0


def test_a_second_server_on_one_database_waits_and_takes_over(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as first:
        made = first.call("POST", "/api/v1/requests", {"resources": {"mcpu": 100}})
        with serving(tmp_path / "data") as impatient:
            until(lambda: impatient.said("waiting for the server"), "the word")
            impatient.process.send_signal(signal.SIGINT)
            assert impatient.end() == 0
        with serving(tmp_path / "data") as second:
            until(lambda: second.said("waiting for the server"), "the word")
            assert second.said("cede is serving on") is None
            first.process.kill()
            assert second.call("GET", f"/api/v1/requests/{made['id']}")["status"] == "allocated"
            second.process.send_signal(signal.SIGTERM)
            assert second.end() == 0


def test_the_second_interrupt_does_not_wait(tmp_path: Path) -> None:
    """A call that never ends keeps a server that stops; a second Ctrl-C ends it at once."""
    with serving(tmp_path / "data") as server:
        host, port = server.url.removeprefix("http://").split(":")
        token = yaml.safe_load((tmp_path / "data" / "client.yaml").read_text())["token"]
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as half:
            half.sendall(
                b"POST /api/v1/requests HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n"
                b"Content-Type: application/json\r\nAuthorization: Bearer %b\r\n\r\n{"
                % token.encode()
            )
            server.call("GET", "/api/v1/whoami")  # by now the half call is under way
            server.process.send_signal(signal.SIGINT)
            until(lambda: _refused(host, int(port)), "closing the door")
            assert server.process.poll() is None
            server.process.send_signal(signal.SIGINT)
            assert server.end() == 130


def _refused(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=PATIENCE).close()
    except OSError:
        return True
    return False


def test_a_port_that_is_taken_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with serving(tmp_path / "data", "--port", str(port)) as server:
            assert server.end() == 1
            assert errors(server) == (
                f"cede: cannot listen on 127.0.0.1:{port}: Address already in use\n"
            )


def test_a_database_of_another_program_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("dear diary")
    with serving(tmp_path, "--database", f"sqlite:///{tmp_path / 'notes.db'}") as server:
        assert server.end() == 1
        assert errors(server).count("\n") == 1
    assert (tmp_path / "notes.db").read_text() == "dear diary"


def test_a_database_that_was_rolled_back_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with serving(data) as server:
        server.call("POST", "/api/v1/requests", {"resources": {"mcpu": 100}})
        server.process.send_signal(signal.SIGTERM)
        assert server.end() == 0
    for old in data.glob("cede.db*"):
        old.unlink()
    with serving(data) as server:
        assert server.end() == 1
        assert "was replaced by an older copy" in errors(server)


def test_wrong_flags_exit_with_2_and_name_everything(tmp_path: Path) -> None:
    with serving(tmp_path, "--host", "0.0.0.0", "--unpooled", "maybe") as server:
        assert server.end() == 2
        assert errors(server).count("\n") == 2
