"""A server and three agents on this machine, each with data of its own; gone without a trace
afterwards, with everything they started.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from cede import Client
from cede.launch import launcher

CEDE = Path(sys.executable).parent / "cede"
PATIENCE = 60.0
T = TypeVar("T")
GPUS = 4  # of each node; nobody looks whether they are there


class Machines:
    """In a `with` block. What its processes say is in files below `home`."""

    def __enter__(self) -> Machines:
        self.home = Path(tempfile.mkdtemp(prefix="cede-demo-"))
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            self.url = self._start_server()
        except BaseException:
            self.__exit__()
            raise
        os.environ["CEDE_CONFIG"] = str(self.home / "server" / "client.yaml")
        self.client = Client()
        return self

    def __exit__(self, *_: object) -> None:
        """Agents first, then what their supervisors still keep, then the server and the files."""
        # Whoever presses Ctrl-C twice does not get to leave something behind.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        server, *agents = self._processes or [None]
        for process in agents:
            _end(process)
        for spec in self.home.glob("*/attempts/*/spec.json"):
            launcher.sweep(spec.parent, supervisor_too=True)
        if server is not None:
            _end(server)
        shutil.rmtree(self.home)

    def _start_server(self) -> str:
        options = ("--port", "0", "--no-agent", "--heartbeat", "1")
        said = self._start("server", "up", "--data", str(self.home / "server"), *options)
        is_up = re.compile(r"cede is serving on (http://\S+)")
        return self._until(lambda: is_up.findall(said.read_text()))[0]

    def start_agent(self, name: str, join: str) -> None:
        own = ("--data", str(self.home / name), "--name", name, "--label", "site=demo")
        # A shared file system: what was saved on one node is found on the others.
        shared = ("--checkpoints", str(self.home / "checkpoints"))
        pretended = ("--amount", f"gpu={GPUS}", "--allow-root-jobs")
        self._start(name, "agent", "--server", self.url, *own, *shared, *pretended, CEDE_JOIN=join)

    def until_ready(self, nodes: int) -> None:
        def look() -> bool:
            return [each["state"] for each in self.client.nodes.list()] == ["ready"] * nodes

        self._until(look)

    def _start(self, name: str, *command: str, **environ: str) -> Path:
        said = self.home / f"{name}.log"
        kept = {key: text for key, text in os.environ.items() if not key.startswith("CEDE_")}
        with said.open("wb") as log:
            process = subprocess.Popen(
                [CEDE, *command],
                env={**kept, **environ},
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,  # Ctrl-C is for us; we end them in order
            )
        self._processes.append(process)
        return said

    def _until(self, look: Callable[[], T]) -> T:
        deadline = time.monotonic() + PATIENCE
        while not (found := look()):
            ended = [each.args for each in self._processes if each.poll() is not None]
            if ended or time.monotonic() > deadline:
                logs = "".join(each.read_text() for each in self.home.glob("*.log"))
                raise SystemExit(f"the demonstration could not start:\n{logs}")
            time.sleep(0.05)
        return found


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
