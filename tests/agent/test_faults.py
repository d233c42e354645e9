"""kill -9 of agent, supervisor and server, at the points where it hurts; and an agent that sleeps
past its lease. Nothing is lost, nothing runs twice, nothing is left behind.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from cede.agent import crash
from tests.agent.cluster import Agent, Cluster, alive, read_when_there
from tests.client.serving import eventually

pytestmark = pytest.mark.system

ADOPTION = 5.0  # seconds; about one is usual where nothing else runs
# Says that it runs, waits for a file, and says that it is done.
PATIENT = "echo $$ >> {home}/started; while ! test -e {home}/go; do sleep 0.05; done; echo done"


def patient(cluster: Cluster, agent: Agent, home: Path, **fields: object) -> str:
    on = {"node_labels": {"host": agent.name}, **fields}
    return cluster.submit("sh", "-c", PATIENT.format(home=home), **on)


def starts(home: Path) -> list[int]:
    return [int(line) for line in read_when_there(home / "started").split()]


def ends_well(cluster: Cluster, request: str, home: Path) -> None:
    """It finishes, has run once, and everybody heard of that once."""
    (home / "go").touch()
    ended = cluster.ended(request)
    assert ended["status"] == "released", cluster.story(request)
    assert (ended["attempt"], len(starts(home))) == (1, 1)
    assert len(cluster.events(request, "task_ended")) == 1
    assert cluster.printed(request) == b"done\n"


def test_work_goes_on_when_its_agent_is_killed_and_is_adopted(
    shared: Cluster, tmp_path: Path
) -> None:
    agent = shared.agents[0]
    request = patient(shared, agent, tmp_path)
    [pid] = starts(tmp_path)

    def is_soon() -> bool:
        """Within its time, or within what a few commands take to start on a machine like this."""
        agent.kill()
        joined = agent.log.read_text().count("joined")
        soon = max(ADOPTION, 20 * shared.server.pace())
        begun = time.monotonic()
        agent.start()
        shared.until(lambda: agent.log.read_text().count("joined") > joined)
        return time.monotonic() - begun < soon

    # L7. One that waited for something would be too slow each time, a busy machine is not.
    assert any(is_soon() for _ in range(5))
    assert alive(pid)
    ends_well(shared, request, tmp_path)


def test_work_outlives_an_agent_that_is_told_to_end(shared: Cluster, tmp_path: Path) -> None:
    agent = shared.agents[0]
    request = patient(shared, agent, tmp_path)
    [pid] = starts(tmp_path)
    assert agent.end() == 0
    assert alive(pid)
    # It ends while nobody looks, within the lease: the next agent finds its record.
    (tmp_path / "go").touch()
    eventually((agent.attempt(request) / "exit.json").exists)
    agent.start()
    ends_well(shared, request, tmp_path)


def test_a_supervisor_that_is_killed_takes_its_work_along_and_is_reported(
    shared: Cluster, tmp_path: Path
) -> None:
    agent = shared.agents[0]
    request = patient(shared, agent, tmp_path)
    [pid] = starts(tmp_path)
    started = json.loads((agent.attempt(request) / "started.json").read_text())
    os.kill(started["keeper"], signal.SIGKILL)
    shared.until(lambda: shared.events(request, "task_ended"), about=request)
    assert shared.events(request, "task_ended")[0]["data"]["cause"] == "keeper_lost"
    assert not alive(pid)
    shared.until(lambda: len(starts(tmp_path)) == 2)  # another attempt: it was not at fault
    (tmp_path / "go").touch()
    assert shared.ended(request)["status"] == "released"


def test_an_agent_killed_at_any_point_starts_it_once(shared: Cluster, tmp_path: Path) -> None:
    """K5, K6, K7."""
    dying: list[tuple[Agent, str, Path]] = []
    names = {point: f"dies-{point}".replace("_", "-") for point in crash.POINTS}
    agents = [
        shared.start_agent(name, 1, "--allow-root-jobs", **{crash.VARIABLE: point})
        for point, name in names.items()
    ]
    for agent in agents:
        shared.until_ready(agent.name)
    shared.allow_everything()
    for agent in agents:
        home = tmp_path / agent.name
        home.mkdir()
        dying.append((agent, patient(shared, agent, home), home))
    # Each comes back as soon as it has died, so that none is silent while others take their time.
    left = [agent for agent, _, _ in dying]

    def all_are_back() -> bool:
        for agent in [each for each in left if each.has_ended()]:
            assert agent.wait() == -signal.SIGKILL
            agent.start()
            left.remove(agent)
        return not left

    shared.until(all_are_back)
    for _, request, home in dying:
        starts(home)
        ends_well(shared, request, home)


def test_what_no_journal_entry_explains_is_killed_before_the_agent_is_ready(
    shared: Cluster, tmp_path: Path
) -> None:
    """S15."""
    agent = shared.agents[0]
    request = patient(shared, agent, tmp_path)
    [pid] = starts(tmp_path)
    agent.kill()
    joined = agent.log.read_text().count("joined")
    (agent.data / "journal").unlink()
    agent.start()
    shared.until(lambda: agent.log.read_text().count("joined") > joined)
    assert not alive(pid)
    # It is not started again as what it was, but as another attempt.
    (tmp_path / "go").touch()
    ended = shared.ended(request)
    assert (ended["status"], ended["attempt"], len(starts(tmp_path))) == ("released", 2, 2)


def test_an_agent_does_not_start_on_a_damaged_journal(shared: Cluster, tmp_path: Path) -> None:
    agent = shared.agents[0]
    request = patient(shared, agent, tmp_path)
    starts(tmp_path)
    agent.kill()
    journal = agent.data / "journal"
    before = journal.read_bytes()
    journal.write_bytes(before.replace(b'"attempt"', b'"attemqt"', 1))
    try:
        agent.start()
        assert agent.wait() == 1
    finally:
        journal.write_bytes(before)
    assert "damaged in line 1" in agent.log.read_text()
    agent.start()
    (tmp_path / "go").touch()
    assert shared.ended(request)["status"] == "released"


def test_an_agent_that_sleeps_past_its_lease_finds_its_work_gone(
    shared: Cluster, tmp_path: Path
) -> None:
    """The supervisor ends it in time; only then does the server start it anew."""
    agent = shared.agents[0]
    request = patient(shared, agent, tmp_path, on_silence="stop")
    [pid] = starts(tmp_path)
    agent.signal(signal.SIGSTOP)
    shared.until(lambda: shared.events(request, "lost") or shared.get(request)["attempt"] == 2)
    assert not alive(pid), "given up while it may still run"
    agent.signal(signal.SIGCONT)
    shared.until(lambda: len(starts(tmp_path)) == 2)
    first = json.loads((agent.attempt(request) / "exit.json").read_text())
    second = json.loads((agent.attempt(request, 2) / "started.json").read_text())
    assert first["cause"] == "lease" and first["ended_at"] < second["started_at"]
    (tmp_path / "go").touch()
    ended = shared.ended(request)
    assert (ended["status"], ended["attempt"]) == ("released", 2)
    assert len(starts(tmp_path)) == 2


def test_work_is_undisturbed_when_the_server_is_killed(shared: Cluster, tmp_path: Path) -> None:
    agent = shared.agents[0]
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    request = patient(shared, agent, first)
    [pid] = starts(first)
    shared.server.kill()
    shared.server.start()
    assert alive(pid)
    ends_well(shared, request, first)
    second.mkdir()
    request = patient(shared, agent, second)
    starts(second)
    shared.server.kill()
    # It ends while there is no server; the report waits for one.
    (second / "go").touch()
    eventually((agent.attempt(request) / "exit.json").exists)
    shared.server.start()
    ends_well(shared, request, second)
