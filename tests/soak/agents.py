"""The agents of a soak, each in a mount namespace of its own.

All of them have their checkpoints at the same path. What is mounted there is one folder for the
first half of them, and a folder of its own for each of the others.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.agent.cluster import alive, sweep
from tests.client.serving import BIN
from tests.soak.process import Process

# The namespace's own shell becomes the agent, so that one pid is both.
MOUNTED = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'


def can_unshare() -> bool:
    return subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


class Agent(Process):
    def __init__(self, home: Path, name: str, folder: Path, *, apart: bool) -> None:
        self.name, self.data, self.log = name, home / name, home / f"{name}.log"
        self.folder, self._apart = folder, apart
        self.checkpoints = home / "checkpoints" if apart else folder
        for each in (folder, self.checkpoints):
            each.mkdir(parents=True, exist_ok=True)
        self.command: list[str] = []
        self._environ: dict[str, str] = {}

    def join(self, url: str, token: str, gpus: int) -> None:
        own = ["--data", self.data, "--name", self.name, "--checkpoints", self.checkpoints]
        own += ["--amount", f"gpu={gpus}", "--allow-root-jobs"]
        labels = ["--label", "pool=soak", "--label", f"host={self.name}"]
        command = [BIN / "cede", "agent", "--server", url, *own, *labels]
        mounted = ["unshare", "-m", "sh", "-c", MOUNTED, "-", self.folder, self.checkpoints]
        self.command = [str(each) for each in ([*mounted, *command] if self._apart else command)]
        kept = {key: text for key, text in os.environ.items() if not key.startswith("CEDE_")}
        self._environ = {**kept, "CEDE_JOIN": token}
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, env=self._environ, stdout=log, stderr=log, cwd="/"
            )

    def revive(self) -> None:
        """Whatever was done to it, it runs."""
        self.signal(signal.SIGCONT)
        if self.has_ended():
            self.start()

    def supervisors(self) -> dict[int, str]:
        """The pids of those that keep something, and the request whose work that is."""
        found: dict[int, str] = {}
        for path in (self.data / "attempts").glob("*/started.json"):
            with suppress(OSError, ValueError):  # just being written, or removed
                pid = int(json.loads(path.read_text())["keeper"])
                if not (path.parent / "exit.json").exists() and alive(pid):
                    found[pid] = path.parent.name.partition(".")[0]
        return found

    def outputs(self, request: str) -> list[Path]:
        """What the attempts of a request said on standard error here."""
        return sorted((self.data / "attempts").glob(f"{request}.*/stderr.log"))

    def stop(self) -> None:
        """The agent, and whatever its supervisors still keep."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()
        for spec in (self.data / "attempts").glob("*/spec.json"):
            sweep(spec.parent)
