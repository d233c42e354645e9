"""Every view in a real browser, by every role, in both sizes and colour schemes."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import pytest

from cede.server.api import web_page
from tests.page.browser import DESK, PHONE, link, opened, settle
from tests.page.busy import NAUGHTY, Busy, submit
from tests.page.screenshots import views
from tests.tidy.tree import ROOT

AXE = ROOT / "page" / "node_modules" / "axe-core" / "axe.min.js"
RULES = "() => axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']})"
FIRST_VIEW_MAX = 200_000  # bytes over the wire

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not web_page.is_built(), reason="THE PAGE WAS NOT BUILT (see scripts/page)"),
    # Playwright's own event loop leaves a warning of its own behind; ours still count.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

# Each size with each scheme, each role once.
LOOKS = [
    ("operator", DESK, "light"),
    ("viewer", PHONE, "dark"),
    ("red", DESK, "dark"),
    ("admin", PHONE, "light"),
]


@pytest.mark.parametrize(("role", "size", "scheme"), LOOKS, ids=[look[0] for look in LOOKS])
def test_every_view_is_whole_and_accessible(
    shown: Busy, browser: Any, role: str, size: tuple[int, int], scheme: str
) -> None:
    assert AXE.exists(), "scripts/page --check installs axe-core"
    url, wrong = shown.server.url, []
    with opened(browser, size, scheme) as page:
        page.goto(link(url, shown.server.secrets[role]))
        page.wait_for_selector("#main h1")
        for name, address in views(shown).items():
            page.goto(f"{url}/{address}")
            # A bound token does not see others' requests: that, too, is a view.
            page.wait_for_selector("#main h1, #main .empty:not([aria-busy])")
            page.wait_for_selector("[aria-busy=true]", state="detached")
            width = page.evaluate("() => document.documentElement.scrollWidth")
            if width > size[0]:
                wrong.append(f"{name} is {width} pixels wide")
            page.evaluate(AXE.read_text())
            for each in page.evaluate(RULES)["violations"]:
                where = "; ".join(node["html"][:120] for node in each["nodes"][:3])
                wrong.append(f"{name}: {each['id']}: {each['help']}: {where}")
            assert page.title() != "owned" and page.query_selector("main img") is None
        problems = [each for each in page.problems if "404" not in each]
    assert wrong == []
    assert problems == []


def look(page: Any, busy: Busy, address: str, role: str = "operator") -> None:
    page.goto(link(busy.server.url, busy.server.secrets[role]))
    page.wait_for_selector("#main h1")
    page.goto(f"{busy.server.url}/{address}")
    settle(page)


def test_the_first_view_is_small() -> None:
    built = Path(web_page.__file__).parent / "page" / "built"
    sizes = [len(gzip.compress(each.read_bytes())) for each in built.iterdir()]
    assert 10_000 < sum(sizes) < FIRST_VIEW_MAX


def test_the_page_is_sent_compressed(shown: Busy) -> None:
    answer = shown.server["nobody"].get("/page.js", headers={"Accept-Encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    plain = shown.server["nobody"].get("/page.js", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers and plain.text == answer.text


def test_overview_shows_who_has_what_and_what_is_lent(shown: Busy, page: Any) -> None:
    look(page, shown, "#/overview")
    page.wait_for_selector("[data-pool=h100] .teams li")
    card = page.inner_text("[data-pool=h100]")
    for said in ("13 active", "64 of 64", "32 of 16 gpu, 16 borrowed", "8 of 16 gpu, 8 lent"):
        assert said in card, card
    assert NAUGHTY in page.inner_text("[data-pool=a10]")
    assert "fan 3 is loud" in page.inner_text(".story")


def test_a_pool_has_its_tree_of_teams(shown: Busy, page: Any) -> None:
    look(page, shown, "#/pool/h100")
    page.wait_for_selector("tr[data-id=language]:has-text('17 gpu'):has-text('20')")
    row = page.inner_text("tr[data-id=language]")
    shown_in_row = re.split(r"\s*\t\s*", row.strip())[1:8]
    assert shown_in_row == ["20", "16 gpu", "17 gpu", "32 gpu", "16 gpu", "–", "3"]
    assert page.query_selector("tr[data-id=language] .depth-1") is not None


def test_the_queue_says_why_and_keeps_its_filter_in_the_address(shown: Busy, page: Any) -> None:
    look(page, shown, "#/pool/h100?tab=queue")
    naughty = next(each for each in shown.waiting if each["component"] == "vision")
    row = page.inner_text(f"tr[data-id='{naughty['id']}']")
    assert NAUGHTY in row and "its limit of 64 gpu" in row and "What helps:" in row
    told = shown.server["operator"].get("/api/v1/pools/h100/queue?limit=50").json()["items"]
    assert {each["id"] for each in told} == {each["id"] for each in shown.waiting}
    rows = [each.get_attribute("data-id") for each in page.query_selector_all("tbody tr")]
    assert rows == [each["id"] for each in told]
    page.select_option("select", "robotics")
    page.wait_for_selector(f"tr[data-id='{naughty['id']}']", state="detached")
    page.wait_for_selector("tbody tr")
    assert "team=robotics" in page.url
    assert {each.inner_text() for each in page.query_selector_all("td[data-title=Team]")} == {
        "robotics"
    }
    page.click("tbody .id a")
    page.wait_for_selector("#why-title")
    page.go_back()
    page.wait_for_selector("tbody tr")
    assert page.input_value("select") == "robotics"


def test_nodes_are_a_grid_of_devices_by_team(shown: Busy, page: Any) -> None:
    look(page, shown, "#/pool/h100?tab=nodes")
    assert len(page.query_selector_all("[data-node=h100-b4] .device")) == 8
    said = page.inner_text("[data-node=h100-b4]")
    assert "draining" in said and "fan 3 is loud" in said and "ro" in said


def test_a_request_says_why_it_waits_and_what_happened(shown: Busy, page: Any) -> None:
    stopped = next(each for each in shown.running if each["status"] == "preempting")
    look(page, shown, f"#/request/{stopped['id']}")
    page.wait_for_selector(".line .kind-preempting")
    said = page.inner_text("#main")
    for each in ("preempting", "which is inside its reserve", "Attempt 1:", "had borrowed"):
        assert each in said, said
    waiting = next(each for each in shown.waiting if each["component"] == "language")
    page.goto(f"{shown.server.url}/#/request/{waiting['id']}")
    page.wait_for_selector("text=Place in the queue")
    page.click("summary")
    assert "promised" in page.inner_text("table[aria-label=Holders]")


def test_holders_have_a_right_a_price_and_a_protection(shown: Busy, page: Any) -> None:
    look(page, shown, "#/pool/h100?tab=holders")
    page.wait_for_selector("tbody tr")
    told = shown.server["operator"].get("/api/v1/pools/h100/holders?limit=50").json()
    rows = page.query_selector_all("tbody tr")
    assert [row.get_attribute("data-id") for row in rows] == [each["id"] for each in told["items"]]
    cells = [[cell.inner_text() for cell in row.query_selector_all("td")] for row in rows]
    rights = [each[4] for each in cells]
    assert set(rights) == {"borrowed", "in share", "promised"}
    assert rights == sorted(rights, key=("borrowed", "in share", "promised").index)
    for each, row in zip(told["items"], cells, strict=True):
        assert (row[5] == "–") == (each["price"] is None) == (each["right"] == "promised")
        assert row[6] in ("preemptible, class 4", "waits for its units")
    page.select_option("select", "language")
    page.wait_for_url("**team=language**")
    page.wait_for_selector("tr:has-text('vision')", state="detached")
    page.wait_for_selector("tbody tr")
    assert set(page.locator("td[data-title=Team]").all_inner_texts()) == {"language"}


def test_what_people_write_is_shown_as_text_everywhere(shown: Busy, page: Any) -> None:
    odd = next(each for each in shown.waiting if each["tenant"])
    look(page, shown, f"#/request/{odd['id']}")
    page.wait_for_selector("#declared-title")
    declared = page.inner_text("section:has(#declared-title)")
    # Its command, its directory, two labels and its tenant; and above them its comment and name.
    assert declared.count(NAUGHTY[:20]) >= 5, declared
    assert page.inner_text("#main").count(NAUGHTY[:20]) >= 7
    for address in (
        "#/settings",
        "#/node/h100-b4",
        "#/events",
        "#/overview",
        "#/pool/h100?tab=nodes",
    ):
        page.goto(f"{shown.server.url}/{address}")
        settle(page)
        page.wait_for_selector(f"main:has-text('{NAUGHTY[:14]}')")
    assert page.query_selector("main img") is None and page.title() != "owned"
    # A policy's name is not whose it is: its row leads to the requests of its team.
    page.goto(f"{shown.server.url}/#/pool/a10")
    page.click(f"td a:has-text('{NAUGHTY[:14]}')")
    page.wait_for_url("**team=red")


def test_a_request_shows_its_array_and_what_it_waits_for(busy: Busy, page: Any) -> None:
    server = busy.server
    array = submit(server, "evaluation", 1, "score", array="0-3%2")
    then = submit(server, "evaluation", 1, "report", after=[array["id"]])
    look(page, busy, f"#/request/{then['id']}")
    page.wait_for_selector("section:has(#related-title) >> text=It starts only after")
    page.click("section:has(#related-title) a")
    page.wait_for_selector("summary:has-text('of array 0-3%2: 4 tasks')")
    rows = page.query_selector_all("table[aria-label='Tasks of the array'] tbody tr")
    assert [row.query_selector("td").inner_text() for row in rows] == ["0", "1", "2", "3"]


def test_a_node_shows_who_is_on_it(shown: Busy, page: Any) -> None:
    look(page, shown, "#/node/h100-b4")
    said = page.inner_text("#main")
    for each in ("draining", "fan 3 is loud", "robotics", "0, 1, 2, 3, 4, 5, 6, 7", "rack-b"):
        assert each in said, said


def test_events_are_filtered(shown: Busy, page: Any) -> None:
    look(page, shown, "#/events?kind=preempting")
    page.wait_for_selector("tbody tr")
    told = {each.inner_text() for each in page.query_selector_all("td[data-title=What]")}
    assert told == {"is being stopped"}


def test_usage_agrees_with_the_command_line(shown: Busy, page: Any) -> None:
    look(page, shown, "#/usage?by=pool&over=all")
    page.wait_for_selector("tbody tr")
    answer = shown.server["operator"].get("/api/v1/usage?by=pool").json()
    names = [each.inner_text() for each in page.query_selector_all("tbody .team")]
    assert names == [each["name"] for each in answer["items"]]
    with page.expect_download() as started:
        page.click("text=Download as CSV")
    first, *rest = Path(started.value.path()).read_text().splitlines()
    assert first.startswith("name,pool,requests,preempted,starts,mean_wait,node_hours,gpu_hours,")
    assert [line.partition(",")[0] for line in rest] == names


def test_usage_is_shown_by_day_and_team_with_a_chart(shown: Busy, page: Any) -> None:
    look(page, shown, "#/usage")
    page.wait_for_selector("[role=img][aria-label^='GPU hours by day'] canvas")
    begin = page.inner_text("code").partition("--from ")[2].partition(" ")[0]
    told = shown.server["operator"].get(f"/api/v1/usage?by=team&days=true&from={begin}").json()
    page.click("summary")
    rows = page.query_selector_all("table[aria-label='Usage, day by day'] tbody tr")
    assert len(rows) == len(told["items"]) > 100
    first = re.split(r"\s*\t\s*", rows[0].inner_text().strip())
    assert first[:2] == [told["items"][0]["day"], told["items"][0]["name"]]
    page.select_option("select >> nth=0", "label")
    page.wait_for_selector("td[data-title=label]:has-text('robotics')")
    assert "by=label" in page.url and "--by label --label project" in page.inner_text("#main")


def test_a_pool_over_time_is_a_chart_with_its_numbers(shown: Busy, page: Any) -> None:
    look(page, shown, "#/pool/h100?tab=history&span=21600")
    page.wait_for_selector("[role=img][aria-label^='gpu over time'] canvas")
    path = "/api/v1/pools/h100/history?since=21600"
    told = shown.server["operator"].get(path).json()["items"]
    assert len(told) > 50
    page.click("summary")
    table = page.inner_text("table[aria-label='Levels of pool h100']")
    assert f"{round(told[5]['keys']['gpu']['used'], 1):g}" in table
    page.select_option("select", "604800")
    page.wait_for_selector("code:has-text('--since 168h')", state="attached")


def test_settings_show_what_was_declared(shown: Busy, page: Any) -> None:
    look(page, shown, "#/settings")
    said = page.inner_text("[data-pool=h100]")
    for each in ("quota", "those with gpu h100", "team:robotics", "32 gpu"):
        assert each in said, said
