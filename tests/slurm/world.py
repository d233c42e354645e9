"""A server, a Slurm and the bridge between them, in processes of their own, to be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cede import Client, Conflict
from tests.client import serving
from tests.client.serving import Serving
from tests.slurm.cluster import Cluster
from tests.support.sources import HERE

# A server, a bridge, Slurm and work on one machine: only a test that fails waits so long.
WAIT_SECONDS = 200.0
POLL = 0.5
HEARTBEAT = 1.0
POOL = "slurm-gpus"
SETTINGS = {"grace": 10.0}
COUNTING = Path(__file__).parent / "counting.py"
OVER = ("released", "failed", "cancelled", "preempted", "rejected")


def eventually(look: Callable[[], Any], seconds: float = WAIT_SECONDS) -> None:
    serving.eventually(look, seconds)


class Bridge:
    """The process `cede bridge slurm` on one folder."""

    def __init__(self, world: World, *options: str, poll: float = POLL) -> None:
        self.world = world
        self.options = (*options, "--poll", f"{poll}s")
        self.root_jobs = True
        self.data = world.home / "bridge"
        self.log = world.home / "bridge.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, **environ: str) -> None:
        kept = {key: text for key, text in os.environ.items() if not key.startswith("CEDE_")}
        kept |= {name: self.world.slurm.env[name] for name in ("SLURM_CONF", "PATH")}
        options = [*("--server", self.world.server.url, "--data", self.data), *self.options]
        command = [self.world.python, "-m", "cede.cli", "bridge", "slurm", *options]
        command += ["--allow-root-jobs"] * self.root_jobs
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [str(each) for each in command],
                env={**kept, **HERE.variables(), "CEDE_JOIN": self.world.join, **environ},
                stdout=log,
                stderr=log,
                cwd="/",
            )

    def has_ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(WAIT_SECONDS)

    def end(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(WAIT_SECONDS)


class World:
    def __init__(self, home: Path, slurm: Cluster, **options: Any) -> None:
        home.chmod(0o755)
        self.home, self.slurm = home, slurm
        self.python = sys.executable  # of the bridge, its members and their work
        self.server = Serving(home / "data", None, ("--heartbeat", str(HEARTBEAT), "--no-agent"))
        self.client: Client = self.server.client()
        self.join: str = self.client.tokens.create("join", "join")["token"]
        self.bridge = Bridge(self, **options)

    def pool(self, name: str = POOL, **fields: Any) -> None:
        self.client.pools.create(
            name, **{"nodes": {"slurm": "yes"}, "settings": SETTINGS, **fields}
        )

    def policy(self, who: str, pool: str = POOL, **fields: Any) -> None:
        self.client.policies.attach(pool, who, component_type="team", **fields)

    def up(self) -> None:
        """The bridge runs, and nobody holds anything."""
        if self.bridge.has_ended():
            self.bridge.start()
        self.until(lambda: self.free() == self.slurm.gpus, "all nodes are free")

    def free(self, key: str = "gpu") -> int:
        return sum(each["free"].get(key, 0) for each in self.nodes().values() if _usable(each))

    def nodes(self) -> dict[str, Any]:
        return {each["name"]: each for each in self.client.nodes.list()}

    def submit(self, *argv: str, component: str = "red", gpus: int = 1, **fields: Any) -> str:
        work = {"argv": list(argv), **fields.pop("work", {})}
        who = {"component": component, "component_type": "team", "pool": POOL}
        body = {"kind": "work", "resources": {"gpu": gpus}, **who, "work": work, **fields}
        made = self.client.requests.create(body)
        assert made["status"] != "rejected", made
        return str(made["id"])

    def counting(self, notes: Path, **fields: Any) -> str:
        """A program that counts, saves when it is asked and says where it began."""
        env = {**HERE.variables()}
        given = {"checkpoint": "auto", "checkpoint_timeout": 60.0, **fields}
        python = (self.python, str(COUNTING), str(notes))
        return self.submit(*python, work={"env": env}, **given)

    def get(self, request_id: str) -> dict[str, Any]:
        return dict(self.client.requests.get(request_id))

    def ended(self, request_id: str, seconds: float = WAIT_SECONDS) -> dict[str, Any]:
        self.until(lambda: self.get(request_id)["status"] in OVER, f"{request_id} ends", seconds)
        return self.get(request_id)

    def running(self, request_id: str) -> dict[str, Any]:
        def runs() -> bool:
            allocation = self.get(request_id)["allocation"]
            return bool(allocation) and allocation["state"] == "running"

        self.until(runs, f"{request_id} runs")
        return self.get(request_id)

    def where(self, request_id: str) -> list[str]:
        allocation = self.get(request_id)["allocation"]
        return [each["node"] for each in allocation["members"]] if allocation else []

    def why(self, request_id: str) -> str:
        found = self.client.requests.why(request_id)
        return str(found)

    def until(self, look: Callable[[], Any], what: str = "", seconds: float = WAIT_SECONDS) -> None:
        try:
            eventually(look, seconds)
        except AssertionError:
            raise AssertionError(f"not so: {what}\n{self.story()}") from None

    def clear(self) -> None:
        """Nobody wants anything, and there is no pool."""
        for each in list(self.client.requests.list(status=["queued", "allocated", "suspended"])):
            with suppress(Conflict):  # it has ended meanwhile
                self.client.requests.cancel(each["id"])
        for each in self.nodes().values():
            if each["state"] in ("draining", "drained"):
                self.client.nodes.undrain(each["name"])
        for pool in list(self.client.pools.list()):
            self.until(lambda: self._is_deleted(pool["name"]), "the pool is idle")  # noqa: B023

    def _is_deleted(self, pool: str) -> bool:
        try:
            self.client.pools.delete(pool)
        except Conflict:
            return False
        return True

    def story(self) -> str:
        """What everybody says, for a test that fails."""
        log = self.bridge.log.read_text()[-4000:] if self.bridge.log.exists() else ""
        jobs = self.slurm.try_run("squeue", "-a", "-t", "all", "-o", "%i %j %T %N %r")
        lines = [
            f"{each['id']} {each['status']} attempt {each['attempt']} {each['reason']}"
            for each in self.client.requests.list(limit=20)
        ]
        nodes = [f"{n} {v['state']} {v['free']} {v['others_why']}" for n, v in self.nodes().items()]
        return "\n".join((log, jobs, *lines, *nodes))

    def jobs_of(self, request_id: str) -> list[str]:
        """The names of all jobs that Slurm ever had for a request."""
        return [name for _, name, _, _ in self.slurm.jobs() if request_id in name]

    def stop(self) -> None:
        self.bridge.kill()
        self.client.close()
        self.server.stop()


def _usable(node: dict[str, Any]) -> bool:
    return bool(node["state"] == "ready")


@contextmanager
def world(home: Path, slurm: Cluster, **options: Any) -> Iterator[World]:
    made = World(home, slurm, **options)
    try:
        yield made
    finally:
        made.stop()
