"""The page under load: `python -m tests.page.load`, or `make page-load`.

A server in a process of its own has 200 nodes, 40 teams, 5,000 holders and 20,000 waiters. Pages
look at it while requests come and go. What the server spends on a page is processor time of its
process and of the children that it forks for reads, with pages less without, so it means the same
on a busy machine; the other figures are wall-clock times, and the bare API's beside them say how
busy the machine was.

One page is real, and measured. The others stand for other people's machines, so what they draw must
not slow this one: each follows the same stream and makes the same calls as the real page, as often
as that one did when it was alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2

from cede.model.bounds import BULK_MAX
from tests.api import listening
from tests.api.conftest import made, running
from tests.api.machines import API, Machine
from tests.page.browser import launched, link, opened
from tests.page.busy import QUIET

POOL = "farm"
VIEW = f"#/pool/{POOL}?tab=queue"
_TICKS = os.sysconf("SC_CLK_TCK")
# The longest gap between two frames while it scrolls, by the browser's own account.
_SCROLL = """async () => {
  let last = performance.now(), longest = 0, frames = 0;
  const tasks = [];
  new PerformanceObserver((list) => tasks.push(...list.getEntries().map((each) => each.duration)))
    .observe({ type: 'longtask' });
  const end = last + 5000;
  while (performance.now() < end) {
    window.scrollBy(0, frames % 200 < 100 ? 40 : -40);
    const now = await new Promise((resolve) => requestAnimationFrame(resolve));
    longest = Math.max(longest, now - last);
    last = now;
    frames += 1;
  }
  return { frames, longest, longest_task: Math.max(0, ...tasks) };
}"""


def serve(database: str, nodes: int, teams: int, holders: int, waiters: int, pages: int) -> None:
    """The world; says where it is and lives until nobody listens any more."""
    with running(database) as server:
        context = server.app.state.cede
        context.config = replace(context.config, heartbeat=QUIET)
        pool = {"name": POOL, "nodes": {"zone": "a"}}
        made(server["admin"].post(f"{API}/pools", json=pool))
        each = holders // nodes
        for number in range(nodes):
            Machine(server, f"node-{number:03}", each)
        for number in range(teams):
            server.policy(f"team-{number:02}", POOL, reserved={"gpu": holders // teams})
        for start in range(0, holders + waiters, BULK_MAX):
            many = [
                {
                    "component": f"team-{number % teams:02}",
                    "component_type": "team",
                    "resources": {"gpu": 1},
                    "labels": {"name": f"job {number}"},
                    "work": {"argv": ["python", "train.py", "--seed", str(number)]},
                }
                for number in range(start, min(start + BULK_MAX, holders + waiters))
            ]
            made(server["operator"].post(f"{API}/requests/bulk", json={"requests": many}))
        tokens = [
            made(server["admin"].post(f"{API}/tokens", json={"name": f"p{n}", "role": "operator"}))
            for n in range(pages + 1)
        ]
        secrets = [token["token"] for token in tokens]
        print(json.dumps({"url": server.url, "tokens": secrets}), flush=True)
        sys.stdin.read()


@contextmanager
def world(arguments: list[str]) -> Iterator[tuple[int, str, list[str]]]:
    """The process id, the address and the tokens of a server with all of that in it."""
    with tempfile.TemporaryDirectory() as folder:
        database = f"sqlite:///{Path(folder) / 'cede.db'}"
        command = [sys.executable, "-m", "tests.page.load", "--serve", database, *arguments]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            said = json.loads(process.stdout.readline())
            yield process.pid, said["url"], said["tokens"]
        finally:
            process.kill()
            process.wait()


@contextmanager
def others(url: str, tokens: list[str], calls: dict[str, float]) -> Iterator[None]:
    """Pages of other people, one for each token, which make these calls."""
    command = [sys.executable, "-m", "tests.page.load", "--look", url]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(json.dumps([tokens, calls]) + "\n")
        process.stdin.flush()
        assert process.stdout.readline(), "the other pages could not be opened"
        yield
    finally:
        process.stdin.close()
        code = process.wait()
    assert code == 0, "the other pages did not stay open"


def sign_in(page: Any, url: str, token: str) -> None:
    page.goto(link(url, token))
    page.wait_for_selector("#main h1")


def show_queue(page: Any, url: str) -> None:
    page.goto(f"{url}/{VIEW}")
    page.wait_for_selector("tbody tr[data-id]")


@contextmanager
def counted(page: Any) -> Iterator[Counter[str]]:
    """How often a page reads each path of the API; its stream of events is one call."""
    found: Counter[str] = Counter()

    def count(request: Any) -> None:
        path = request.url.partition(API)[2]
        if path and "follow=" not in path:
            found[API + path] += 1

    page.on("request", count)
    yield found
    page.remove_listener("request", count)


async def look(url: str) -> None:
    """For each token that standard input names, do what its page would, until the input ends."""
    tokens, calls = json.loads(sys.stdin.readline())
    async with AsyncExitStack() as stack:
        going = []
        for token in tokens:
            bearer = {"Authorization": f"Bearer {token}"}
            http = httpx2.AsyncClient(base_url=url, headers=bearer, timeout=300)
            await stack.enter_async_context(http)
            events = http.stream("GET", f"{API}/events?follow=true")
            stream = await stack.enter_async_context(events)
            going.append(asyncio.ensure_future(_follow(stream)))
            going += [asyncio.ensure_future(_read(http, *each)) for each in calls.items()]
        print("open", flush=True)
        over = asyncio.ensure_future(asyncio.to_thread(sys.stdin.read))
        done, _ = await asyncio.wait([over, *going], return_when=asyncio.FIRST_COMPLETED)
        for each in going:
            each.cancel()
        assert done == {over}, [each.exception() for each in done]


async def _follow(stream: httpx2.Response) -> None:
    async for _ in stream.aiter_raw():
        pass


async def _read(http: httpx2.AsyncClient, path: str, every: float) -> None:
    await asyncio.sleep(random.uniform(0, every))
    while True:
        began = time.monotonic()
        try:
            made(await http.get(path))
        except httpx2.RemoteProtocolError:  # the server closed an idle connection just then
            made(await http.get(path))
        await asyncio.sleep(max(0.0, began + every - time.monotonic()))


def processor_seconds(pid: int) -> float:
    """Of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(each) for each in fields[11:15]) / _TICKS


class Changes(threading.Thread):
    """Cancels a waiter and submits another, so many times a second."""

    def __init__(self, url: str, token: str, rate: float) -> None:
        super().__init__(daemon=True)
        bearer = {"Authorization": f"Bearer {token}"}
        self.http = httpx2.Client(base_url=url, headers=bearer, timeout=120)
        self.done = 0
        self._rate = rate
        self._over = threading.Event()

    def run(self) -> None:
        made_ids: list[str] = []
        due = time.monotonic()
        while not self._over.wait(max(0.0, due - time.monotonic())):
            due += 1 / self._rate
            if len(made_ids) > 5:
                self.http.post(f"{API}/requests/{made_ids.pop(0)}/cancel")
            else:
                asked = {"component": "team-00", "component_type": "team", "resources": {"gpu": 1}}
                made_ids.append(made(self.http.post(f"{API}/requests", json=asked))["id"])
            self.done += 1

    def stop(self) -> None:
        self._over.set()
        self.join()
        self.http.close()


def spent(pid: int, seconds: float) -> float:
    """Part of a core that the server uses."""
    before, began = processor_seconds(pid), time.monotonic()
    time.sleep(seconds)
    return (processor_seconds(pid) - before) / (time.monotonic() - began)


def timed(call: Any) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


def measure(given: argparse.Namespace, pid: int, url: str, tokens: list[str]) -> dict[str, Any]:
    changes = Changes(url, tokens[0], given.rate)
    bare = [f"{API}/pools/{POOL}", f"{API}/policies?pool={POOL}&limit=500"]
    bare.append(f"{API}/pools/{POOL}/queue?limit=50&offset=0")
    found: dict[str, Any] = {}
    changes.start()
    try:
        with launched() as browser, opened(browser) as first:
            found["bare_api_seconds"] = timed(
                lambda: [made(changes.http.get(each)) for each in bare]
            )
            sign_in(first, url, tokens[1])
            found["first_view_seconds"] = timed(lambda: show_queue(first, url))
            first.goto("about:blank")
            found["core_without_pages"] = spent(pid, given.seconds)
            sign_in(first, url, tokens[1])
            show_queue(first, url)
            with counted(first) as times:
                first.wait_for_timeout(given.seconds * 1000)
            calls = {path: given.seconds / n for path, n in times.items() if n > 1}
            found["calls_a_second"] = sum(times.values()) / given.seconds
            with others(url, tokens[2 : given.pages + 1], calls):
                changed = changes.done
                found["core_with_pages"] = spent(pid, given.seconds)
                found["changes_a_second"] = (changes.done - changed) / given.seconds
                found["scrolling"] = first.evaluate(_SCROLL)
                id_ = first.query_selector("tbody tr[data-id]").get_attribute("data-id")
                began = time.monotonic()
                made(changes.http.post(f"{API}/requests/{id_}/cancel"))
                answered = time.monotonic()
                first.wait_for_selector(f"tr[data-id='{id_}']", state="detached")
                found["change_answered_seconds"] = answered - began
                found["change_on_the_page_seconds"] = time.monotonic() - answered
    finally:
        changes.stop()
    extra = found["core_with_pages"] - found["core_without_pages"]
    found["core_for_a_page"] = extra / given.pages
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, usual in (("nodes", 200), ("teams", 40), ("holders", 5_000), ("waiters", 20_000)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--pages", type=int, default=20)
    parser.add_argument("--rate", type=float, default=20.0, help="changes a second")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to measure")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--look", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.look:
        asyncio.run(look(given.look))
        return
    sizes = (given.nodes, given.teams, given.holders, given.waiters, given.pages)
    if given.serve:
        try:
            serve(given.serve, *sizes)
        finally:
            listening.stop_all()
        return
    names = ("nodes", "teams", "holders", "waiters", "pages")
    told = [f"--{name}={size}" for name, size in zip(names, sizes, strict=True)]
    with world(told) as (pid, url, tokens):
        for name, figure in measure(given, pid, url, tokens).items():
            print(f"{name:28} {figure:.3f}" if isinstance(figure, float) else f"{name:28} {figure}")


if __name__ == "__main__":
    main()
