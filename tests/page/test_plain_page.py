"""The plain page in a real browser: what a server shows whose page could not be built."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cede.server.api import web_page
from tests.api.conftest import Server, made
from tests.api.machines import Machine, pool_of_nodes, run
from tests.page import busy
from tests.page.browser import PATIENCE_MS, link

pytestmark = [
    pytest.mark.browser,
    # Playwright's own event loop leaves a warning of its own behind; ours still count.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NAUGHTY = busy.NAUGHTY


@pytest.fixture(autouse=True)
def _not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_page, "is_built", lambda: False)


def contested(server: Server) -> dict[str, Any]:
    server.pool("training-gpus", 8, description=NAUGHTY)
    server.policy("red", "training-gpus", reserved={"gpu": 4}, limit={"gpu": 6})
    server.submit("red", 6)
    return server.submit("red", 4)


def test_pools_and_a_waiting_request_with_its_reason(server: Server, page: Any) -> None:
    waiting = contested(server)
    page.goto(link(server.url, server.secrets["red"]))
    page.wait_for_selector("#waiting tbody tr[data-id]")
    # The token came in the fragment, and is gone from the address bar.
    assert page.url == f"{server.url}/"
    assert "training-gpus" in page.inner_text("#pools")
    assert "6 of 8" in page.inner_text("#pools")
    row = page.inner_text(f"#waiting tr[data-id='{waiting['id']}']")
    for shown in ("red", "queued", "4 gpu", "holds 6 of its limit of 6 gpu"):
        assert shown in row, row
    assert "6 gpu" in page.inner_text("#active tbody")
    # Text is text: nothing that somebody wrote becomes a part of the page.
    assert NAUGHTY in page.inner_text("#pools")
    assert page.title() == "cede"
    assert "was not built" in page.inner_text("#not-built")
    assert page.query_selector("#pools img") is None


def test_nodes_and_where_work_is(server: Server, page: Any) -> None:
    # A heartbeat's time in which this page is shown on any machine: nobody sends one.
    config = server.app.state.cede.config
    server.app.state.cede.config = replace(config, heartbeat=PATIENCE_MS)
    pool_of_nodes(server)
    Machine(server, "alpha")
    server.policy("red", "farm")
    work = run(server, gpu=1)
    page.goto(link(server.url, server.secrets["red"]))
    page.wait_for_selector(f"#active tr[data-id='{work['id']}']")
    assert "alpha" in page.inner_text(f"#active tr[data-id='{work['id']}']")
    row = page.inner_text("#nodes tr[data-id='alpha']")
    for shown in ("farm", "ready", "1 of ", "s ago"):
        assert shown in row, row
    made(server["operator"].post("/api/v1/nodes/alpha/drain", json={"reason": "a fan"}))
    page.wait_for_selector("#nodes td.state-draining")
    assert "a fan" in page.inner_text("#nodes tr[data-id='alpha']")


def test_a_token_can_be_typed_and_forgotten(server: Server, page: Any) -> None:
    contested(server)
    page.goto(server.url)
    page.fill("#token", server.secrets["viewer"])
    page.click("#enter button")
    page.wait_for_selector("#active tbody tr[data-id]")
    assert "viewer" in page.inner_text("#who")
    page.click("#leave")
    assert page.is_visible("#enter") and not page.is_visible("#pools-section")
    assert page.evaluate("sessionStorage.length") == 0
    assert page.evaluate("document.cookie") == ""
