"""Chromium for the tests of the page and for its screenshots."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE_MS = 120_000
DESK, PHONE = (1440, 900), (390, 844)


@contextmanager
def launched() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--no-proxy-server"],
            timeout=PATIENCE_MS,
        )
        yield found
        found.close()


@contextmanager
def opened(browser: Any, size: tuple[int, int] = DESK, scheme: str = "light") -> Iterator[Any]:
    """A page of its own; `problems` has what its console complained about."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme
    )
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.problems = []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on(
        "console",
        lambda message: page.problems.append(message.text) if message.type == "error" else None,
    )
    try:
        yield page
    finally:
        context.close()


def link(url: str, token: str) -> str:
    """A link that opens the page with this token, as `cede page` prints it."""
    bearer = {"Authorization": f"Bearer {token}"}
    with httpx2.Client(base_url=url, headers=bearer, timeout=PATIENCE_MS / 1000) as http:
        answer = http.post("/api/v1/links")
    assert answer.status_code == 201, answer.text
    return f"{url}/#link={answer.json()['code']}"


def settle(page: Any) -> None:
    """Waits until the view has read what it shows."""
    page.wait_for_selector("#main h1")
    page.wait_for_selector("[aria-busy=true]", state="detached")
