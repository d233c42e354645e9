"""Real work under a real agent is asked to save itself when that is worth it, goes on, and loses
little when it has to part.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.cluster import BLUE, POOL, Cluster, read_when_there

pytestmark = pytest.mark.system

COUNTING = Path(__file__).parent / "programs" / "counting.py"
# Everything is due as soon as it may be; the looks are on whole seconds.
OFTEN = {"broker": True, "checkpoint_interval_min": 0.5, "checkpoint_interval_max": 0.5}
AMPLE = 60.0
SHORT = 2.0  # for whoever says nothing


class Counting:
    """A program that counts, on the one node there is."""

    def __init__(self, cluster: Cluster, home: Path, **fields: Any) -> None:
        self.cluster, self.home = cluster, home
        given = {"checkpoint": "auto", "checkpoint_timeout": AMPLE, **fields}
        argv = (sys.executable, str(COUNTING), str(home))
        self.id = cluster.submit(*argv, gpus=2, node_labels={"host": "n1"}, **given)

    def happened(self, kind: str) -> list[dict[str, Any]]:
        return [each["data"] for each in self.cluster.events(self.id, kind)]

    def until(self, kind: str, times: int = 1) -> list[dict[str, Any]]:
        self.cluster.until(lambda: len(self.happened(kind)) >= times, about=self.id)
        return self.happened(kind)

    def notes(self, word: str) -> list[str]:
        lines = read_when_there(self.home / "notes").splitlines()
        return [line.partition(" ")[2] for line in lines if line.split()[0] == word]

    def until_noted(self, word: str) -> None:
        self.cluster.until(lambda: self.notes(word), about=self.id)

    def take(self) -> str:
        """Blue wants all that it has."""
        on = {"node_labels": {"host": "n1"}}
        return self.cluster.submit("true", gpus=2, component=BLUE, **on)


@pytest.fixture
def often(shared: Cluster) -> Iterator[Cluster]:
    shared.allow_blue()
    shared.client.pools.update(POOL, settings=OFTEN)
    yield shared
    shared.client.pools.update(POOL, settings={"broker": False})


@pytest.mark.parametrize("protocol", ["signal", "shm", "grpc"])
def test_it_saves_itself_goes_on_and_parts_later(
    often: Cluster, tmp_path: Path, protocol: str
) -> None:
    work = Counting(often, tmp_path, checkpoint_protocol=protocol)
    asked = work.until("checkpoint_asked", 3)
    saved = work.until("checkpoint_saved", 2)
    assert [each["asked"] for each in saved[:2]] == [each["hint"] for each in asked[:2]]
    now = often.get(work.id)
    assert (now["status"], now["attempt"], now["preempted_count"]) == ("allocated", 1, 0)
    assert not work.notes("stops"), "nobody told it to stop"
    blue = work.take()
    assert often.ended(blue)["status"] == "released"
    ended = often.ended(work.id)
    assert (ended["status"], ended["attempt"], ended["preempted_count"]) == ("released", 2, 1)
    counted = [int(each) for each in work.notes("saved")]
    assert counted == sorted(counted) and len(counted) >= 3
    # An ask that came while it saved is answered by that, too: it may be stopped in the next save.
    first, resumed = work.notes("from")
    assert first == "0" and resumed in (str(counted[-1]), work.notes("finished")[-1])


def test_what_it_saved_when_it_was_asked_is_not_lost_with_a_stop_policy_that_fails(
    often: Cluster, tmp_path: Path
) -> None:
    work = Counting(often, tmp_path, checkpoint_timeout=SHORT, retry={"max_retries": 1})
    work.until("checkpoint_saved")
    (tmp_path / "silent").touch()
    work.until_noted("silent")  # whatever it was saving until then is saved
    unheard = work.happened("checkpoint_asked")[-1]

    def is_given_up() -> bool:
        late = work.happened("checkpoint_unanswered")
        return bool(late) and late[-1]["hint"] >= unheard["hint"]

    often.until(is_given_up, about=work.id)
    now = often.get(work.id)
    assert (now["status"], now["attempt"]) == ("allocated", 1), "an ask stops nobody"
    work.take()
    ended = often.ended(work.id)
    assert (ended["status"], ended["attempt"]) == ("released", 2)
    assert len(work.happened("checkpoint_failed")) == 1
    begun, again = work.notes("from")
    assert begun == "0" and again in work.notes("saved")


def test_an_agent_that_dies_meanwhile_hears_the_answer_later(
    often: Cluster, tmp_path: Path
) -> None:
    agent = often.agents[0]
    (tmp_path / "slow").touch()
    work = Counting(often, tmp_path)
    work.until_noted("saves")
    agent.kill()
    often.client.pools.update(POOL, settings={"broker": False})  # one ask is enough
    agent.start()
    often.until_ready("n1")
    (tmp_path / "slow").unlink()
    [saved] = work.until("checkpoint_saved")
    assert [each["hint"] for each in work.happened("checkpoint_asked")] == [saved["asked"]]
    assert len(work.notes("saved")) == 1, "asked once, it saved itself once"
    assert not work.notes("stops") and often.get(work.id)["status"] == "allocated"
    often.client.requests.cancel(work.id)
    often.ended(work.id)
