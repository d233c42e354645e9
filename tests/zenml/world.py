"""Real ZenML servers and real pipelines, in the environment that ZenML has of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2

from tests.client.serving import Serving
from tests.support import ports

ROOT = Path(__file__).parents[2]
VENV = ROOT / ".venv-zenml"
PYTHON = VENV / "bin" / "python"
PROJECT = Path(__file__).parent / "project"
PASSWORD = "only-for-tests"
SOURCE = "cede.integrations.zenml.ResourcePoolStore"
# The lease that the tests wait out: a few heartbeats, which come every 15 seconds.
LEASE = 40.0

# Only a test that fails waits so long; a busy machine takes minutes to start ZenML.
START_SECONDS = 900.0
Json = dict[str, Any]


def why_not() -> str | None:
    """Why ZenML cannot be run here; None if it can."""
    if (VENV / "requirements-zenml.lock.done").is_file():
        return None
    log = VENV / "setup.log"
    if not log.is_file():
        return "ZenML is not installed here: scripts/setup --zenml"
    last = [line for line in log.read_text().splitlines() if line.strip()][-3:]
    return "ZenML could not be installed: " + " / ".join(last)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def until(look: Callable[[], Any], seconds: float, what: str) -> Any:
    """What `look` finds once it finds something."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"{what}: still {found!r} after {seconds} seconds"
        time.sleep(0.1)
    return found


def clean_environment() -> dict[str, str]:
    """Nothing of the user's own configuration of either."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("CEDE_", "ZENML_"))}
    path = f"{VENV / 'bin'}{os.pathsep}{os.environ['PATH']}"
    quiet = {"ZENML_ANALYTICS_OPT_IN": "false", "ZENML_ENABLE_RICH_TRACEBACK": "false"}
    return {**kept, **quiet, "PATH": path, "COLUMNS": "200", "NO_COLOR": "1"}


class ZenServer:
    """A ZenML server with a database of its own, unless it is a replica of another."""

    def __init__(self, folder: Path, cede_url: str, cede_token: str, **settings: str) -> None:
        self.folder = folder
        self._held: socket.socket | None = ports.hold()
        self.port = ports.number_of(self._held)
        self.url = f"http://127.0.0.1:{self.port}"
        self._cede = {"CEDE_SERVER": cede_url, "CEDE_TOKEN": cede_token}
        self._settings = settings
        self._log = folder / f"server-{self.port}.log"
        self._runs: list[Run] = []
        self.stacks: dict[str, str] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self.start()

    def start(self, **settings: str) -> None:
        """On the same port and database; later settings win."""
        self._settings |= settings
        environment = {
            **clean_environment(),
            "ZENML_CONFIG_PATH": str(self.folder / "server"),
            "ZENML_SERVER": "true",
            "ZENML_SERVER_AUTO_ACTIVATE": "true",
            "ZENML_SERVER_JWT_SECRET_KEY": "0" * 64,
            "ZENML_DEFAULT_USER_PASSWORD": PASSWORD,
            "ZENML_SERVER_RESOURCE_POOL_IMPLEMENTATION_SOURCE": SOURCE,
            **self._cede,
            "CEDE_ZENML_LEASE": str(LEASE),
            **self._settings,
        }
        app = "zenml.zen_server.zen_server_api:app"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [PYTHON, "-m", "uvicorn", app, "--host", "127.0.0.1", "--port", str(self.port)],
                env=environment,
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )
        self._http = httpx2.Client(base_url=f"{self.url}/api/v1", timeout=60)
        try:
            until(self._is_serving, START_SECONDS, f"the ZenML server of {self.folder}")
            self._let_port_go()
            form = {"username": "default", "password": PASSWORD}
            token = self._http.post("/login", data=form).raise_for_status().json()["access_token"]
            self._http.headers["Authorization"] = f"Bearer {token}"
        except BaseException:
            self.stop()
            raise

    def _let_port_go(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

    def _is_serving(self) -> bool:
        assert self.process.poll() is None, self.log
        try:
            return httpx2.get(f"{self.url}/health", timeout=5).is_success
        except httpx2.TransportError:
            return False

    @property
    def log(self) -> str:
        return self._log.read_text()

    def stop(self) -> None:
        for run in self._runs:
            run.end()
        self._let_port_go()
        self._http.close()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def call(self, method: str, path: str, body: Any = None, **params: Any) -> Any:
        answer = self._http.request(method, path, params=params, json=body)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def status(self, method: str, path: str) -> int:
        return self._http.request(method, path).status_code

    def prepare(self, *components: str) -> None:
        """A stack for each name, on the flavor for one machine; `inline…` on ZenML's `local`.

        By its API, because every command of ZenML's takes seconds; the guide is typed by hand.
        """
        flavor = {
            "name": "one_machine",
            "type": "orchestrator",
            "source": "cede.integrations.zenml.OneMachineOrchestratorFlavor",
            "config_schema": {"properties": {"stop_seconds": {"type": "number"}}},
            "integration": None,
        }
        self.call("POST", "/flavors", flavor)
        store = self.call("GET", "/components", type="artifact_store")["items"][0]["id"]
        for name in components:
            inline = name.startswith("inline")
            component = {
                "name": name,
                "type": "orchestrator",
                "flavor": "local" if inline else "one_machine",
                "configuration": {} if inline else {"stop_seconds": 20},
            }
            made = self.call("POST", "/components", component)
            parts = {"orchestrator": [made["id"]], "artifact_store": [store]}
            stack = self.call("POST", "/stacks", {"name": name, "components": parts})
            self.stacks[name] = stack["id"]

    def environment(self, stack: str | None = None, url: str | None = None) -> dict[str, str]:
        """As on the machine of somebody who runs pipelines: no word of cede."""
        chosen = {"ZENML_ACTIVE_STACK_ID": self.stacks[stack]} if stack else {}
        return {
            **clean_environment(),
            "ZENML_CONFIG_PATH": str(self.folder / "client"),
            "ZENML_STORE_URL": url or self.url,
            "ZENML_STORE_USERNAME": "default",
            "ZENML_STORE_PASSWORD": PASSWORD,
            "ZENML_DYNAMIC_PIPELINE_MONITORING_INTERVAL": "1",
            **chosen,
        }

    def zenml(self, *arguments: str) -> str:
        """One command of ZenML's own."""
        done = subprocess.run(
            [VENV / "bin" / "zenml", *arguments],
            env=self.environment(),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run(self, stack: str, name: str, **plan: Any) -> Run:
        """Start a pipeline run in a process of its own."""
        run = Run(self, stack, name, plan)
        self._runs.append(run)
        return run

    def steps(self, run: str) -> list[Json]:
        """The step runs of a run, oldest first."""
        found = self.call("GET", "/runs", name=run)["items"]
        if not found:
            return []
        steps = self.call(
            "GET", "/steps", pipeline_run_id=found[0]["id"], sort_by="asc:created", hydrate=True
        )
        return [each["body"] | {"id": each["id"]} for each in steps["items"]]

    def requests(self, **filters: Any) -> list[Json]:
        """ZenML's own list, newest first."""
        page = self.call("GET", "/resource_requests", sort_by="desc:created", size=100, **filters)
        return [each["body"] | {"id": each["id"]} for each in page["items"]]


class Run:
    """A pipeline run: its process, what it printed, and what its steps wrote down."""

    def __init__(self, server: ZenServer, stack: str, name: str, plan: Json) -> None:
        self.name = name
        self.trace = server.folder / f"{name}.trace"
        self._output = server.folder / f"{name}.log"
        given = {"run": name, "trace": str(self.trace), "seconds": [1.0], **plan}
        given.setdefault("resources", {"gpu_count": 2})
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [PYTHON, PROJECT / "sharing.py", json.dumps(given)],
                env=server.environment(stack),
                cwd=server.folder,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self._output.read_text()

    def noted(self, what: str) -> list[float]:
        """When that happened in its steps, each time."""
        if not self.trace.exists():
            return []
        lines = [line.split() for line in self.trace.read_text().splitlines()]
        return [float(at) for said, at in lines if said == what]

    def until(self, what: str, times: int = 1, seconds: float = START_SECONDS) -> float:
        def look() -> list[float]:
            found = self.noted(what)
            assert self.process.poll() is None or len(found) >= times, self.output
            return found if len(found) >= times else []

        return float(until(look, seconds, f"{self.name}: {what}")[times - 1])

    def wait(self, seconds: float = START_SECONDS) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end:\n{self.output}") from None

    def succeeds(self, seconds: float = START_SECONDS) -> None:
        assert self.wait(seconds) == 0, self.output

    def step_processes(self) -> list[int]:
        """The children that are steps, by what they run."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and entry.name != str(self.process.pid):
                try:
                    parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                except (OSError, ValueError, IndexError):
                    continue
                if parent == self.process.pid:
                    found.append(int(entry.name))
        return found

    def kill(self) -> None:
        """As a machine dies: the pipeline and its steps at once."""
        pids = [*self.step_processes(), self.process.pid]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        """Whatever a failed test left running."""
        if self.process.poll() is None:
            self.kill()


def pool(cede: Serving, gpus: int = 2, **reserved: int) -> None:
    """A pool, and a policy for each orchestrator: what it has reserved; it may borrow all."""
    with cede.client() as client:
        client.pools.create("gpus", {"gpu": gpus}, settings={"grace": 60})
        for name, amount in reserved.items():
            client.policies.attach(
                "gpus",
                name,
                priority=10,
                reserved={"gpu": amount},
                limit={"gpu": gpus},
            )


def requests_of(cede: Serving, component: str) -> list[Json]:
    """cede's own view, oldest first."""
    with cede.client() as client:
        return list(reversed(list(client.requests.list(component=component))))


def statuses(cede: Serving, component: str) -> list[str]:
    return [each["status"] for each in requests_of(cede, component)]
