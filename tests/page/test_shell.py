"""Signing in, keys, live updates, and a server that goes away under an open page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cede.server.api import web_page
from tests.api.conftest import Server
from tests.client.serving import Serving
from tests.page.browser import link, opened
from tests.page.busy import Busy

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not web_page.is_built(), reason="THE PAGE WAS NOT BUILT (see scripts/page)"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

ASKED = {"component": "red", "component_type": "team", "resources": {"gpu": 2}}
ASKED["labels"] = {"name": "of the team"}


def contested(server: Server) -> dict[str, Any]:
    server.pool("training-gpus", 8)
    server.policy("red", "training-gpus", reserved={"gpu": 4}, limit={"gpu": 6})
    server.submit("red", 6)
    return server.submit("red", 4)


def test_a_token_in_the_link_leaves_the_address_bar(shown: Busy, page: Any) -> None:
    page.goto(link(shown.server.url, shown.server.secrets["viewer"]))
    page.wait_for_selector("#main h1")
    assert page.url == f"{shown.server.url}/"
    assert page.evaluate("() => sessionStorage.length") == 0
    page.reload()
    page.wait_for_selector("#token")


def test_a_link_opens_the_page_once(shown: Busy, page: Any) -> None:
    once = link(shown.server.url, shown.server.secrets["viewer"])
    page.goto(once)
    page.wait_for_selector("#main h1")
    page.goto("about:blank")
    page.goto(once)
    page.wait_for_selector("#said:has-text('used before, or is older than 5 minutes')")
    assert page.url == f"{shown.server.url}/"
    page.problems.clear()  # the browser itself reports the 404


def test_a_token_can_be_typed_kept_and_forgotten(shown: Busy, page: Any) -> None:
    page.goto(f"{shown.server.url}/#/settings")
    page.fill("#token", shown.server.secrets["viewer"])
    page.check("#keep")
    page.click("button[type=submit]")
    page.wait_for_selector("#main h1")
    assert "viewer" in page.inner_text("#who")
    page.reload()
    page.wait_for_selector("[data-pool=h100]")
    page.click("#leave")
    page.wait_for_selector("#token")
    assert page.query_selector("#main") is None
    assert page.evaluate("() => sessionStorage.length") == 0
    assert page.evaluate("() => document.cookie") == ""


def test_a_bad_token_is_said_to_be_bad(shown: Busy, page: Any) -> None:
    page.goto(shown.server.url)
    page.fill("#token", "cede_wrong")
    with page.expect_console_message():  # the browser itself reports the 401
        page.click("button[type=submit]")
    page.wait_for_selector("#said:has-text('not valid')")
    page.problems.clear()


def test_a_revoked_token_signs_the_page_out(server: Server, page: Any) -> None:
    made = server["admin"].post("/api/v1/tokens", json={"name": "guest", "role": "viewer"}).json()
    page.goto(link(server.url, made["token"]))
    page.wait_for_selector("#state:has-text('live')")
    server["admin"].delete(f"/api/v1/tokens/{made['id']}")
    page.wait_for_selector("#said:has-text('not valid')")
    page.problems.clear()  # the browser itself reports the 401


def test_what_happens_appears_by_itself_and_selected_text_stays(server: Server, page: Any) -> None:
    waiting = contested(server)
    page.goto(link(server.url, server.secrets["red"]))
    page.wait_for_selector("#main h1")
    page.goto(f"{server.url}/#/pool/training-gpus?tab=queue")
    page.wait_for_selector(f"tr[data-id='{waiting['id']}']")
    page.evaluate("() => getSelection().selectAllChildren(document.querySelector('h1'))")
    server["red"].post(f"/api/v1/requests/{waiting['id']}/cancel")
    page.wait_for_selector(f"tr[data-id='{waiting['id']}']", state="detached")
    assert "Nothing waits for this pool" in page.inner_text("#main")
    assert page.evaluate("() => getSelection().toString()") == "Pool training-gpus"


def test_an_empty_server_says_what_to_type(server: Server, page: Any) -> None:
    page.goto(link(server.url, server.secrets["operator"]))
    page.wait_for_selector("text=cede pool create")


def test_keys_search_move_and_open(shown: Busy, page: Any) -> None:
    page.goto(link(shown.server.url, shown.server.secrets["operator"]))
    page.wait_for_selector("#main h1")
    page.keyboard.press("/")
    page.keyboard.type("h100")
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:has-text('Pool h100')")
    page.wait_for_selector("tr[data-open]")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    assert page.evaluate("() => document.activeElement.dataset.id") == "evaluation"
    page.keyboard.press("Enter")
    page.wait_for_selector("nav a[aria-current]:has-text('Queue')")
    page.keyboard.press("?")
    page.wait_for_selector("dialog:has-text('Search')")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    page.keyboard.press("g")
    page.keyboard.press("e")
    page.wait_for_selector("h1:has-text('Events')")


def test_a_server_that_dies_and_comes_back_is_followed_again(browser: Any, tmp_path: Path) -> None:
    """The data stays, dimmed; the filter stays; what happened meanwhile appears."""
    serving = Serving(tmp_path / "data")
    try:
        with serving.client() as client, opened(browser) as page:
            client.pools.create("gpus", {"gpu": 4})
            client.policies.attach(
                "gpus", "red", component_type="team", priority=1, limit={"gpu": 2}
            )
            page.goto(link(serving.url, serving.token))
            page.wait_for_selector("#state:has-text('live')")
            page.goto(f"{serving.url}/#/pool/gpus?tab=queue&team=red")
            page.wait_for_selector("text=Nothing waits for this pool")
            page.fill("input[type=search] >> nth=1", "team")
            page.wait_for_url("**&q=team")
            page.evaluate("() => getSelection().selectAllChildren(document.querySelector('h1'))")
            serving.kill()
            page.wait_for_selector("#away:has-text('The server is away')")
            page.wait_for_selector("main.stale h1:has-text('Pool gpus')")
            serving.start()
            with serving.client() as again:
                first, second = (again.requests.create(ASKED) for _ in range(2))
            page.wait_for_selector("#away", state="detached")
            page.wait_for_selector(f"tr[data-id='{second['id']}']")
            assert page.query_selector(f"tr[data-id='{first['id']}']") is None
            assert page.url.endswith("#/pool/gpus?tab=queue&team=red&q=team")
            assert page.input_value("select") == "red"
            assert page.input_value("input[type=search] >> nth=1") == "team"
            assert page.evaluate("() => getSelection().toString()") == "Pool gpus"
            assert page.query_selector("main.stale") is None
    finally:
        serving.stop()
