"""Those who ask: work that nodes run, and units that a client holds itself."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.simulation.answers import Answer, Away
from tests.simulation.cluster import CAPACITY, Cluster

ENDED = ("released", "failed", "cancelled", "rejected", "preempted")
LEASE = 15
API = "/api/v1/requests"


class Client:
    """One person with one request at a time; it asks until it is answered."""

    def __init__(self, cluster: Cluster, name: str, team: str) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.account = cluster.account
        self.host = self.world.host(name)
        self.team = team
        self._number = 0

    async def live(self, until: float) -> None:
        """Ask for one thing after the other, until then; what was asked for is waited for."""
        while self.world.loop.time() < until:
            await asyncio.sleep(self.world.dice.expovariate(1 / 5))
            if self.world.dice.random() < 0.5:
                await self._submit_work()
            else:
                await self._hold()

    async def _ask(self, method: str, path: str, body: Any = None, key: str = "") -> Answer:
        """The answer to a call that may be repeated; refusals that pass are not answers."""
        pause = 0.1
        while True:
            for server in self.cluster.servers_in_turn():
                try:
                    answer = await self.cluster.call(
                        *(self.host, server, method, path, self.cluster.secrets[self.team]),
                        *(body, 10.0, key),
                    )
                except Away:
                    continue
                if answer.status < 400:
                    return answer
                self.account.refused(answer)
                if answer.status in (404, 409):
                    return answer
            await asyncio.sleep(pause)
            pause = min(pause * 2, 5.0)

    async def _submit(self, body: dict[str, Any]) -> str:
        self._number += 1
        key = f"{self.host.name}-{self._number}"
        given = {"component": self.team, "component_type": "team", **body}
        answer = await self._ask("POST", API, given, key)
        if answer.status != 201:
            self.account.broken(f"{key} was answered {answer.status}: {answer.body}")
        request = str(answer.body["id"])
        self.account.acknowledged_submission(key, request)
        self.account.count("submitted")
        if self.world.dice.random() < 0.1:  # asked once more: the first answer may have been lost
            again = await self._ask("POST", API, given, key)
            self.account.acknowledged_submission(key, str(again.body["id"]))
        return request

    async def _submit_work(self) -> None:
        dice = self.world.dice
        body = {
            "resources": {"gpu": dice.choice((1, 1, 2))},
            "pool": "farm",
            "kind": "work",
            "work": {"argv": ["train"]},
            "retry": {"max_retries": 10},
            "checkpoint": "auto",
        }
        if dice.random() < 0.2:
            body["tasks"] = 2
        request = await self._submit(body)
        cancels = dice.random() < 0.1
        while True:
            await asyncio.sleep(dice.uniform(0.5, 3))
            answer = await self._ask("GET", f"{API}/{request}")
            if answer.status == 404:
                self.account.broken(f"{request} was acknowledged and is not found")
                return
            if answer.body["status"] in ENDED:
                self.account.count(f"ended {answer.body['status']}")
                return
            if cancels and dice.random() < 0.3:
                cancels = False
                await self._ask("POST", f"{API}/{request}/cancel")

    async def _hold(self) -> None:
        """Units for a while, counted from when each renewal was sent."""
        dice, now = self.world.dice, self.host.seconds
        amount = dice.choice((1, 2, 3))
        request = await self._submit(
            {"resources": {"gpu": amount}, "pool": "counted", "lease": LEASE}
        )
        done_at: float | None = None
        attempt = 0
        until = 0.0
        while True:
            sent_at = now()
            body = {"attempt": attempt, "running": True} if attempt else {}
            answer = await self._ask("POST", f"{API}/{request}/renew", body)
            status = answer.body.get("status") if answer.status == 200 else "gone"
            if attempt and now() >= until:
                self.account.lets_go(self.host.name)  # the lease was over before the answer came
            if status in ENDED or answer.status != 200:
                self.account.lets_go(self.host.name)
                self.account.count(f"held {status}")
                return
            if status == "allocated" or status == "running":
                if not attempt:
                    attempt = int(answer.body["attempt"])
                    done_at = now() + dice.expovariate(1 / 20)
                    self.account.count("held")
                until = sent_at + LEASE
                if int(answer.body["attempt"]) == attempt and now() < until:
                    real = self.world.loop.time() + (until - now()) / self.host.rate
                    self.account.holds(self.host.name, amount, real, CAPACITY)
            if status in ("preempting", "stopping") or (done_at is not None and now() >= done_at):
                self.account.lets_go(self.host.name)
                outcome = "done" if status not in ("preempting", "stopping") else "stopped"
                given = {"attempt": attempt, "outcome": outcome} if attempt else {}
                key = f"{self.host.name}-{self._number}-{attempt}-release"
                answer = await self._ask("POST", f"{API}/{request}/release", given, key)
                if answer.status == 200 and answer.body["status"] in ENDED:
                    self.account.count("held and released")
                    self.account.released[request] = answer.body["status"]
                    return
                attempt, done_at = 0, None
            await asyncio.sleep(dice.uniform(0.5, 3))
