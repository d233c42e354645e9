"""The servers of a soak: one on SQLite, or two on PostgreSQL behind one address.

They are only started and signalled here. Nothing waits until they answer: whoever calls them puts
up with their absence, as agents and clients do.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

import yaml

from tests.client.serving import BIN, START_SECONDS, eventually
from tests.soak.front import Front
from tests.soak.process import Process
from tests.support import ports

PROBE_SECONDS = 0.5  # between two looks which server answers, and for one answer


class Server(Process):
    """One server process, on the same port whenever it is started."""

    def __init__(self, data: Path, heartbeat: float, database: str | None) -> None:
        self.data = data
        self.log = data.parent / f"{data.name}.log"
        self._held = ports.hold()
        self.port = ports.number_of(self._held)
        self._heartbeat, self._database = heartbeat, database

    def start(self) -> None:
        command = [BIN / "cede", "up", "--data", self.data, "--port", self.port, "--no-agent"]
        command += ["--heartbeat", self._heartbeat]
        if self._database is not None:
            command += ["--database", self._database]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [str(each) for each in command], stdout=log, stderr=log, cwd=self.data.parent
            )

    def answers(self) -> bool:
        with suppress(OSError, HTTPException):
            url = f"http://127.0.0.1:{self.port}/healthz"
            with urllib.request.urlopen(url, timeout=PROBE_SECONDS) as answer:
                return bool(answer.status == 200)
        return False

    def stop(self) -> None:
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()
        self._held.close()


class Servers:
    """All of them, and the one address that agents and clients know. `databases`: how each of
    several servers reaches the one that they share; none: one server on SQLite.
    """

    def __init__(self, home: Path, heartbeat: float, databases: Sequence[str] = ()) -> None:
        self._front = Front() if databases else None
        self.all = [
            Server(home / f"server-{number}", heartbeat, each)
            for number, each in enumerate(databases or (None,), 1)
        ]
        self.port = self.all[0].port if self._front is None else self._front.port
        self.url = f"http://127.0.0.1:{self.port}"
        self._over = threading.Event()
        try:
            self.token = self._start()
        except BaseException:
            self.stop()  # whoever made us has nobody to stop
            raise

    def _start(self) -> str:
        """Start them, and return the first token."""
        # The first start makes the database: the second would wait for it anyway.
        self.all[0].start()
        eventually(self.all[0].answers, START_SECONDS)
        for each in self.all[1:]:
            each.start()
        if self._front is not None:
            threading.Thread(target=self._watch, daemon=True).start()
        return str(yaml.safe_load((self.all[0].data / "client.yaml").read_text())["token"])

    def _watch(self) -> None:
        """Lead calls to whoever answers, as a proxy with health checks does."""
        assert self._front is not None
        while not self._over.wait(PROBE_SECONDS):
            answering = [each.port for each in self.all if each.answers()]
            if answering and self._front.target not in answering:
                self._front.lead_to(answering[0])

    def revive(self) -> None:
        """Whatever was done to them, they run."""
        for each in self.all:
            each.signal(signal.SIGCONT)
            if each.has_ended():
                each.start()

    def wait(self, seconds: float) -> bool:
        """Whether one of them answers before so many seconds are over."""
        deadline = time.monotonic() + seconds
        while not (found := any(each.answers() for each in self.all)):
            if time.monotonic() > deadline:
                break
            self.revive()
            time.sleep(PROBE_SECONDS)
        return found

    def stop(self) -> None:
        self._over.set()
        for each in self.all:
            each.stop()
        if self._front is not None:
            self._front.close()
