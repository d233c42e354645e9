"""One small interface to a running server, and the three faces behind it.

What is made through a level carries the level's tag in its name, so that every example has pools
and components of its own and nothing need be cleaned up on a server that many examples share.
Answers come back with plain names.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from itertools import count
from typing import Any

import httpx2
from click.testing import CliRunner, Result

from cede import Client, ResourceSettings
from cede.cli import exit_codes
from cede.cli.commands import cli
from cede.client.demand import settings_body
from tests.client.serving import Serving

Json = dict[str, Any]

_tags = count(1)


class Level(ABC):
    """What an example may do. Components are asked for by type and name, steps by settings."""

    def __init__(self, server: Serving) -> None:
        self.server = server
        self.tag = f"x{next(_tags)}"

    @abstractmethod
    def create_pool(self, name: str, capacity: Json, settings: Json | None = None) -> None: ...

    @abstractmethod
    def resize_pool(self, name: str, capacity: Json) -> None: ...

    @abstractmethod
    def attach_policy(self, pool: str, component: str, component_type: str, rule: Json) -> None:
        """`rule`: priority, reserved, limit."""

    @abstractmethod
    def submit(self, name: str, component: str, component_type: str, settings: Json) -> Json:
        """Ask for what a step's settings ask for; the request carries `name` as a label."""

    @abstractmethod
    def end(self, request_id: str, outcome: str) -> None:
        """The holder reports: done, failed or stopped."""

    @abstractmethod
    def requests(self) -> list[Json]:
        """Everything this level has submitted."""

    @abstractmethod
    def reason(self, request_id: str) -> Json:
        """Why a request waits or how it ended."""

    @abstractmethod
    def policies(self, pool: str) -> list[Json]: ...

    @abstractmethod
    def snapshot(self) -> Json: ...

    @abstractmethod
    def close(self) -> None:
        """Let go of the connection."""

    def own(self, name: str) -> str:
        return f"{name}-{self.tag}"

    def plain(self, name: str | None) -> str | None:
        return name and name.removesuffix(f"-{self.tag}")

    def labels(self, name: str) -> dict[str, str]:
        return {"example": self.tag, "name": name}

    def own_snapshot(self) -> Json:
        """The part of the snapshot that is about this level's pools."""
        whole, end = self.snapshot(), f"-{self.tag}"
        return {
            "now": whole["now"],
            "pools": [each for each in whole["pools"] if each["name"].endswith(end)],
            **{
                kind: [each for each in whole[kind] if each["component"].endswith(end)]
                for kind in ("policies", "running", "requests")
            },
        }


class OverHttp(Level):
    """Raw calls, as any program in any language would make them."""

    def __init__(self, server: Serving) -> None:
        super().__init__(server)
        headers = {"Authorization": f"Bearer {server.token}"}
        self.http = httpx2.Client(
            base_url=f"{server.url}/api/v1",
            headers=headers,
            timeout=30,
            trust_env=False,
            verify=False,  # plain HTTP; reading certificates takes longer than the calls
        )

    def call(self, method: str, path: str, expected: int = 200, **more: Any) -> Json:
        response = self.http.request(method, path, **more)
        assert response.status_code == expected, response.text
        answer: Json = response.json()
        return answer

    def create_pool(self, name: str, capacity: Json, settings: Json | None = None) -> None:
        body = {"name": self.own(name), "capacity": capacity, "settings": settings or {}}
        self.call("POST", "/pools", 201, json=body)

    def resize_pool(self, name: str, capacity: Json) -> None:
        self.call("PATCH", f"/pools/{self.own(name)}", json={"capacity": capacity})

    def attach_policy(self, pool: str, component: str, component_type: str, rule: Json) -> None:
        body = {"pool": self.own(pool), "component": self.own(component)}
        self.call("POST", "/policies", 201, json={**body, "component_type": component_type, **rule})

    def submit(self, name: str, component: str, component_type: str, settings: Json) -> Json:
        body = {
            "component": self.own(component),
            "component_type": component_type,
            "settings": settings,
            "labels": self.labels(name),
            "lease": "none",
        }
        return self.call("POST", "/requests", 201, json=body)

    def end(self, request_id: str, outcome: str) -> None:
        self.call("POST", f"/requests/{request_id}/release", json={"outcome": outcome})

    def requests(self) -> list[Json]:
        params = {"label.example": self.tag, "limit": 500}
        found: list[Json] = self.call("GET", "/requests", params=params)["items"]
        return found

    def reason(self, request_id: str) -> Json:
        found: Json = self.call("GET", f"/requests/{request_id}")["reason"]
        return found

    def policies(self, pool: str) -> list[Json]:
        found: list[Json] = self.call("GET", "/policies", params={"pool": self.own(pool)})["items"]
        return found

    def snapshot(self) -> Json:
        return self.call("GET", "/snapshot")

    def close(self) -> None:
        self.http.close()


class InPython(Level):
    """The library's `Client` and `ResourceSettings`."""

    def __init__(self, server: Serving) -> None:
        super().__init__(server)
        self.client: Client = server.client()

    def create_pool(self, name: str, capacity: Json, settings: Json | None = None) -> None:
        self.client.pools.create(self.own(name), capacity, settings=settings)

    def resize_pool(self, name: str, capacity: Json) -> None:
        self.client.pools.update(self.own(name), capacity=capacity)

    def attach_policy(self, pool: str, component: str, component_type: str, rule: Json) -> None:
        self.client.policies.attach(
            self.own(pool), self.own(component), component_type=component_type, **rule
        )

    def submit(self, name: str, component: str, component_type: str, settings: Json) -> Json:
        return self.client.requests.create(
            {
                "component": self.own(component),
                "component_type": component_type,
                "settings": settings_body(ResourceSettings(**settings)),
                "labels": self.labels(name),
                "lease": "none",
            }
        )

    def end(self, request_id: str, outcome: str) -> None:
        self.client.requests.release(request_id, outcome=outcome)

    def requests(self) -> list[Json]:
        return list(self.client.requests.list(**{"label.example": self.tag}))

    def reason(self, request_id: str) -> Json:
        found: Json = self.client.requests.why(request_id)["reason"]
        return found

    def policies(self, pool: str) -> list[Json]:
        return list(self.client.policies.list(pool=self.own(pool)))

    def snapshot(self) -> Json:
        return self.client.snapshot()

    def close(self) -> None:
        self.client.close()


class OnCommandLine(Level):
    """`cede …`, parsed and run in this process; `test_run.py` starts real ones.

    There is no command that reports the end of work by hand: `cede run` does, for the work it runs.
    Here the holders are only asked for, so their reports go through the library.
    """

    def __init__(self, server: Serving) -> None:
        super().__init__(server)
        self.runner = CliRunner(env={"CEDE_SERVER": server.url, "CEDE_TOKEN": server.token})
        self.client: Client = server.client()

    def run(self, *arguments: object, input: str | None = None) -> Result:
        return self.runner.invoke(cli, [str(each) for each in arguments], input=input)

    def cede(self, *arguments: object, input: str | None = None) -> str:
        result = self.run(*arguments, input=input)
        assert result.exit_code == 0, (arguments, result.output, result.exception)
        return str(result.stdout)

    def create_pool(self, name: str, capacity: Json, settings: Json | None = None) -> None:
        options = ["--settings", json.dumps(settings)] if settings else []
        amounts = json.dumps(capacity)
        self.cede("resource-pool", "create", self.own(name), "--capacity", amounts, *options)

    def resize_pool(self, name: str, capacity: Json) -> None:
        self.cede("resource-pool", "update", self.own(name), "--capacity", json.dumps(capacity))

    def attach_policy(self, pool: str, component: str, component_type: str, rule: Json) -> None:
        options = [
            each
            for name, value in rule.items()
            for each in (f"--{name}", json.dumps(value) if isinstance(value, dict) else value)
        ]
        place = (self.own(pool), self.own(component), "--component-type", component_type)
        self.cede("resource-pool", "attach-policy", *place, *options)

    def submit(self, name: str, component: str, component_type: str, settings: Json) -> Json:
        names = {"gpu_count": "gpu", "cpu_count": "cpu", "memory": "memory"}
        options = [f"--{names[each]}={settings[each]}" for each in names if each in settings]
        if extra := settings.get("pool_resources"):
            options.append(f"--resources={json.dumps(extra)}")
        if not settings.get("preemptible", True):
            options.append("--non-preemptible")
        options += [f"--label={key}={value}" for key, value in self.labels(name).items()]
        who = ["--component", self.own(component), "--component-type", component_type]
        # A step's preemptions use up its retries; work's do so only if asked to.
        as_a_step = ["--preemptions=count", "--lease=none", "--output=json"]
        result = self.run("request", "create", *who, *options, *as_a_step)
        made: Json = json.loads(result.stdout)
        rejected = made["status"] == "rejected"
        assert result.exit_code == (exit_codes.REFUSED if rejected else 0), result.output
        return made

    def end(self, request_id: str, outcome: str) -> None:
        self.client.requests.release(request_id, outcome=outcome)

    def requests(self) -> list[Json]:
        shown = self.cede("request", "list", f"--label=example={self.tag}", "--output=json")
        found: list[Json] = json.loads(shown)
        return found

    def reason(self, request_id: str) -> Json:
        found: Json = json.loads(self.cede("why", request_id, "--output=json"))["reason"]
        return found

    def policies(self, pool: str) -> list[Json]:
        shown = self.cede("resource-pool", "list-policies", self.own(pool), "--output=json")
        found: list[Json] = json.loads(shown)
        return found

    def snapshot(self) -> Json:
        found: Json = json.loads(self.cede("snapshot"))
        return found

    def close(self) -> None:
        self.client.close()


LEVELS: dict[str, type[Level]] = {
    "http": OverHttp,
    "command-line": OnCommandLine,
    "python": InPython,
}
