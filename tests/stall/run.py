"""A server under attack beside a holder that renews its lease, and what both look like."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from tests.stall.attack import API, PATIENCE

LEASE = 20  # seconds; a stall of half of it would be seen as a late renewal already
RENEW_EVERY = 0.25
ADDRESSES = [f"127.0.1.{number}" for number in range(1, 101)]


@dataclass
class Site:
    """A server of its own, prepared: tokens of those who attack, and one holder."""

    pid: int
    port: int
    admin: str
    holder: str = ""
    held: str = ""
    attackers: list[str] = field(default_factory=list)

    def call(self, secret: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
            text = None if body is None else json.dumps(body)
            connection.request(method, API + path, text, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        finally:
            connection.close()

    def made(self, path: str, body: Any, secret: str = "") -> Any:
        status, answer = self.call(secret or self.admin, "POST", path, body)
        assert status in (200, 201), (path, status, answer)
        return answer

    def prepare(self, waiting: int, tokens: int) -> None:
        self.made("/pools", {"name": "gpus", "capacity": {"gpu": 8}})
        for team in ("good", "bad"):
            policy = {"pool": "gpus", "component": team, "component_type": "team"}
            self.made("/policies", policy | {"reserved": {"gpu": 4}, "limit": {"gpu": 4}})
        self.holder = self._token("holder", "good")
        self.attackers = [self._token(f"bad-{number}", "bad") for number in range(tokens)]
        item = {"resources": {"gpu": 1}, "component": "bad", "component_type": "team"}
        for at in range(0, waiting, 500):
            some = [item | {"lease": "none"}] * min(500, waiting - at)
            self.made("/requests/bulk", {"requests": some})

    def hold(self) -> None:
        """From here on there is a lease that must be kept."""
        body = {"resources": {"gpu": 1}, "lease": LEASE, "pool": "gpus"}
        self.held = self.made("/requests", body, self.holder)["id"]

    def _token(self, name: str, team: str) -> str:
        body = {"name": name, "role": "submitter", "subjects": [f"team:{team}"]}
        return str(self.made("/tokens", body)["token"])

    def resident(self) -> int:
        """kB of memory that the server has now."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+)", status)
        assert found is not None
        return int(found[1])


@contextmanager
def site(data: Path) -> Iterator[Site]:
    command = [sys.executable, "-m", "cede.cli", "up", "--data", str(data), "--port", "0"]
    server = subprocess.Popen([*command, "--no-agent"], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = next(line.split()[-1] for line in server.stdout if "serving on" in line)
        port = urlsplit(url).port
        assert port is not None
        secret = yaml.safe_load((data / "client.yaml").read_text())["token"]
        yield Site(server.pid, port, secret)
    finally:
        server.terminate()
        server.wait(PATIENCE)
        if server.stdout is not None:
            server.stdout.close()


@dataclass
class Seen:
    """What the holder and an onlooker saw."""

    renewals: list[float] = field(default_factory=list)
    health: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def watch(self, site: Site, stop: threading.Event) -> list[threading.Thread]:
        path = f"/requests/{site.held}/renew"
        threads = [
            threading.Thread(target=self._renew, args=(site, path, stop)),
            threading.Thread(target=self._look, args=(site, stop)),
        ]
        for each in threads:
            each.start()
        return threads

    def _renew(self, site: Site, path: str, stop: threading.Event) -> None:
        while not (stop.wait(RENEW_EVERY) and (self.renewals or self.lost)):
            began = time.perf_counter()
            try:
                status, answer = site.call(site.holder, "POST", path, {})
            except OSError as error:  # a client tries again as well
                self.lost.append(f"no answer: {error}")
                continue
            self.renewals.append(time.perf_counter() - began)
            if status != 200 or answer["status"] not in ("allocated", "running"):
                self.lost.append(f"{status}: {answer.get('reason') or answer}")

    def _look(self, site: Site, stop: threading.Event) -> None:
        while not (stop.wait(1) and (self.health or self.lost)):
            began = time.perf_counter()
            connection = HTTPConnection("127.0.0.1", site.port, timeout=PATIENCE)
            try:
                connection.request("GET", "/healthz")
                assert connection.getresponse().status == 200
                self.health.append(time.perf_counter() - began)
            except OSError as error:
                self.lost.append(f"health: {error}")
            finally:
                connection.close()


def attacked(where: Site, seconds: float) -> tuple[Seen, Counter[str], int]:
    """Attack for so long; what was seen, what was answered, and the most memory."""
    seen, stop = Seen(), threading.Event()
    where.hold()
    watching = seen.watch(where, stop)
    # In a process of its own: else the holder would wait for the attacker's threads.
    asked = {"port": where.port, "secrets": where.attackers, "addresses": ADDRESSES}
    attack = subprocess.Popen(
        [sys.executable, "-m", "tests.stall.attack", json.dumps(asked)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    most, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        most = max(most, where.resident())
        time.sleep(0.5)
    answers = Counter(json.loads(attack.communicate("", 4 * PATIENCE)[0]))
    stop.set()
    for each in watching:
        each.join(2 * PATIENCE)
    return seen, answers, most


def percentile(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def told(figures: Mapping[str, object]) -> str:
    return "\n".join(f"{name:>28}  {value}" for name, value in figures.items())
