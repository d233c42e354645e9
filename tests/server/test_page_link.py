"""Every start says where the page is; only a terminal gets the link that opens it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cede.server import run

URL = "http://127.0.0.1:8080"
KEPT = "server: x\ntoken: cede_abc\n"


@pytest.mark.parametrize(
    ("terminal", "kept", "said"),
    [
        (True, KEPT, f"open to whoever has this link: {URL}/#token=cede_abc"),
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
    run._say_page(URL, client_file)
    assert said in capsys.readouterr().out
