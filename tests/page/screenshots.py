"""Screenshots of a busy pool: `python -m tests.page.screenshots FOLDER [--all]`.

Three of them are in the README and the docs; `--all` makes every view in both sizes and schemes.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from tests.api import listening
from tests.page.browser import DESK, PHONE, launched, link, opened, settle
from tests.page.busy import Busy, build
from tests.page.past import add_past, running_for_a_month

SHOWN = {"page-overview": "overview", "page-pool": "nodes", "page-request": "waiting"}


def views(busy: Busy) -> dict[str, str]:
    """Every view's address in the busy world."""
    preempted = next(each for each in busy.running if each["status"] == "preempting")
    waiting = next(each for each in busy.waiting if each["component"] == "language")
    return {
        "overview": "#/overview",
        "teams": "#/pool/h100",
        "queue": "#/pool/h100?tab=queue",
        "holders": "#/pool/h100?tab=holders",
        "nodes": "#/pool/h100?tab=nodes",
        "history": "#/pool/h100?tab=history&span=604800",
        "waiting": f"#/request/{waiting['id']}",
        "preempted": f"#/request/{preempted['id']}",
        "node": "#/node/h100-b4",
        "events": "#/events",
        "usage": "#/usage",
        "settings": "#/settings",
    }


def take(browser: Any, url: str, token: str, where: dict[str, str], folder: Path) -> None:
    for size, scheme in ((DESK, "light"), (PHONE, "dark")):
        with opened(browser, size, scheme) as page:
            page.goto(link(url, token))
            page.wait_for_selector("#main h1")
            for name, address in where.items():
                page.goto(f"{url}/{address}")
                settle(page)
                page.screenshot(path=folder / f"{name}-{size[0]}-{scheme}.png", full_page=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--all", action="store_true", help="every view, both sizes and schemes")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as data,
        launched() as browser,
        running_for_a_month(f"sqlite:///{Path(data) / 'cede.db'}") as server,
    ):
        busy = build(server, "small experiments")
        add_past(server)
        token, where = server.secrets["operator"], views(busy)
        if given.all:
            take(browser, server.url, token, where, given.folder)
            return
        with opened(browser) as page:
            page.goto(link(server.url, token))
            page.wait_for_selector("#main h1")
            for name, view in SHOWN.items():
                page.goto(f"{server.url}/{where[view]}")
                settle(page)
                page.screenshot(path=given.folder / f"{name}.png")


if __name__ == "__main__":
    try:
        main()
    finally:
        listening.stop_all()
