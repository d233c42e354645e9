"""The network between agent and server loses one direction, the other, or both, and heals.

With `on_silence: stop` the first attempt is dead before the next one starts; with `keep` it is
held, runs on, and is adopted when its node is heard of again. At no time are there two.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.agent.cluster import Cluster, alive, read_when_there
from tests.agent.relay import DOWN, UP, Relay

pytestmark = pytest.mark.system

ALONE = Path(__file__).parent / "programs" / "alone.py"
WAYS = {"to-server": (UP,), "from-server": (DOWN,), "both": (UP, DOWN)}


@dataclass
class Work:
    request: str
    home: Path

    def notes(self) -> list[list[str]]:
        return [line.split() for line in read_when_there(self.home / "notes").splitlines()]

    def story(self) -> list[str]:
        return [f"{word} {attempt}" for word, attempt, _ in self.notes()]

    def until_it_says(self, words: str, shared: Cluster) -> None:
        shared.until(lambda: words in self.story(), about=self.request)

    def until_it_is(self, state: str, shared: Cluster) -> None:
        def look() -> bool:
            return bool(shared.get(self.request)["allocation"]["state"] == state)

        shared.until(look, about=self.request)

    def pid(self, attempt: int) -> int:
        return next(int(pid) for _, n, pid in self.notes() if n == str(attempt))


def test_two_at_once_would_be_noticed(tmp_path: Path) -> None:
    command = [sys.executable, str(ALONE), str(tmp_path)]
    work = Work("", tmp_path)
    first = subprocess.Popen(command, env={"CEDE_ATTEMPT": "1"})
    try:
        assert work.story() == ["started 1"]
        assert subprocess.run(command, env={"CEDE_ATTEMPT": "2"}).returncode == 3
        assert work.story()[-1] == "clash 2"
    finally:
        first.kill()
        first.wait()


@pytest.fixture
def relays(shared: Cluster) -> Iterator[dict[str, Relay]]:
    made = {way: Relay(shared.server.port) for way in WAYS}
    try:
        with shared.borrowed():  # who is behind one is ended before it is closed
            yield made
            for each in made.values():
                each.heal()
    finally:
        for each in made.values():
            each.close()


def start(shared: Cluster, way: str, on_silence: str, home: Path) -> Work:
    home.mkdir()
    on = {"node_labels": {way: "yes"}, "on_silence": on_silence}
    return Work(shared.submit(sys.executable, str(ALONE), str(home), **on), home)


def test_work_is_never_twice_whatever_the_network_loses(
    shared: Cluster, relays: dict[str, Relay], tmp_path: Path
) -> None:
    for way, each in relays.items():
        own = ("--allow-root-jobs", "--server", each.url, "--label", f"{way}=yes")
        shared.start_agent(way, 2, *own)
    for way in WAYS:
        shared.until_ready(way)
    shared.allow_everything()
    stop = {way: start(shared, way, "stop", tmp_path / f"{way}-stop") for way in WAYS}
    keep = {way: start(shared, way, "keep", tmp_path / f"{way}-keep") for way in WAYS}
    for each in (*stop.values(), *keep.values()):
        assert each.story() == ["started 1"]
    labels = [option for way in WAYS for option in ("--label", f"{way}=yes")]
    shared.agent("refuge", 3, "--allow-root-jobs", *labels)

    for way, directions in WAYS.items():
        relays[way].lose(*directions)
    for way in ("to-server", "both"):  # nothing is heard of these nodes, so they are given up
        stop[way].until_it_says("started 2", shared)
        assert not alive(stop[way].pid(1))
        keep[way].until_it_is("lost", shared)
    shared.until(lambda: not alive(stop["from-server"].pid(1)))  # no answer renews its lease
    for each in keep.values():
        assert alive(each.pid(1)) and shared.get(each.request)["attempt"] == 1

    for relay in relays.values():
        relay.heal()
    for way in WAYS:
        shared.until_ready(way)
        keep[way].until_it_is("running", shared)
    for each in (*stop.values(), *keep.values()):
        (each.home / "go").touch()
        assert shared.ended(each.request)["status"] == "released", shared.story(each.request)
    for each in keep.values():
        assert each.story() == ["started 1", "done 1"]
        assert len(shared.events(each.request, "task_ended")) == 1
    for each in stop.values():
        first, *rest = each.story()
        assert first == "started 1" and "started 1" not in rest and "done 1" not in rest
        assert rest[-1].startswith("done ") and not any("clash" in line for line in rest)
