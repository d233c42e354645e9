"""Every start says where the page is; only a terminal gets the link that opens it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cede.model.bounds import LINK_LIFE, LINKS_MAX, SECOND
from cede.server import run
from cede.server.links import Links

URL = "http://127.0.0.1:8080"
KEPT = "server: x\ntoken: cede_abc\n"


@pytest.mark.parametrize(
    ("terminal", "kept", "said"),
    [
        (True, KEPT, f"works once, within 5 minutes: {URL}/#link="),
        (False, KEPT, f"the page: {URL}; it asks for a token"),
        (True, None, f"the page: {URL}; it asks for a token"),
        (True, "- damaged", f"the page: {URL}; it asks for a token"),
        (True, "server: x\n", f"the page: {URL}; it asks for a token"),
    ],
    ids=["terminal", "log", "no file", "damaged", "no token"],
)
def test_a_later_start_says_where_the_page_is(
    terminal: bool,
    kept: str | None,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client_file = tmp_path / "client.yaml"
    if kept is not None:
        client_file.write_text(kept)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    links = Links(lambda: 0.0)
    run._say_page(URL, client_file, links)
    shown = capsys.readouterr().out
    assert said in shown and "cede_abc" not in shown
    if "#link=" in said:
        code = shown.rpartition("#link=")[2].strip()
        assert [links.take(code), links.take(code)] == ["cede_abc", None]


def test_a_link_is_worth_a_token_once_and_for_minutes() -> None:
    now = 0.0
    links = Links(lambda: now)
    first, second = links.make("cede_a"), links.make("cede_b")
    now = LINK_LIFE / SECOND - 1
    assert links.take(first) == "cede_a" and links.take(first) is None
    now += 1
    assert links.take(second) is None


def test_many_links_are_bounded() -> None:
    links = Links(lambda: 0.0)
    first = links.make("cede_a")
    others = [links.make("cede_b") for _ in range(LINKS_MAX)]
    assert links.take(first) is None and links.take(others[0]) == "cede_b"
