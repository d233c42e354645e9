"""`cede up` of an ordinary account, with the agent that it starts, and work on it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from cede import Client
from tests.agent.cluster import alive, sweep
from tests.client.serving import START_SECONDS, WAIT_SECONDS, eventually
from tests.support import ordinary

INTRUDER = Path(__file__).parent / "programs" / "intruder.py"
OVER = ("released", "failed", "cancelled", "preempted", "rejected")


class Up:
    """A server, its agent, and all their work, until `stop`."""

    def __init__(self, home: Path, *, namespaces: bool = True) -> None:
        self.home = ordinary.own(home)
        self.data = home / "data"
        self._log = home.with_name(f"{home.name}.log")
        self.client: Client | None = None
        self.config = home / "server.yaml"
        self.config.write_text("heartbeat: 1\n")
        own = ("--data", self.data, "--port", 0, "--config", self.config)
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                ordinary.command(
                    ordinary.python(), "-m", "cede.cli", "up", *own, namespaces=namespaces
                ),
                env=ordinary.environment(home),
                stdout=log,
                stderr=log,
                cwd="/",
            )
        try:
            found = eventually(partial(self._is_serving), START_SECONDS)
            content = yaml.safe_load((self.data / "client.yaml").read_text())
            self.token: str = content["token"]
            self.url = str(found)
            self.client = Client(self.url, self.token)
        except BaseException:
            self.stop()  # whoever made us has nobody to stop
            raise

    def _is_serving(self) -> str:
        assert self.process.poll() is None, self.said
        found = re.search(r"cede is serving on (\S+)", self.said)
        return found[1] if found else ""

    @property
    def said(self) -> str:
        return self._log.read_text()

    @property
    def agent(self) -> Path:
        return self.data / "agent"

    @property
    def agent_pid(self) -> int:
        return int((self.agent / "lock").read_text())

    def submit(self, *argv: object, **fields: Any) -> str:
        env = {"PYTHONPATH": ordinary.environment(self.home)["PYTHONPATH"]}
        who = {"component": ordinary.account().pw_name, "component_type": "user"}
        work = {"argv": [str(each) for each in argv], "directory": "/", "env": env}
        body = {"kind": "work", "pool": "local", "resources": {"mcpu": 10}, "work": work}
        return str(self.client.requests.create({**body, **who, **fields})["id"])

    def attempt(self, request: str) -> Path:
        return self.agent / "attempts" / f"{request}.1.0"

    def ended(self, request: str) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            found = self.client.requests.get(request)
            return found if found["status"] in OVER else None

        return dict(eventually(look))

    def printed(self, request: str) -> str:
        return b"".join(data for _, data in self.client.requests.logs(request)).decode()

    def stop(self) -> None:
        if self.client is not None:
            self.client.close()
        if self.process.poll() is None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(WAIT_SECONDS)
            self.process.kill()
        lock = self.agent / "lock"
        if lock.exists() and alive(self.agent_pid):
            os.kill(self.agent_pid, signal.SIGKILL)
        for spec in (self.agent / "attempts").glob("*/spec.json"):
            sweep(spec.parent)


def intrusion(paths: dict[str, Path], pids: dict[str, int], *, signals: bool) -> list[object]:
    """The command that tries everything against these."""
    asked = {"paths": {name: str(path) for name, path in paths.items()}, "pids": pids}
    return [ordinary.python(), INTRUDER, json.dumps({**asked, "signal": signals})]
