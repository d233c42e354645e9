"""`with client.allocation(…)` and the client's own calls on a real server."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from cede import Client, Conflict, LeaseLost, NotFound, Rejected
from cede.client import clock
from cede.client.errors import WaitTimeout
from tests.client.serving import WAIT_SECONDS, Serving, eventually, two_teams

pytestmark = pytest.mark.system

SHORT = 3.0  # a lease that is waited out; others have one that a busy machine keeps
RED = {"component": "red", "component_type": "team", "lease": 10}
BLUE = {"component": "blue", "component_type": "team", "resources": {"gpu": 2}, "kind": "work"}


@pytest.fixture
def teams(client: Client) -> Client:
    two_teams(client)
    return client


def last(client: Client) -> dict:
    return next(iter(client.requests.list(component="red")))


def test_units_are_held_for_the_length_of_the_block(teams: Client) -> None:
    with teams.allocation(gpu=2, pool="gpus", labels={"who": "me"}, **RED) as held:
        assert teams.pools.get("gpus")["occupied"] == {"gpu": 2}
        assert (held.pool, held.attempt, held.should_stop) == ("gpus", 1, False)
        assert not held.preempted.is_set()
    assert held.ended
    assert last(teams)["status"] == "released"
    assert teams.pools.get("gpus")["occupied"] == {"gpu": 0}


def test_it_is_renewed_for_longer_than_its_lease(teams: Client) -> None:
    def ends() -> float:
        (held,) = teams.snapshot()["running"]
        return float(held["lease_until"])

    with teams.allocation(gpu=1, **RED) as held:
        first = ends()
        eventually(lambda: ends() > first)
        second = ends()
        eventually(lambda: ends() > second)
        assert not held.should_stop
        assert teams.requests.get(held.id)["status"] == "allocated"


def test_an_exception_is_a_failure(teams: Client) -> None:
    with pytest.raises(ZeroDivisionError), teams.allocation(gpu=1, **RED):
        _ = 1 / 0
    assert last(teams)["status"] == "failed"


def test_it_is_told_to_stop_and_comes_back(teams: Client) -> None:
    told: list[dict] = []
    waited: list[dict] = []
    held = teams.allocation(
        gpu=2, retries=1, on_preempting=told.append, on_wait=waited.append, **RED
    )
    with held:
        blue = teams.requests.create(BLUE)
        assert held.preempted.wait(WAIT_SECONDS)
        assert held.should_stop
    eventually(lambda: told)  # who waits for `preempted` may be quicker than who calls us back
    assert told[0]["reason"]["code"] == "reclaim"
    assert not held.ended
    assert eventually(lambda: teams.requests.get(blue["id"])["status"] == "allocated")

    def give_way() -> None:
        eventually(lambda: waited)
        teams.requests.release(blue["id"])

    other = threading.Thread(target=give_way)
    other.start()
    with held:
        assert held.attempt == 2
    other.join()
    assert held.ended
    assert waited[0]["reason"]["code"] == "protected"
    assert teams.requests.get(held.id)["status"] == "released"


def test_finished_although_told_to_stop(teams: Client) -> None:
    with teams.allocation(gpu=2, retries=1, **RED) as held:
        teams.requests.create(BLUE)
        assert held.preempted.wait(WAIT_SECONDS)
        held.finish()
    assert teams.requests.get(held.id)["status"] == "released"


def test_a_lost_lease_is_raised_when_the_block_ends(own_server: Serving, teams: Client) -> None:
    with pytest.raises(LeaseLost):  # noqa: SIM117  the inner one is the subject
        with teams.allocation(gpu=2, **{**RED, "lease": SHORT}) as held:
            # It hangs. One that is gone could not give the units away.
            own_server.process.send_signal(signal.SIGSTOP)
            stopped = looked = clock.now()
            while not held.should_stop:
                assert looked - stopped <= SHORT, "it goes on when the lease is over"
                looked = clock.now()
                time.sleep(0.01)
    own_server.process.send_signal(signal.SIGCONT)


def test_refusals_are_typed(teams: Client) -> None:
    with pytest.raises(Rejected) as caught, teams.allocation(gpu=3, **RED):
        pass
    assert caught.value.code == "capacity_exceeded"
    assert caught.value.reason is not None and caught.value.reason["bound"] == 2
    with pytest.raises(Rejected) as caught, teams.allocation(gpu=1, component="green"):
        pass
    assert caught.value.code == "no_policy"


def test_patience_has_an_end(teams: Client) -> None:
    teams.requests.create(BLUE)
    with pytest.raises(WaitTimeout), teams.allocation(gpu=1, wait_timeout=0.5, **RED):
        pass
    assert last(teams)["status"] == "cancelled"


def test_calls_of_the_client(teams: Client) -> None:
    with pytest.raises(NotFound):
        teams.pools.get("nothing")
    with pytest.raises(Conflict):
        teams.pools.create("gpus", {"gpu": 1})
    good, bad = teams.requests.create_many([{**BLUE, "lease": 60}, {**BLUE, "component": "green"}])
    assert isinstance(good, dict) and good["status"] == "allocated"
    assert isinstance(bad, Rejected)
    assert teams.requests.why(good["id"])["status"] == "allocated"
    assert teams.whoami()["role"] == "admin"
    snapshot = teams.snapshot()
    assert [each["name"] for each in snapshot["pools"]] == ["gpus", "local"]
    assert teams.plan(snapshot)["at_rest"]
    stale = pytest.raises(Conflict, match="attempt 7")
    with stale:
        teams.requests.renew(good["id"], attempt=7)


def test_lists_follow_their_cursors(teams: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cede.client.client.PAGE", 2)
    for number in range(5):
        teams.pools.create(f"p{number}", {"gpu": 1})
    names = sorted(each["name"] for each in teams.pools.list())
    assert names == ["gpus", "local", *(f"p{number}" for number in range(5))]


def test_events_are_followed_across_a_restart(own_server: Serving, teams: Client) -> None:
    seen: list[str] = []

    def follow() -> None:
        for event in teams.events(after=0, follow=True):
            seen.append(event["kind"])
            if event["kind"] == "released":
                return

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    made = teams.requests.create({**BLUE, "lease": "none"})
    eventually(lambda: "granted" in seen)
    own_server.kill()
    own_server.start()
    teams.requests.release(made["id"])
    follower.join(WAIT_SECONDS)
    assert not follower.is_alive()
    assert seen[-1] == "released" and seen.count("granted") == 1
    assert [each["kind"] for each in teams.events()] == seen
