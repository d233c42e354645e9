"""Whatever comes back, a user sees what the Python program shows, and there is one request."""

from __future__ import annotations

import re
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from cede import Client
from tests.cli.terminal import Typing
from tests.client.serving import BIN, Serving, eventually, two_teams
from tests.native.running import UNTOUCHED, Native, environment
from tests.native.servers import (
    ID,
    MADE,
    SHORT_ID,
    Answer,
    Listening,
    hangs_up,
    key_of,
    says,
    whole_call,
)

pytestmark = pytest.mark.system
PLAIN = ["submit", "--", "true"]
PLAIN_BYTES = [each.encode() for each in PLAIN]
# Of those that Python understands, what the compiled command does by itself.
UNDERSTOOD = ("an escaped name", "letter by letter")
PROBLEM = b'{"type":"urn:cede:problem:%s","title":"no","status":422,"detail":"not that"}'
REJECTED = b'{"id":"%s","status":"rejected","reason":{"text":"no room"}}' % ID.encode()


def both(
    whole: Native, listener: Listening, home: Path, *answers: Answer
) -> subprocess.CompletedProcess[bytes]:
    """What the compiled command shows; the Python program alone shows the same."""
    env = environment(listener, home)
    shown = []
    for command in (whole.path, BIN / "cede-python"):
        listener.reset(*answers)
        done = Native(Path(command)).run(PLAIN, env)
        shown.append((done.returncode, done.stdout, done.stderr))
        keys = {key_of(each) for each in listener.calls}
        assert len(keys) == 1, "a repeated call has the same key"
        assert len({*listener.calls}) == 1, "and the same bytes"
    assert shown[0] == shown[1]
    return done


FOREIGN: dict[str, Answer] = {
    "a problem": says(PROBLEM % b"invalid", "422 Unprocessable"),
    "a wrong token": says(PROBLEM % b"unauthorized", "401 Unauthorized"),
    "a conflict": says(PROBLEM % b"conflict", "409 Conflict"),
    "rejected": says(REJECTED),
    "nothing": says(b"", "204 No Content"),
    "elsewhere": says(b"", "302 Found", "location: /x", "content-length: 0"),
    "no JSON": says(b"<html>"),
    "an empty body": says(b""),
    "a list": says(b'[{"id":"x"}]'),
    "no status": says(b'{"id":"%s"}' % ID.encode()),
    "no id": says(b'{"status":"queued"}'),
    "inside": says(b'{"a":{"id":"x","status":"queued"}}'),
    "cut JSON": says(MADE[:-1]),
    "more JSON": says(MADE + b"}"),
    "a NUL": says(MADE + b"\0"),
    "an open string": says(b'{"id":"%s","status":"queued}' % ID.encode()),
}


@pytest.mark.parametrize("foreign", FOREIGN)
def test_an_answer_that_is_not_plain_is_shown_by_python(
    whole: Native, listener: Listening, tmp_path: Path, foreign: str
) -> None:
    assert both(whole, listener, tmp_path, FOREIGN[foreign]).returncode != 0
    assert len(listener.calls) == 1


WHOLE = b"HTTP/1.1 201 Created\r\nContent-Length:%d\r\n\r\n%s" % (len(MADE), MADE)


def in_pieces(pieces: list[bytes]) -> Answer:
    def answer(to: socket.socket, _: bytes) -> None:
        for each in pieces:
            to.sendall(each)

    return answer


WELL: dict[str, Answer] = {
    "made": says(),
    "another success": says(MADE, "200 OK"),
    "an answer in chunks": says(
        b"%x\r\n%s\r\n0\r\n\r\n" % (len(MADE), MADE), "201 Created", "transfer-encoding: chunked"
    ),
    "more than its length": says(MADE + b"x", "201 Created", f"content-length: {len(MADE)}"),
    "until the end": says(MADE, "201 Created", "connection: close"),
    "another form of id": says(b'{"id":"abc","status":"queued"}'),
    "escapes": says(b'{"id":"\\u0061bc","status":"queued"}'),
    "twice": says(b'{"id":"no","status":"queued","id":"yes"}'),
    "status twice": says(MADE[:-1] + b',"status":"allocated"}'),
    "blanks": says(MADE.replace(b":", b" : ").replace(b",", b" ,\n")),
    "an escaped name": says(MADE[:-1] + b',"\\"id":"x"}'),
    "an earlier answer": in_pieces([b"HTTP/1.1 100 Continue\r\n\r\n", WHOLE]),
    "letter by letter": in_pieces([bytes([each]) for each in WHOLE]),
}


@pytest.mark.parametrize("well", WELL)
def test_an_answer_that_python_understands_is_understood(
    whole: Native, listener: Listening, tmp_path: Path, well: str
) -> None:
    assert both(whole, listener, tmp_path, WELL[well]).returncode == 0


def resets(to: socket.socket, _: bytes) -> None:
    to.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


LOST: dict[str, Answer] = {
    "without a word": hangs_up(),
    "by a reset": resets,
    "in the first line": hangs_up(b"HTTP/1.1 2"),
    "in the head": hangs_up(b"HTTP/1.1 201 Created\r\ncontent-length: 5\r\n"),
    "in the body": says(MADE[:20], "201 Created", f"content-length: {len(MADE)}"),
    "starting": says(PROBLEM % b"starting", "503 Unavailable"),
    "busy": says(PROBLEM % b"busy", "429 Too Many", "retry-after: 0", "content-length: 76"),
    "behind a proxy": says(b"<html>", "502 Bad Gateway"),
    "no HTTP": hangs_up(b"SSH-2.0-x\r\n\r\n"),
}


@pytest.mark.parametrize("lost", LOST)
def test_a_call_whose_answer_was_lost_is_repeated_by_python(
    whole: Native, listener: Listening, tmp_path: Path, lost: str
) -> None:
    done = both(whole, listener, tmp_path, LOST[lost], says())
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{ID}\n".encode(), b"")
    assert len(listener.calls) == 2


@pytest.mark.parametrize("answer", [*FOREIGN, *LOST, *sorted(WELL.keys() - {"made"})])
def test_what_was_sent_is_handed_over_by_its_key(
    native: Native, listener: Listening, tmp_path: Path, answer: str
) -> None:
    listener.reset((FOREIGN | LOST | WELL)[answer])
    done = native.run(PLAIN, environment(listener, tmp_path))
    if (done.returncode, done.stdout) == (0, f"{ID}\n".encode()):
        assert answer in UNDERSTOOD
    else:
        assert (done.returncode, done.stdout, done.stderr) == (UNTOUCHED, b"", b"")
        assert native.started() == (key_of(listener.calls[0]).decode(), PLAIN_BYTES)
    assert len(listener.calls) == 1


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 201 Created\r\ncontent-length: 5\r\n\r\n{"])
def test_a_server_that_is_silent_is_left_to_python_in_time(
    native: Native, listener: Listening, tmp_path: Path, said: bytes
) -> None:
    over = threading.Event()
    listener.reset(lambda to, _: (to.sendall(said), over.wait())[0])
    done = native.run(PLAIN, environment(listener, tmp_path))
    over.set()
    assert (done.returncode, done.stdout, done.stderr) == (UNTOUCHED, b"", b"")
    assert native.started() == (key_of(listener.calls[0]).decode(), PLAIN_BYTES)


@contextmanager
def cutting(server: Serving, cuts: list[str]) -> Iterator[str]:
    """The address of a relay to a server that cuts the connection at these places, one a call."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    taken, _ = listener.accept()
                except OSError:
                    return
                with taken, suppress(OSError):
                    relay(taken, cuts.pop(0) if cuts else "nowhere")

        def relay(taken: socket.socket, cut: str) -> None:
            call = whole_call(taken)
            if cut == "before":
                return
            with socket.create_connection(("127.0.0.1", server.port)) as up:
                up.sendall(call)
                answer = whole_call(up)
            taken.sendall({"after": b"", "amid": answer[:-1]}.get(cut, answer))

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server with an agent on this machine."""
    made = Serving(tmp_path_factory.mktemp("serving") / "data", options=("--allow-root-jobs",))
    try:
        with made.client() as client:
            eventually(lambda: [each["state"] for each in client.nodes.list()] == ["ready"])
        yield made
    finally:
        made.stop()


@pytest.mark.parametrize("cuts", [[], ["before"], ["after"], ["amid"], ["after", "amid", "after"]])
def test_however_often_the_answer_is_lost_there_is_one_request(
    whole: Native, serving: Serving, cuts: list[str]
) -> None:
    with cutting(serving, list(cuts)) as url:
        env = {**serving.environment(), "CEDE_SERVER": url}
        done = whole.run(["submit", "--name", "-".join(["cut", *cuts]), "--", "true"], env)
    assert (done.returncode, done.stderr) == (0, b"")
    with serving.client() as client:
        found = client.requests.list(**{"label.name": "-".join(["cut", *cuts])})
        assert done.stdout.decode().splitlines() == [each["id"] for each in found]


def test_what_a_real_server_rejects_is_said_by_python(
    whole: Native, server: Serving, client: Client
) -> None:
    two_teams(client)
    for line in (
        ["submit", "--pool", "gpus", "--component", "nobody", "-t", "team", "--", "true"],
        ["submit", "--pool", "nowhere", "--", "true"],
        ["submit", "--component", "a/b", "--", "true"],
    ):
        done = whole.run(line, server.environment())
        alone = Native(BIN / "cede-python").run(line, server.environment())
        assert done.returncode == alone.returncode != 0
        assert without_ids(done.stderr) == without_ids(alone.stderr) != b""


def without_ids(said: bytes) -> bytes:
    return re.sub(rb"[0-9a-f]{8}(-[0-9a-f]{4,12})*", b"ID", said)


def test_people_get_the_short_id(whole: Native, listener: Listening, tmp_path: Path) -> None:
    env = environment(listener, tmp_path, ASAN_OPTIONS="detect_leaks=0")
    for program in (whole.path, BIN / "cede-python"):
        with Typing(*PLAIN, env=env, cwd=tmp_path, program=(str(program),)) as typing:
            shown = typing.ended()
        assert (shown.code, shown.line) == (0, SHORT_ID)


def test_a_reader_that_has_gone_is_no_error(
    whole: Native, listener: Listening, tmp_path: Path
) -> None:
    for program in (whole.path, BIN / "cede-python"):
        listener.reset()
        command = [str(program), *PLAIN]
        assert ended_behind_a_closed_pipe(command, environment(listener, tmp_path))
        assert len(listener.calls) == 1


def ended_behind_a_closed_pipe(command: list[str], env: Mapping[str, str]) -> bool:
    process = subprocess.Popen(
        command,
        env={**env, "ASAN_OPTIONS": "detect_leaks=0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    with process.stderr:
        return (process.stderr.read(), process.wait()) == (b"", 0)


def test_a_full_disk_is_said_by_python(whole: Native, listener: Listening, tmp_path: Path) -> None:
    shown = []
    for program in (whole.path, BIN / "cede-python"):
        listener.reset()
        with Path("/dev/full").open("wb") as full:
            done = Native(program).run(
                PLAIN,
                environment(listener, tmp_path),
                capture_output=False,
                stdout=full,
                stderr=subprocess.PIPE,
            )
        shown.append((done.returncode, done.stderr))
        assert len({*listener.calls}) == 1
    assert shown[0] == shown[1]
    assert shown[0][0] != 0


def test_an_interrupt_ends_it_as_python_ends(
    whole: Native, listener: Listening, tmp_path: Path
) -> None:
    asked = threading.Event()
    for program in (whole.path, BIN / "cede-python"):
        asked.clear()
        listener.reset(lambda to, _: (asked.set(), to.recv(1))[0])
        process = subprocess.Popen(
            [program, *PLAIN],
            env={**environment(listener, tmp_path), "ASAN_OPTIONS": "detect_leaks=0"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert asked.wait(60)
        process.send_signal(signal.SIGINT)
        assert process.communicate() == (b"", b"interrupted\n")
        assert process.returncode == 130
