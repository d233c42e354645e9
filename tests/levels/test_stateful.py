"""Random histories over HTTP, with restarts and time: nothing is lost, nothing is granted twice,
and everybody who waits is told why."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy.engine import make_url

from cede.engine.audit import audit
from tests.levels.inside import Inside, stop_the_clock
from tests.support import postgres
from tests.support.properties import Properties

Json = dict[str, Any]
Database = Callable[[], AbstractContextManager[str]]

TEAMS = ("red", "blue")
ENDED = {"preempted", "rejected", "cancelled", "released", "failed"}
FEW = st.integers(0, 3)
ANY = st.integers(0, 30)
SUBMISSION = st.fixed_dictionaries(
    {
        "component": st.sampled_from(TEAMS),
        "component_type": st.just("team"),
        "resources": st.fixed_dictionaries({"gpu": st.integers(0, 3)}),
        "preemptible": st.booleans(),
        "lease": st.sampled_from(["none", 1, 60]),
        "retry": st.fixed_dictionaries(
            {"max_retries": st.integers(0, 1), "delay": st.sampled_from([0, 5])}
        ),
    }
)


class Histories(RuleBasedStateMachine):
    """The model is what was acknowledged: it must be there after everything that follows."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self.stack = ExitStack()
        # A history that found something finds it again.
        self.move = stop_the_clock(self.stack.enter_context(pytest.MonkeyPatch.context()))
        self.server = Inside(self.stack.enter_context(database()))
        self.stack.callback(self.server.close)
        self.pools: dict[str, Json] = {}
        self.policies: dict[str, Json] = {}
        self.requests: dict[str, Json] = {}  # as last seen
        self.shrunk: set[str] = set()
        self.granted: Counter[tuple[str | None, int]] = Counter()
        self.read = 0  # the last event that was looked at
        self.keyed: list[tuple[str, Json, Json]] = []

    def teardown(self) -> None:
        self.stack.close()

    def some(self, known: dict[str, Json], number: int) -> str:
        return list(known)[number % len(known)]

    # Pools and policies -------------------------------------------------------------------------

    @initialize(gpus=st.integers(1, 4), reserved=FEW)
    def begin(self, gpus: int, reserved: int) -> None:
        """A history without a pool says little."""
        self.create_pool(gpus, 0)
        for number in range(len(TEAMS)):
            self.attach(0, number, reserved * number, 10)

    @rule(gpus=st.integers(1, 4), min_run=st.sampled_from([0, 10]))
    def create_pool(self, gpus: int, min_run: int) -> None:
        if len(self.pools) >= 3:
            return
        name = f"pool-{len(self.keyed)}-{len(self.pools)}"
        tuned = {"min_run": min_run, "bypass_max": 1, "grace": 1}
        body = {"name": name, "capacity": {"gpu": gpus}, "settings": tuned}
        status, made = self.server.call("POST", "/pools", body)
        if status == 201:
            self.pools[made["id"]] = made

    @precondition(lambda self: self.pools)
    @rule(pool=ANY, team=FEW, reserved=FEW, priority=st.sampled_from([1, 10]))
    def attach(self, pool: int, team: int, reserved: int, priority: int) -> None:
        body = {
            "pool": self.some(self.pools, pool),
            "component": TEAMS[team % len(TEAMS)],
            "component_type": "team",
            "priority": priority,
            "reserved": {"gpu": reserved},
        }
        status, made = self.server.call("POST", "/policies", body)
        if status == 201:
            self.policies[made["id"]] = made

    @precondition(lambda self: self.pools)
    @rule(pool=ANY, gpus=st.integers(1, 5))
    def resize_pool(self, pool: int, gpus: int) -> None:
        id_ = self.some(self.pools, pool)
        status, made = self.server.call("PATCH", f"/pools/{id_}", {"capacity": {"gpu": gpus}})
        if status == 200:
            if gpus < self.pools[id_]["capacity"]["gpu"]:
                self.shrunk.add(id_)
            self.pools[id_] = made

    @precondition(lambda self: self.policies)
    @rule(policy=ANY, reserved=FEW, limit=st.integers(1, 4))
    def edit_policy(self, policy: int, reserved: int, limit: int) -> None:
        id_ = self.some(self.policies, policy)
        body = {"reserved": {"gpu": reserved}, "limit": {"gpu": limit}}
        status, made = self.server.call("PATCH", f"/policies/{id_}", body)
        if status == 200:
            self.policies[id_] = made

    @precondition(lambda self: self.policies)
    @rule(policy=ANY)
    def detach(self, policy: int) -> None:
        id_ = self.some(self.policies, policy)
        if self.server.call("DELETE", f"/policies/{id_}")[0] == 204:
            del self.policies[id_]

    @precondition(lambda self: len(self.pools) > 1)
    @rule(pool=ANY)
    def delete_pool(self, pool: int) -> None:
        id_ = self.some(self.pools, pool)
        if self.server.call("DELETE", f"/pools/{id_}")[0] == 204:
            del self.pools[id_]
            self.policies = {
                key: each for key, each in self.policies.items() if each["pool_id"] != id_
            }

    # Requests -----------------------------------------------------------------------------------

    @rule(body=SUBMISSION)
    def submit(self, body: Json) -> None:
        key = f"key-{len(self.keyed)}"
        _, made = self.server.call("POST", "/requests", body, key)
        self.keyed.append((key, body, made))
        self.remember(made)

    @precondition(lambda self: self.keyed)
    @rule(number=ANY)
    def repeat(self, number: int) -> None:
        """S19: the same answer again, and no second request."""
        key, body, made = self.keyed[number % len(self.keyed)]
        if made.get("tracked"):
            assert self.server.call("POST", "/requests", body, key)[1] == made
            other = {**body, "walltime": 77}
            assert self.server.call("POST", "/requests", other, key)[0] == 409

    @rule(bodies=st.lists(SUBMISSION, min_size=1, max_size=4))
    def submit_bulk(self, bodies: list[Json]) -> None:
        _, answer = self.server.call("POST", "/requests/bulk", {"requests": bodies})
        assert len(answer["items"]) == len(bodies)
        for each in answer["items"]:
            self.remember(each.get("request", {}))

    @precondition(lambda self: self.requests)
    @rule(number=ANY, running=st.booleans())
    def renew(self, number: int, running: bool) -> None:
        self.act(number, "renew", {"running": running})

    @precondition(lambda self: self.requests)
    @rule(number=ANY, outcome=st.sampled_from(["done", "failed", "stopped"]))
    def release(self, number: int, outcome: str) -> None:
        self.act(number, "release", {"outcome": outcome})

    @precondition(lambda self: self.requests)
    @rule(number=ANY)
    def cancel(self, number: int) -> None:
        self.act(number, "cancel", None)

    @precondition(lambda self: self.requests)
    @rule(number=ANY)
    def delete(self, number: int) -> None:
        id_ = self.some(self.requests, number)
        if self.server.call("DELETE", f"/requests/{id_}")[0] == 204:
            del self.requests[id_]
            assert self.server.call("GET", f"/requests/{id_}")[0] == 404

    def act(self, number: int, verb: str, body: Json | None) -> None:
        id_ = self.some(self.requests, number)
        status, answer = self.server.call("POST", f"/requests/{id_}/{verb}", body)
        if status == 200:
            self.remember(answer)

    def remember(self, request: Json) -> None:
        if request.get("tracked"):
            self.requests[request["id"]] = request

    # The world ----------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 3, 7, 30, 90]))
    def time_passes(self, seconds: int) -> None:
        self.move(1000 * seconds)
        self.server.settle()

    @rule()
    def restart(self) -> None:
        self.server.stop()
        self.server.start()
        self.server.settle()  # the first pass looks at what was loaded

    # What holds after every step ----------------------------------------------------------------

    @invariant()
    def the_database_is_sound_and_is_what_the_writer_has(self) -> None:
        stored, in_database, in_memory = self.server.states()
        assert audit.check(stored) == []
        assert in_database == in_memory
        assert not self.server.writer.trouble

    @invariant()
    def nothing_acknowledged_is_lost(self) -> None:
        for path, known in (("/pools", self.pools), ("/policies", self.policies)):
            found = {each["id"]: each for each in self.server.call("GET", path)[1]["items"]}
            assert found.keys() == known.keys()
            for id_, each in known.items():
                for field in ("capacity", "priority", "reserved", "limit"):
                    assert found[id_].get(field) == each.get(field)
        found = {each["id"]: each for each in self.listed()}
        assert found.keys() == self.requests.keys()
        for id_, before in self.requests.items():
            if before["status"] in ENDED:
                assert found[id_]["status"] == before["status"]  # S16: an end is for good
            assert found[id_]["attempt"] >= before["attempt"]
        self.requests = {id_: found[id_] for id_ in self.requests}

    @invariant()
    def whoever_waits_is_told_why(self) -> None:
        for each in self.listed("&status=queued&explain=true"):
            assert each["reason"]["text"] and "?" not in each["reason"]["text"], each

    @invariant()
    def nothing_is_granted_twice(self) -> None:
        for each in self.server.store.events_after(self.read, limit=500):
            assert each.index > self.read
            self.read = each.index
            if each.kind == "granted":
                self.granted[each.request_id, each.data["attempt"]] += 1
        assert all(times == 1 for times in self.granted.values()), self.granted

    @invariant()
    def no_pool_holds_more_than_it_has_unless_it_was_shrunk(self) -> None:
        for each in self.server.call("GET", "/pools")[1]["items"]:
            if each["id"] not in self.shrunk:
                assert each["occupied"]["gpu"] <= each["capacity"]["gpu"]

    def listed(self, more: str = "") -> list[Json]:
        found: list[Json] = self.server.call("GET", f"/requests?limit=500{more}")[1]["items"]
        return found


def play(database: Database, examples: int, steps: int) -> None:
    run_state_machine_as_test(
        lambda: Histories(database),
        settings=settings(
            max_examples=Properties.of().examples(examples),
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.slow
@pytest.mark.hypothesis  # so that `make properties` plays more of them
@pytest.mark.timeout(900)  # a failing history takes minutes to shorten, and is worth it
def test_histories_on_sqlite() -> None:
    @contextmanager
    def database() -> Any:
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{Path(folder) / 'cede.db'}"

    play(database, examples=10, steps=30)


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.timeout(900)
def test_histories_on_postgresql(postgres_url: str) -> None:
    @contextmanager
    def database() -> Any:
        with postgres.fresh_database(make_url(postgres_url)) as url:
            yield url.render_as_string(hide_password=False)

    play(database, examples=3, steps=20)
