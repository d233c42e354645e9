"""From a landed version to this one while work runs: the server first, then each agent.

40 tasks run and 10 stops are under way on agents of the old version. Nothing stops that was not
asked to; every stop ends as it would have, whichever versions carry it out. So is the last version
of each protocol upgraded; `tests/upgrade/versions.py` says why.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cede.agent.wire import PROTOCOL
from tests.agent.cluster import TEAM, Cluster
from tests.agent.crew import Crew, crews, restart
from tests.client.serving import WAIT_SECONDS, eventually, two_teams
from tests.support.sources import HERE, Source
from tests.upgrade.versions import LAST_OF_PROTOCOL, Version, name

pytestmark = [
    pytest.mark.system,
    pytest.mark.slow,
    pytest.mark.parametrize("version", LAST_OF_PROTOCOL, indirect=True, ids=name),
]

# Stayers and victims of each agent.
SHARES = {"n1": (16, 4), "n2": (12, 3), "n3": (12, 3)}
HELD = "gpus"  # a pool whose units clients hold themselves


@dataclass
class Holders:
    """Two `cede run` of the old version: one holds all units of a pool, one waits for them."""

    cluster: Cluster
    home: Path
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, old: Source) -> None:
        two_teams(self.cluster.client, HELD)
        os.mkfifo(self.home / "door")
        for script in (f": < {self.home}/door; echo held", "echo waited"):
            argv = ("--pool", HELD, "--component", TEAM, "-t", "team", "--gpu", 2)
            run = ("run", "-q", *argv, "--", "sh", "-c", script)
            self.processes.append(self.cluster.server.start_cede(*run, source=old))
            number = len(self.processes)
            eventually(lambda: len(self.requests()) == number)  # noqa: B023
        self.check()

    def requests(self) -> list[dict[str, object]]:
        found = self.cluster.client.requests.list(component=TEAM)
        mine = [each for each in found if HELD in (each["pool"], *(each.get("pools") or ()))]
        return sorted(mine, key=lambda each: float(each["submitted_at"]))

    def check(self) -> None:
        """The first holds the units, and the second waits for them."""
        assert [each.poll() for each in self.processes] == [None, None]
        assert self.cluster.client.pools.get(HELD)["occupied"] == {"gpu": 2}

    def finish(self) -> None:
        """The first ends well, the second has its units then, and all are free in the end."""
        held = os.open(self.home / "door", os.O_RDWR)
        try:
            for process, said in zip(self.processes, ("held\n", "waited\n"), strict=True):
                out, err = process.communicate(timeout=WAIT_SECONDS)
                assert (process.returncode, out) == (0, said), err
        finally:
            os.close(held)
        assert [each["status"] for each in self.requests()] == ["released", "released"]
        assert [each["attempt"] for each in self.requests()] == [1, 1]
        assert self.cluster.client.pools.get(HELD)["free"] == {"gpu": 2}


def replace_server(cluster: Cluster) -> None:
    assert cluster.server.end() == 0
    cluster.server.source = HERE
    cluster.server.start()


def supervisors_of(crew: Crew, source: Source) -> int:
    """The number of the agent's supervisors that run the code of this tree."""
    found = 0
    wanted = f"PYTHONPATH={source.folder}".encode()
    for started in crew.agent.data.glob("attempts/*/started.json"):
        process = Path("/proc") / str(json.loads(started.read_text())["keeper"])
        try:
            found += wanted in (process / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
    return found


def test_an_upgrade_in_the_middle_of_stops(cluster: Cluster, old: Source, tmp_path: Path) -> None:
    first, second, third = made = crews(cluster, SHARES, tmp_path / "work", old)
    holders = Holders(cluster, tmp_path / "work")
    holders.start(old)
    for crew in made:
        crew.ask()
        assert supervisors_of(crew, old) == sum(SHARES[crew.agent.name])

    # A new server, on the old one's database, with old agents.
    replace_server(cluster)
    for crew in made:
        crew.takes_work()
        crew.check()
    holders.check()
    # A stop that began under the old server ends, and its victims go on from there.
    first.save()
    first.suspended()
    first.resume()

    # New agents on the old ones' data, the second and third with their stops under way.
    for crew, victims in ((first, "gone"), (second, "asked")):
        restart(cluster, crew.agent, HERE)
        crew.takes_work()
        crew.check(victims)
        assert supervisors_of(crew, old) >= len(crew.stayers), "supervisors go on as they are"
    second.save()
    # The victims of the third save and leave between its old agent and its new one.
    assert third.agent.end() == 0
    third.save()
    third.agent.source = HERE
    third.agent.start()
    for crew in (second, third):
        crew.suspended()
        crew.check("gone")
        crew.resume()

    # Everything is new now, apart from the work that goes on.
    for crew in made:
        fresh = Crew(cluster, crew.agent, tmp_path / "work" / f"{crew.agent.name}-new", HERE)
        victims = len(crew.victims) - 1
        fresh.start(1, victims)  # all that the first victims left
        fresh.started()
        fresh.ask()
        fresh.check()
        assert supervisors_of(crew, HERE) == 1 + victims
        fresh.save()
        fresh.suspended()
        fresh.resume()
        fresh.finish()
    for crew in made:
        crew.check("gone")
        crew.finish()
    holders.check()
    holders.finish()


def test_an_agent_that_is_newer_than_its_server_waits_for_it(
    cluster: Cluster, old: Source, version: Version, tmp_path: Path
) -> None:
    """Upgraded in the wrong order, nothing is lost either."""
    [crew] = crews(cluster, {"n1": (1, 2)}, tmp_path / "work", old)
    crew.ask()
    assert crew.agent.end() == 0
    before = len(crew.agent.log.read_text())
    crew.agent.source = HERE
    crew.agent.start()

    def said() -> str:
        return crew.agent.log.read_text()[before:]

    # An older server that speaks the same protocol need not be waited for.
    older = version.protocol < PROTOCOL
    cluster.until(lambda: ("upgrade the server" if older else "joined") in said())
    crew.check()
    replace_server(cluster)
    crew.takes_work()
    crew.check()
    crew.save()
    crew.suspended()
    crew.resume()
    crew.finish()
