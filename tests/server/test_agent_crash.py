"""kill -9 of the server at every point where it and an agent depend on each other.

One story, told once: each step dies somewhere, and the next start goes on as if it had not
(K3, K4, K7, K8, K11 to K14, K16).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.api.machines import API, Machine, pool_of_nodes
from tests.client.serving import Serving
from tests.server.helpers import PATIENCE

# A server starts nine times.
pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(900)]

VARIABLE = "CEDE_CRASH_POINT"


class Story:
    """A server that dies on demand, with what `Machine` needs of one."""

    def __init__(self, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._environment = monkeypatch
        self.server = Serving(data)
        admin = {"Authorization": f"Bearer {self.server.token}"}
        self._clients = {
            "admin": httpx2.Client(base_url=self.server.url, headers=admin, timeout=PATIENCE),
            "nobody": httpx2.Client(base_url=self.server.url, timeout=PATIENCE),
        }

    def __getitem__(self, name: str) -> httpx2.Client:
        return self._clients[name]

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        key = {"Idempotency-Key": f"{path}-{body['component']}"}  # so that it may be repeated
        answer = self["admin"].post(API + path, json=body, headers=key)
        assert answer.is_success, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def get(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = self["admin"].get(API + path).raise_for_status().json()
        return found

    def restart(self, point: str | None = None) -> None:
        """Start again, to die at this point."""
        if self.server.process.poll() is None:
            self.server.kill()
        if point is None:
            self._environment.delenv(VARIABLE, raising=False)
        else:
            self._environment.setenv(VARIABLE, point)
        self.server.start()

    def dies(self, act: Any, *given: Any, **named: Any) -> None:
        with pytest.raises(httpx2.TransportError):
            act(*given, **named)
        assert self.server.process.wait(PATIENCE) == -9

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self.server.stop()


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Story]:
    made = Story(tmp_path / "data", monkeypatch)
    yield made
    made.close()


def test_the_server_dies_everywhere_and_nothing_is_lost_or_twice(story: Story) -> None:
    pool_of_nodes(story)  # type: ignore[arg-type]
    for team, priority in (("red", 1), ("blue", 9)):
        story.post(
            "/policies", pool="farm", component=team, component_type="team", priority=priority
        )
    alpha = Machine(story, gpus=1)  # type: ignore[arg-type]
    red = story.post(
        "/requests",
        **_work("red"),
        checkpoint="auto",
        checkpoint_timeout=3600,
        retry={"max_retries": 3},
    )
    assert red["status"] == "allocated"

    # K3: the order is on its way when the server dies. It is sent again.
    story.restart("orders_sent")
    story.dies(alpha.beat)
    # K4, K7: the report is committed, its acknowledgement is not sent. It is repeated.
    story.restart("reports_taken")
    (order,) = _orders(alpha)
    assert (order["request"], order["attempt"], order["do"]) == (red["id"], 1, "run")
    story.dies(alpha.tell, order, "started")

    # K8: somebody is preempted for somebody else, before the commit and after it.
    story.restart("before_commit")
    alpha.tell(order, "started")
    story.dies(story.post, "/requests", **_work("blue"))
    story.restart("after_commit")
    assert [each["do"] for each in alpha.beat()["orders"]] == ["run"]
    story.dies(story.post, "/requests", **_work("blue"))
    story.restart("during_commit")
    blue = story.post("/requests", **_work("blue"))
    assert blue["status"] == "queued" and blue["earmark"] == {"pool": "farm"}
    (hint,) = alpha.beat()["orders"]
    assert hint["do"] == "hint" and 3000 < hint["seconds_left"] <= 3600

    # The checkpoint: never half, and told again.
    story.dies(alpha.tell, hint, "saved", checkpoint="c1", size=5)
    story.restart("after_commit")
    assert story.get(f"/requests/{red['id']}")["saved"] is None
    story.dies(alpha.tell, hint, "saved", checkpoint="c1", size=5)

    # K11 to K14: the end is committed, and with it the grant from the earmark and the requeue.
    story.restart("after_commit:1")
    (stop,) = alpha.beat()["orders"]
    assert stop["do"] == "stop"
    story.dies(alpha.tell, stop, "ended", exit_code=143, cause="stopped")
    story.restart()
    (next_,) = alpha.tell(stop, "ended", exit_code=143, cause="stopped")["orders"]
    assert (next_["request"], next_["do"]) == (blue["id"], "run")
    waiting = story.get(f"/requests/{red['id']}")
    assert waiting["status"] == "suspended" and waiting["saved"]["id"] == "c1"
    assert (waiting["attempt"], waiting["preempted_count"]) == (2, 1)
    assert waiting["submitted_at"] == red["submitted_at"]
    kinds = [each["kind"] for each in story.get("/events?limit=500")["items"]]
    for once in ("preempting", "checkpoint_saved", "suspended"):
        assert kinds.count(once) == 1, (once, kinds)


def _orders(alpha: Machine) -> list[dict[str, Any]]:
    """What a machine is told whose version is not known any more: everything."""
    orders: list[dict[str, Any]] = alpha.beat(seen=0)["orders"]
    return orders


def _work(team: str) -> dict[str, Any]:
    who = {"component": team, "component_type": "team"}
    return {**who, "pool": "farm", "resources": {"gpu": 1}, "work": {"argv": [team]}}
