"""Acting on the page: what it would do first, then the documented call."""

from __future__ import annotations

from typing import Any

import pytest

from cede.server.api import web_page
from tests.api.conftest import made
from tests.api.machines import API
from tests.page.browser import link
from tests.page.busy import NAUGHTY, Busy
from tests.page.screenshots import views

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not web_page.is_built(), reason="THE PAGE WAS NOT BUILT (see scripts/page)"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def look(page: Any, busy: Busy, address: str, role: str = "operator") -> None:
    page.goto(link(busy.server.url, busy.server.secrets[role]))
    page.wait_for_selector("#main h1")
    page.goto(f"{busy.server.url}/{address}")


def test_an_operator_acts_with_the_plan_first(busy: Busy, page: Any) -> None:
    server = busy.server
    vision = next(each for each in busy.running if each["component"] == "vision")
    look(page, busy, f"#/request/{vision['id']}")
    page.click("text=Cancel")
    page.click("text=Show what it would do")
    page.wait_for_selector("text=What the engine would do")
    assert f"cede request cancel {vision['id']}" in page.inner_text("dialog")
    page.click("dialog .primary")
    page.wait_for_selector("dialog", state="detached")
    page.wait_for_selector("h1 .is-preempting, h1 .is-cancelled")

    page.goto(f"{server.url}/#/node/h100-a1")
    page.click("text=Drain")
    page.fill("dialog input", "new firmware")
    page.click("text=Show what it would do")
    page.wait_for_selector("text=What the engine would do")
    page.click("dialog .primary")
    page.wait_for_selector("h1 .is-draining")
    assert made(server["viewer"].get(f"{API}/nodes/h100-a1"))["reason"] == "new firmware"
    page.click("text=Undrain")
    page.click("dialog .primary")
    page.wait_for_selector("h1 .is-ready")

    page.goto(f"{server.url}/#/settings")
    page.click("[data-pool=h100] tr:has-text('robotics') button")
    page.fill("dialog .fields label:nth-child(2) input", "gpu=12 and more")
    page.wait_for_selector("dialog [role=alert]:has-text('write KEY=NUMBER')")
    page.fill("dialog .fields label:nth-child(2) input", "gpu=20")
    page.click("dialog .primary")
    page.wait_for_selector("[data-pool=h100] tr:has-text('robotics'):has-text('20 gpu')")


def ask(page: Any, title: str, command: str) -> None:
    """Open an action, see what it would do and its command, and do it."""
    page.click(f"main button:text-is('{title}')")
    page.click("text=Show what it would do")
    page.wait_for_selector("text=What the engine would do")
    assert command in page.inner_text("dialog")
    page.click("dialog .primary")
    page.wait_for_selector("dialog", state="detached")


def test_an_operator_edits_a_pool_claims_a_node_and_submits_again(busy: Busy, page: Any) -> None:
    server = busy.server
    look(page, busy, "#/settings")
    page.click("[data-pool=a10] >> text=Edit pool")
    page.fill("dialog label:has-text('Capacity') input", "gpu=many")
    page.wait_for_selector("dialog [role=alert]:has-text('write KEY=NUMBER')")
    page.fill("dialog label:has-text('Capacity') input", "gpu=24")
    page.fill("dialog label:has-text('Cost') input", "gpu=2.5")
    page.click("text=Show what it would do")
    page.wait_for_selector("text=What the engine would do")
    assert "cede pool update a10 --capacity gpu=24 --settings" in page.inner_text("dialog")
    page.click("dialog .primary")
    page.wait_for_selector("[data-pool=a10]:has-text('24 gpu')")
    assert made(server["viewer"].get(f"{API}/pools/a10"))["settings"]["cost_per_hour"] == {
        "gpu": 2.5
    }

    page.goto(f"{server.url}/#/node/h100-b3")
    page.wait_for_selector("h1:has-text('h100-b3')")
    ask(page, "Claim", "cede node claim h100-b3 --for")
    page.wait_for_selector("main button:text-is('Unclaim')")
    assert made(server["operator"].get(f"{API}/nodes/h100-b3"))["claimed_by"] == "operator"
    ask(page, "Unclaim", "cede node unclaim h100-b3")
    page.wait_for_selector("main button:text-is('Claim')")
    assert made(server["operator"].get(f"{API}/nodes/h100-b3"))["claimed_by"] is None

    # Everything that people wrote about this one is odd, and it is planned all the same.
    odd = next(each for each in busy.waiting if each["comment"] == NAUGHTY and each["tenant"])
    page.goto(f"{server.url}/#/request/{odd['id']}")
    page.wait_for_selector("h1 .is-queued")
    ask(page, "Cancel", f"cede request cancel {odd['id']}")
    page.wait_for_selector("h1 .is-cancelled")
    ask(page, "Submit again", "cede submit --gpu 4")
    page.wait_for_selector("h1 .is-queued, h1 .is-allocated")
    again = made(server["operator"].get(f"{API}/requests/{page.url.rpartition('/')[2]}"))
    same = ("labels", "comment", "tenant", "component", "work")
    assert again["id"] != odd["id"] and again["labels"] == odd["labels"]
    whole = made(server["operator"].get(f"{API}/requests/{odd['id']}"))
    assert [again[each] for each in same] == [whole[each] for each in same]


def test_what_if_shows_the_plan_and_does_nothing(busy: Busy, page: Any) -> None:
    server = busy.server
    before = made(server["operator"].get(f"{API}/pools/a10"))
    look(page, busy, "#/overview")
    asked = {
        "submit 4 GPUs for vision in a10": "Starts the new request in a10",
        "submit 4 for vision": "Team vision has policies in",
        "drain nowhere": "There is no node nowhere",
        "make coffee": "Write one of",
        "reserve 12 for evaluation in a10": "more than the capacity 16",
    }
    for words, said in asked.items():
        page.fill("#whatif", words)
        page.click(".whatif button")
        page.wait_for_selector(f".whatif div:has-text('{said}')")
    page.problems.clear()  # the browser itself reports the 422
    assert made(server["operator"].get(f"{API}/pools/a10")) == before


def test_a_viewer_is_offered_no_action(shown: Busy, page: Any) -> None:
    for name in ("overview", "preempted", "node", "settings"):
        look(page, shown, views(shown)[name], "viewer")
        page.wait_for_selector("#main h1")
        page.wait_for_selector("[aria-busy=true]", state="detached")
        assert (
            page.query_selector("main .actions button, main .whatif, td[data-title=Change]") is None
        )
