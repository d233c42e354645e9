"""Two agents with one name: the second runs nothing while the first lives, and says why."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from cede.client.http import API
from tests.agent.cluster import Agent, Cluster
from tests.agent.test_partition import ALONE, Work

pytestmark = pytest.mark.system


def twin(shared: Cluster, first: Agent, folder: str) -> Agent:
    """An agent with the name of the first and another data folder."""
    made = Agent(shared, first.name, *first.options)
    made.data, made.log = shared.home / folder, shared.home / f"{folder}.log"
    shared.agents.append(made)
    return made


def refusals(shared: Cluster, node: str) -> int:
    count, after = 0, 0
    while True:  # all of them: others had this server before
        page = {"limit": 500, "after": after}
        answer = shared.client.http.call("GET", f"{API}/events", params=page)
        for each in answer["items"]:
            count += each["kind"] == "node_refused" and each["data"]["node"] == node
        if not answer["items"]:
            return count
        after = answer["next"]


def test_another_folder_waits_until_the_first_is_gone(shared: Cluster, tmp_path: Path) -> None:
    first = shared.agent("twin", 1)
    on = {"node_labels": {"host": "twin"}, "on_silence": "stop"}
    work = Work(shared.submit(sys.executable, str(ALONE), str(tmp_path), **on), tmp_path)
    assert work.story() == ["started 1"]
    second = twin(shared, first, "twin-2").start()
    shared.until(lambda: "another agent speaks for node twin" in second.log.read_text())
    shared.until(lambda: refusals(shared, "twin") == 1)
    (tmp_path / "go").touch()
    assert shared.ended(work.request)["status"] == "released"
    assert work.story() == ["started 1", "done 1"]
    # The first one is gone and its node holds nothing: the second takes its place by itself.
    first.kill()
    shared.until(lambda: "event='joined'" in second.log.read_text())
    assert refusals(shared, "twin") == 1
    # The first one, back again, is now the second.
    assert first.start().wait() != 0
    assert "another agent of this node runs on this machine" in first.log.read_text()


def test_a_copy_of_the_folder_does_not_start_on_the_same_machine(shared: Cluster) -> None:
    first = shared.agent("original", 1)
    second = twin(shared, first, "copy")
    shutil.copytree(first.data, second.data, ignore=shutil.ignore_patterns("attempts", "*.new"))
    assert second.start().wait() != 0
    assert "another agent of this node runs on this machine" in second.log.read_text()
    # The same agent, killed and started again on its own folder, goes on at once.
    first.kill()
    first.start()
    shared.until(lambda: first.log.read_text().count("event='joined'") == 2)
    assert refusals(shared, "original") == 0
