"""A real server and real agents on this machine, each with its own data, to be killed at will."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from cede import CedeClientError, Client, NotFound, ServerUnreachable
from cede.client.http import API
from tests.client.serving import BIN, WAIT_SECONDS, Serving, eventually
from tests.support.sources import HERE, Source

HEARTBEAT = 1.0
NODE_LEASE = 6.0  # seconds: tests of silence need not wait for longer
GRACE = 10.0  # in which a program notes on a busy machine that it was told to stop
SETTINGS = {"grace": GRACE, "node_lease": NODE_LEASE}  # of the pool of nodes
POOL = "nodes"
TEAM = "red"
BLUE = "blue"  # may take back whatever red has
LIVE = ("queued", "suspended", "allocated", "preempting")


class Agent:
    def __init__(self, cluster: Cluster, name: str, *options: str) -> None:
        self.cluster, self.name, self.options = cluster, name, options
        self.source = cluster.source  # another one takes effect at the next start
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
                env={**kept, **self.source.variables(), "CEDE_JOIN": self.cluster.join, **environ},
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
        assert self.process is not None
        self.process.kill()
        self.wait()

    def end(self) -> int:
        """Tell it to, and how it did."""
        self.signal(signal.SIGTERM)
        try:
            return self.wait()
        finally:
            self.kill()

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self, seconds: float = WAIT_SECONDS) -> int:
        assert self.process is not None
        return self.process.wait(seconds)

    def has_ended(self) -> bool:
        assert self.process is not None
        return self.process.poll() is not None

    def go_on(self) -> None:
        """Whatever was done to it, it runs."""
        if self.has_ended():
            self.start()
        self.signal(signal.SIGCONT)

    def attempt(self, request_id: str, attempt: int = 1, task: int = 0) -> Path:
        return self.data / "attempts" / f"{request_id}.{attempt}.{task}"


class Cluster:
    def __init__(
        self,
        home: Path,
        heartbeat: float = HEARTBEAT,
        source: Source = HERE,
        database: str | None = None,
        settings: Mapping[str, Any] = SETTINGS,
    ) -> None:
        home.chmod(0o755)  # work of other accounts comes by here
        self.home, self.source = home, source
        options = ("--heartbeat", str(heartbeat), "--no-agent")
        self.server = Serving(home / "data", database, options, source)
        self.client: Client = self.server.client()
        self.agents: list[Agent] = []
        try:
            self.join: str = self.client.tokens.create("join", "join")["token"]
            self.client.pools.create(POOL, nodes={"pool": "nodes"}, settings=settings)
        except BaseException:
            self.stop()  # whoever made us has nobody to stop
            raise

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
        with suppress(NotFound):  # it never got so far
            self.client.nodes.delete(agent.name)

    @contextmanager
    def borrowed(self) -> Iterator[Cluster]:
        """What is here now is in order afterwards, and nothing else is here: however a test ends,
        the next one, or its second try, finds what it found.
        """
        agents, live, pools = [*self.agents], self.live(), self.pools()
        try:
            yield self
        finally:
            if self.server.process.poll() is not None:
                self.server.start()
            self.until(partial(self._is_idle, but=live))
            new = self.pools() - pools
            for policy in [each for each in self.client.policies.list() if each["pool"] in new]:
                self.client.policies.detach(policy["id"])
            for agent in [each for each in self.agents if each not in agents]:
                self.retire(agent)
            for pool in new:
                self.client.pools.delete(pool)
            for agent in agents:
                self.until(partial(self._takes_work, agent))

    def _is_idle(self, but: list[str]) -> bool:
        """Whether nothing is left to stop, for which every agent is needed."""
        for agent in self.agents:
            agent.go_on()
        left = [each for each in reversed(self.live()) if each not in but]
        for each in left:  # waiters first, or they would start
            with suppress(CedeClientError):  # it has just ended
                self.client.requests.cancel(each)
        return not left

    def _takes_work(self, agent: Agent) -> bool:
        agent.go_on()
        state = self.nodes()[agent.name]
        if state in ("draining", "drained"):
            self.client.nodes.undrain(agent.name)
        return state == "ready"

    def live(self) -> list[str]:
        """What has not ended, oldest first."""
        found = self.client.requests.list(status=list(LIVE))
        return [each["id"] for each in sorted(found, key=lambda each: float(each["submitted_at"]))]

    def pools(self) -> set[str]:
        return {each["name"] for each in self.client.pools.list()}

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
        """Most tests are not about silence, of which a busy machine has some by itself. A field
        that is None is not given.
        """
        work = {"argv": list(argv), **fields.pop("work", {})}
        body = {
            "kind": "work",
            "resources": {"gpu": gpus},
            "pool": POOL,
            "component": TEAM,
            "component_type": "team",
            "on_silence": "keep",
            "work": work,
            **fields,
        }
        given = {name: value for name, value in body.items() if value is not None}
        made = self.client.requests.create(given)
        assert made["status"] != "rejected", made
        return str(made["id"])

    def get(self, request_id: str) -> dict[str, Any]:
        return self.client.requests.get(request_id)

    def ended(self, request_id: str, seconds: float = WAIT_SECONDS) -> dict[str, Any]:
        over = ("released", "failed", "cancelled", "preempted", "rejected")
        self.until(lambda: self.get(request_id)["status"] in over, seconds, about=request_id)
        return self.get(request_id)

    def printed(self, request_id: str, **which: Any) -> bytes:
        """What it printed, once its node can be asked: a busy one is silent for a while."""
        found: list[bytes] = []

        def look() -> bool:
            with suppress(ServerUnreachable):
                pieces = self.client.requests.logs(request_id, **which)
                found.append(b"".join(data for _, data in pieces))
            return bool(found)

        self.until(look, about=request_id)
        return found[0]

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
        """Of one request: who waits for one reads them again and again."""
        wanted = {"request_id": request_id, "limit": 500}
        found = self.client.http.call("GET", f"{API}/events", params=wanted)["items"]
        return [each for each in found if each["kind"] == kind]

    def stop(self) -> None:
        """Everything that was started, and what the agents' supervisors still keep."""
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
        launcher.sweep(directory, supervisor_too=True)
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
