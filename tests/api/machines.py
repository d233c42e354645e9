"""The agent's side of the protocol by hand: what a test says is what goes over the wire."""

from __future__ import annotations

from typing import Any

import httpx2

from tests.api.conftest import Server, made

API = "/api/v1"
ZONE = {"zone": "a"}


def join_token(server: Server, **more: Any) -> str:
    body = {"name": "join", "role": "join", **more}
    return str(made(server["admin"].post(f"{API}/tokens", json=body))["token"])


def body(name: str = "alpha", gpus: int = 2, **more: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "protocol": 1,
        "name": name,
        "boot": f"boot of {name}",
        "amounts": {"gpu": gpus},
        "devices": {"gpu": [str(n) for n in range(gpus)]},
        "labels": ZONE,
    }
    return given | more


class Machine:
    """One node, as the server knows it."""

    def __init__(self, server: Server, name: str = "alpha", gpus: int = 2, **more: Any) -> None:
        self.server = server
        self.said = body(name, gpus, **more)
        answer = made(self.register(join_token(server)))
        self.id, self.token = answer["node"], answer["token"]
        self.boot = self.said["boot"]
        self.epoch, self.index, self.seen = 0, 0, 0

    def register(self, token: str, **more: Any) -> httpx2.Response:
        return self.post(token, "/agent/register", self.said | more)

    def post(self, token: str, path: str, given: Any) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {token}"}
        return self.server["nobody"].post(API + path, json=given, headers=headers)

    def call(self, *reports: dict[str, Any], **more: Any) -> httpx2.Response:
        known = {"epoch": self.epoch, "index": self.index, "seen": self.seen}
        given = {"protocol": 1, "boot": self.boot, **known, "reports": list(reports)}
        return self.post(self.token, "/agent/heartbeat", given | more)

    def beat(self, *reports: dict[str, Any], **more: Any) -> dict[str, Any]:
        """A heartbeat; what was learned is said with the next one."""
        answer = made(self.call(*reports, **more))
        self.epoch, self.index, self.seen = (answer[k] for k in ("epoch", "index", "version"))
        return answer

    def tell(self, order: dict[str, Any], kind: str, **more: Any) -> dict[str, Any]:
        """Report on an order."""
        about = {"allocation": order["allocation"], "attempt": order["attempt"]}
        if kind == "saved":
            about["hint"] = order.get("hint") or 0
        report = {"id": f"{kind} 1", **about, "task": order["task"], "kind": kind, **more}
        answer = self.beat(report)
        assert answer["acknowledged"] == [report["id"]]
        return answer


def pool_of_nodes(server: Server, **fields: Any) -> None:
    given = {"name": "farm", "nodes": ZONE, **fields}
    made(server["admin"].post(f"{API}/pools", json=given))


def run(server: Server, who: str = "red", gpu: int = 1, **fields: Any) -> dict[str, Any]:
    given = {"work": {"argv": ["sleep", "1"]}, "resources": {"gpu": gpu}, **fields}
    return made(server[who].post(f"{API}/requests", json=given))


def request_of(server: Server, id_: str) -> dict[str, Any]:
    return made(server["admin"].get(f"{API}/requests/{id_}"))


def events_of(server: Server) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = made(server["admin"].get(f"{API}/events?limit=500"))["items"]
    return items
