"""The plain page in a real browser: what a team sees without installing anything."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.api.conftest import Server, made
from tests.api.machines import Machine, pool_of_nodes, run

pytestmark = [
    pytest.mark.browser,
    # Playwright's own event loop leaves a warning of its own behind; ours still count.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE_MS = 120_000
NAUGHTY = "<img src=x onerror=\"document.title='owned'\">"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("NO CHROMIUM HERE: THE PAGE WAS NOT TESTED (see scripts/system-packages)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--no-proxy-server"],
            timeout=PATIENCE_MS,
        )
        yield found
        found.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_MS)
    found = context.new_page()
    found.problems = []
    found.on("pageerror", lambda error: found.problems.append(str(error)))
    found.on(
        "console",
        lambda message: found.problems.append(message.text) if message.type == "error" else None,
    )
    yield found
    assert found.problems == []
    context.close()


def contested(server: Server) -> dict[str, Any]:
    server.pool("training-gpus", 8, description=NAUGHTY)
    server.policy("red", "training-gpus", reserved={"gpu": 4}, limit={"gpu": 6})
    server.submit("red", 6)
    return server.submit("red", 4)


def test_pools_and_a_waiting_request_with_its_reason(server: Server, page: Any) -> None:
    waiting = contested(server)
    page.goto(f"{server.url}/#token={server.secrets['red']}")
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
    assert page.query_selector("#pools img") is None


def test_nodes_and_where_work_is(server: Server, page: Any) -> None:
    # A heartbeat's time in which this page is shown on any machine: nobody sends one.
    config = server.app.state.cede.config
    server.app.state.cede.config = replace(config, heartbeat=PATIENCE_MS)
    pool_of_nodes(server)
    Machine(server, "alpha")
    server.policy("red", "farm")
    work = run(server, gpu=1)
    page.goto(f"{server.url}/#token={server.secrets['red']}")
    page.wait_for_selector(f"#active tr[data-id='{work['id']}']")
    assert "alpha" in page.inner_text(f"#active tr[data-id='{work['id']}']")
    row = page.inner_text("#nodes tr[data-id='alpha']")
    for shown in ("farm", "ready", "1 of ", "s ago"):
        assert shown in row, row
    made(server["operator"].post("/api/v1/nodes/alpha/drain", json={"reason": "a fan"}))
    page.wait_for_selector("#nodes td.state-draining")
    assert "a fan" in page.inner_text("#nodes tr[data-id='alpha']")


def test_what_happens_appears_by_itself(server: Server, page: Any) -> None:
    waiting = contested(server)
    page.goto(f"{server.url}/#token={server.secrets['red']}")
    page.wait_for_selector(f"#waiting tr[data-id='{waiting['id']}']")
    server["red"].post(f"/api/v1/requests/{waiting['id']}/cancel")
    page.wait_for_selector(f"#waiting tr[data-id='{waiting['id']}']", state="detached")
    assert "Nothing waits" in page.inner_text("#waiting")


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


def test_who_leaves_while_the_page_is_being_drawn_has_left(server: Server, page: Any) -> None:
    contested(server)
    Machine(server, "alpha")
    held: list[Any] = []
    page.route("**/api/v1/nodes?*", lambda route: held.append(route))
    page.goto(f"{server.url}/#token={server.secrets['red']}")
    while not held:
        page.wait_for_timeout(20)
    with page.expect_response("**/api/v1/nodes?*"):
        page.click("#leave")
        held[0].continue_()
    for _ in range(2):  # by then the page has done what it wanted with that answer
        page.evaluate("fetch('/page.css').then((answer) => answer.text())")
    assert page.is_visible("#enter") and not page.is_visible("#nodes-section")
    assert page.inner_text("#state") == ""


def test_a_bad_token_is_said_to_be_bad(server: Server, page: Any) -> None:
    page.goto(server.url)
    page.fill("#token", "cede_wrong")
    with page.expect_console_message():  # the browser itself reports the 401
        page.click("#enter button")
    page.wait_for_selector("#state.broken")
    assert "not valid" in page.inner_text("#state")
    page.problems.clear()
