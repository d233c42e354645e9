"""A real server and real agents on this machine, each with its own data, to be killed at will."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cede import Client
from tests.client.serving import BIN, WAIT_SECONDS, Serving, eventually

HEARTBEAT = 1.0
GRACE = 3.0  # in which a program notes on a busy machine that it was told to stop
POOL = "nodes"
TEAM = "red"
BLUE = "blue"  # may take back whatever red has


class Agent:
    def __init__(self, cluster: Cluster, name: str, *options: str) -> None:
        self.cluster, self.name, self.options = cluster, name, options
        self.data = cluster.home / name
        self.log = cluster.home / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, **environ: str) -> Agent:
        command = [BIN / "cede", "agent", "--server", self.cluster.server.url, "--data", self.data]
        labels = ("--label", "pool=nodes", "--label", f"host={self.name}")
        command += ["--name", self.name, *labels, *self.options]
        kept = {key: text for key, text in os.environ.items() if not key.startswith("CEDE_")}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [str(each) for each in command],
                env={**kept, "CEDE_JOIN": self.cluster.join, **environ},
                stdout=log,
                stderr=log,
                cwd="/",
            )
        return self

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait()

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self, seconds: float = WAIT_SECONDS) -> int:
        assert self.process is not None
        return self.process.wait(seconds)

    def has_ended(self) -> bool:
        assert self.process is not None
        return self.process.poll() is not None

    def attempt(self, request_id: str, attempt: int = 1, task: int = 0) -> Path:
        return self.data / "attempts" / f"{request_id}.{attempt}.{task}"


class Cluster:
    def __init__(self, home: Path, heartbeat: float = HEARTBEAT) -> None:
        home.chmod(0o755)  # work of other accounts comes by here
        self.home = home
        options = ("--heartbeat", str(heartbeat), "--no-agent")
        self.server = Serving(home / "data", options=options)
        self.client: Client = self.server.client()
        self.agents: list[Agent] = []
        self.join: str = self.client.tokens.create("join", "join")["token"]
        self.client.pools.create(POOL, nodes={"pool": "nodes"}, settings={"grace": GRACE})

    def agent(self, name: str = "n1", gpus: int = 2, *options: str, **environ: str) -> Agent:
        """An agent that has joined."""
        agent = self.start_agent(name, gpus, *options, **environ)
        self.until_ready(name)
        self.allow_everything()
        return agent

    def start_agent(self, name: str, gpus: int, *options: str, **environ: str) -> Agent:
        own = ("--amount", f"gpu={gpus}", *(options or ("--allow-root-jobs",)))
        agent = Agent(self, name, *own).start(**environ)
        self.agents.append(agent)
        return agent

    def retire(self, agent: Agent) -> None:
        """End an agent that no other test needs, so that it costs nothing and is given nothing."""
        agent.kill()
        self.agents.remove(agent)
        self.client.nodes.delete(agent.name)

    def until_ready(self, name: str) -> None:
        self.until(lambda: self.nodes().get(name) == "ready")

    def nodes(self) -> dict[str, str]:
        return {each["name"]: each["state"] for each in self.client.nodes.list()}

    def allow_everything(self) -> None:
        """Red may have whatever the nodes have; without a limit also what later ones have."""
        if not list(self.client.policies.list(pool=POOL, component=TEAM)):
            self.client.policies.attach(POOL, TEAM, component_type="team", priority=10)

    def allow_blue(self, gpus: int = 2) -> None:
        if not list(self.client.policies.list(pool=POOL, component=BLUE)):
            own = {"reserved": {"gpu": gpus}, "limit": {"gpu": gpus}}
            self.client.policies.attach(POOL, BLUE, component_type="team", priority=20, **own)

    def submit(self, *argv: str, gpus: int = 1, **fields: Any) -> str:
        """Most tests are not about silence, of which a busy machine has some by itself."""
        work = {"argv": list(argv), **fields.pop("work", {})}
        made = self.client.requests.create(
            {
                "kind": "work",
                "resources": {"gpu": gpus},
                "pool": POOL,
                "component": TEAM,
                "component_type": "team",
                "on_silence": "keep",
                "work": work,
                **fields,
            }
        )
        assert made["status"] != "rejected", made
        return str(made["id"])

    def get(self, request_id: str) -> dict[str, Any]:
        return self.client.requests.get(request_id)

    def ended(self, request_id: str, seconds: float = WAIT_SECONDS) -> dict[str, Any]:
        over = ("released", "failed", "cancelled", "preempted", "rejected")
        self.until(lambda: self.get(request_id)["status"] in over, seconds, about=request_id)
        return self.get(request_id)

    def until(
        self, look: Callable[[], object], seconds: float = WAIT_SECONDS, about: str = ""
    ) -> None:
        try:
            eventually(look, seconds)
        except AssertionError as error:
            error.add_note(self.story(about))
            raise

    def story(self, request_id: str) -> str:
        logs = "\n".join(f"{each.name}: {each.log.read_text()[-3000:]}" for each in self.agents)
        found = str(self.get(request_id)) if request_id else ""
        server = self.server._log.read_text()[-3000:]
        return f"{found}\n{list(self.client.nodes.list())}\n{logs}\nserver: {server}"

    def events(self, request_id: str, kind: str) -> list[dict[str, Any]]:
        return [
            each
            for each in self.client.events()
            if each.get("request_id") == request_id and each["kind"] == kind
        ]

    def stop(self) -> None:
        """Everything that was started, and what the agents' keepers still keep."""
        for agent in self.agents:
            if agent.process is not None and agent.process.poll() is None:
                agent.signal(signal.SIGCONT)
                agent.kill()
            for attempt in (agent.data / "attempts").glob("*/spec.json"):
                sweep(attempt.parent)
        self.client.close()
        self.server.stop()


def sweep(directory: Path) -> None:
    from cede.launch import launcher
    from cede.model.errors import CedeError

    try:
        launcher.sweep(directory, keeper_too=True)
    except (CedeError, OSError) as error:
        raise AssertionError(f"{directory} has survivors") from error


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def read_when_there(path: Path) -> str:
    """What is in a file once it has whole lines."""

    def look() -> str:
        text = path.read_text() if path.exists() else ""
        return text if text.endswith("\n") else ""

    return str(eventually(look))
