"""Faults between client and server that a healthy server does not show: lost answers, busy
answers."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from cede import Client, Invalid, NotFound, Rejected, ServerUnreachable, Unauthorized
from cede.client.config import Connection
from cede.client.errors import ServerBroken
from cede.client.http import Http, problem

# What the faulty server does with one call: hang up, or answer with status, headers and body.
Answer = tuple[int, dict[str, str], object] | None


class Faulty:
    """Answers as told, in order, and remembers what it was asked."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.asked.append((self.command, self.path, dict(self.headers)))
                answer = outer.answers.pop(0)
                if answer is None:
                    self.close_connection = True
                    return
                status, headers, body = answer
                content = b"" if body is None else json.dumps(body).encode()
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_DELETE = handle_any

            def log_message(self, *_: object) -> None: ...

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        # How often it looks whether it is to stop: each test waits for that at its end.
        serve = partial(self.server.serve_forever, poll_interval=0.01)
        threading.Thread(target=serve, daemon=True).start()


@pytest.fixture
def faulty() -> Iterator[Faulty]:
    faulty = Faulty()
    yield faulty
    faulty.server.shutdown()
    faulty.server.server_close()


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def client(faulty: Faulty, pauses: list[float]) -> Iterator[Client]:
    url = f"http://127.0.0.1:{faulty.server.server_port}"
    with Client(http=Http(Connection(url, "secret"), sleep=pauses.append)) as client:
        yield client


BUSY: Answer = (503, {"Retry-After": "7"}, {"status": 503, "detail": "later"})


def test_a_post_is_repeated_under_one_key(
    client: Client, faulty: Faulty, pauses: list[float]
) -> None:
    faulty.answers = [None, BUSY, (201, {}, {"id": "r"})]
    assert client.requests.create({})["id"] == "r"
    keys = [headers["Idempotency-Key"] for _, _, headers in faulty.asked]
    assert len(keys) == 3 and len(set(keys)) == 1
    assert pauses[1] == 7 and pauses[0] < 1
    faulty.answers = [(201, {}, {"id": "s"})]
    client.requests.create({})
    assert faulty.asked[-1][2]["Idempotency-Key"] != keys[0]


def test_a_caller_may_bring_its_own_key(client: Client, faulty: Faulty) -> None:
    faulty.answers = [(201, {}, {"id": "r"}), (201, {}, {"id": "r"})]
    for _ in range(2):
        client.requests.create({}, key="mine")
    assert [headers["Idempotency-Key"] for _, _, headers in faulty.asked] == ["mine", "mine"]


def test_it_gives_up_and_says_what_the_server_said(client: Client, faulty: Faulty) -> None:
    faulty.answers = [BUSY] * 4
    with pytest.raises(ServerUnreachable, match="later"):
        client.pools.get("a")
    assert len(faulty.asked) == 4


def test_the_highest_index_is_sent_back(client: Client, faulty: Faulty) -> None:
    faulty.answers = [(200, {"Cede-Index": each}, {}) for each in ("5", "3", "x")]
    for _ in range(3):
        client.pools.get("a")
    seen = [headers.get("Cede-Index-Seen") for _, _, headers in faulty.asked]
    assert seen == [None, "5", "5"]


def test_a_deletion_whose_answer_was_lost_is_done(client: Client, faulty: Faulty) -> None:
    gone: Answer = (404, {}, {"type": "urn:cede:problem:not_found", "detail": "no pool 'a'"})
    faulty.answers = [None, gone]
    client.pools.delete("a")
    faulty.answers = [gone]
    with pytest.raises(NotFound):
        client.pools.delete("a")


@pytest.mark.parametrize(
    ("status", "said"), [(200, []), (200, None), (404, {"message": "no route"}), (404, "<html>")]
)
def test_what_something_else_answers_says_nothing_about_cede(
    client: Client, faulty: Faulty, status: int, said: object
) -> None:
    """A gateway without its route must not look like a request that is gone."""
    faulty.answers = [(status, {}, said)]
    with pytest.raises(ServerBroken, match="not cede's"):
        client.pools.get("a")


def test_a_proxy_that_says_later_says_so_for_cede(client: Client, faulty: Faulty) -> None:
    faulty.answers = [(502, {}, "<html>Bad Gateway</html>")] * 4
    with pytest.raises(ServerUnreachable, match="answered 502"):
        client.pools.get("a")
    assert len(faulty.asked) == 4


@pytest.fixture
def second() -> Iterator[Faulty]:
    faulty = Faulty()
    yield faulty
    faulty.server.shutdown()
    faulty.server.server_close()


@pytest.fixture
def either(faulty: Faulty, second: Faulty, pauses: list[float]) -> Iterator[Client]:
    urls = [f"http://127.0.0.1:{each.server.server_port}" for each in (faulty, second)]
    with Client(http=Http(Connection(",".join(urls), "secret"), sleep=pauses.append)) as client:
        yield client


@pytest.mark.parametrize("away", [None, BUSY])
def test_the_next_server_is_asked_at_once_and_remembered(
    either: Client, faulty: Faulty, second: Faulty, pauses: list[float], away: Answer
) -> None:
    faulty.answers = [away]
    second.answers = [(201, {"Cede-Index": "5"}, {"id": "r"}), (200, {}, {})]
    assert either.requests.create({})["id"] == "r"
    assert not pauses
    assert faulty.asked[0][2]["Idempotency-Key"] == second.asked[0][2]["Idempotency-Key"]
    either.pools.get("a")
    assert len(faulty.asked) == 1 and len(second.asked) == 2
    faulty.answers, second.answers = [(200, {}, {})], [away]
    either.pools.get("a")
    assert faulty.asked[-1][2]["Cede-Index-Seen"] == "5"


def test_when_every_server_is_away_the_first_one_is_quoted(
    either: Client, faulty: Faulty, second: Faulty, pauses: list[float]
) -> None:
    faulty.answers, second.answers = [BUSY] * 4, [None] * 4
    with pytest.raises(ServerUnreachable, match="later"):
        either.pools.get("a")
    assert len(pauses) == 3 and len(faulty.asked) == len(second.asked) == 4


def test_a_stream_is_opened_at_whoever_answers(
    either: Client, faulty: Faulty, second: Faulty
) -> None:
    faulty.answers = [BUSY]
    second.answers = [(200, {}, {"some": "lines"})]
    with either.http.stream("/events", {}, silence=5) as lines:
        assert list(lines) == ['{"some": "lines"}']


def test_a_deletion_that_another_server_did_is_done(
    either: Client, faulty: Faulty, second: Faulty
) -> None:
    faulty.answers = [None]
    second.answers = [(404, {}, {"type": "urn:cede:problem:not_found", "detail": "no pool 'a'"})]
    either.pools.delete("a")


def test_names_are_one_path_segment(client: Client, faulty: Faulty) -> None:
    faulty.answers = [(200, {}, {})]
    client.pools.get("../tokens?x=1")
    assert faulty.asked[0][1] == "/api/v1/pools/..%2Ftokens%3Fx%3D1"


def test_a_redirect_is_not_followed(client: Client, faulty: Faulty) -> None:
    faulty.answers = [(302, {"Location": "http://127.0.0.1:1/"}, {})]
    with pytest.raises(Exception, match="not cede's"):
        client.pools.get("a")
    assert len(faulty.asked) == 1


@pytest.mark.parametrize(
    ("status", "body", "kind", "code"),
    [
        (401, {"type": "urn:cede:problem:unauthenticated"}, Unauthorized, "unauthenticated"),
        (422, {"type": "urn:cede:problem:invalid", "field": "name"}, Invalid, "invalid"),
        (422, {"reason": {"code": "no_policy", "text": "t", "fix": "f"}}, Rejected, "no_policy"),
    ],
)
def test_problems_become_types(status: int, body: dict, kind: type, code: str) -> None:
    error = problem(status, body)
    assert isinstance(error, kind)
    assert (error.code, error.status, error.field) == (code, status, body.get("field", ""))


def test_certificates_are_checked_wherever_there_are_any(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def context(*, cafile: str | None) -> str:
        asked.append(cafile)
        return "checks"

    monkeypatch.setattr(ssl, "create_default_context", context)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    for server in ("http://127.0.0.1:8080", "https://cede.example", "HTTPS://127.0.0.1"):
        Http(Connection(server, "token"))
    assert asked == [None, None]
    monkeypatch.setenv("SSL_CERT_FILE", "ours.pem")
    Http(Connection("https://cede.example", "token"))
    assert asked[-1] == "ours.pem"
