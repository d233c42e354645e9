"""A gang whose tasks are on nodes of different kinds, as many on each as fit there."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import cluster, missing
from tests.slurm.notes import folder, last_saved, noted
from tests.slurm.world import World, eventually, world

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]
GPUS = (4, 4, 2, 2)
TASKS = 6


@pytest.fixture
def mixed() -> Iterator[World]:
    """Two large nodes and two small ones."""
    if why := missing():
        pytest.skip(why)
    home = Path(tempfile.mkdtemp(prefix="cede-kinds-"))
    home.chmod(0o755)
    for each in ("slurm", "world"):
        (home / each).mkdir()
    try:
        with cluster(home / "slurm", GPUS) as slurm, world(home / "world", slurm) as made:
            yield made
    finally:
        shutil.rmtree(home, ignore_errors=True)


def begins(home: Path, times: int) -> list[list[str]]:
    for task in range(TASKS):
        eventually(lambda: len(noted(home, "from", task)) >= times)  # noqa: B023
    return [noted(home, "from", task)[-1] for task in range(TASKS)]


def test_a_gang_on_nodes_of_different_kinds(mixed: World) -> None:
    mixed.pool()
    mixed.up()
    mixed.policy("red")
    mixed.policy("blue", reserved={"gpu": 12})
    home, blue_home = folder(mixed, "red"), folder(mixed, "blue")
    red = mixed.counting(home, gpus=2, tasks=TASKS, gang=True, checkpoint_timeout=600.0)
    mixed.running(red)
    first = begins(home, 1)
    # Two tasks on each large node, one on each small one, and no device twice.
    assert Counter(each[2] for each in first) == {"n1": 2, "n2": 2, "n3": 1, "n4": 1}
    pairs = Counter((each[2], device) for each in first for device in each[4].split(","))
    assert len(pairs) == sum(GPUS) and set(pairs.values()) == {1}
    members = mixed.get(red)["allocation"]["members"]
    assert [each["node"] for each in members] == [each[2] for each in first]
    assert [",".join(each["devices"]["gpu"]) for each in members] == [each[4] for each in first]
    # One job with a component for each number of tasks; a bridge that comes back finds it.
    found = {(id.partition("+")[0], name) for id, name, _, _ in mixed.slurm.jobs()}
    assert [name for _, name in found] == [f"cede-{red}.1"]
    assert len(mixed.slurm.jobs()) == 2
    mixed.bridge.kill()
    mixed.bridge.start()

    # It saves itself for blue, and goes on in the same shape.
    blue = mixed.counting(blue_home, component="blue", gpus=4)
    mixed.running(blue)
    assert mixed.get(red)["status"] == "suspended"
    saved = [last_saved(home, task) for task in range(TASKS)]
    (blue_home / "enough").touch()
    assert mixed.ended(blue)["status"] == "released"
    again = begins(home, 2)
    assert [int(each[1]) for each in again] == saved
    mixed.running(red)

    # An administrator of Slurm ends one component: all of it is over, and says who it was.
    [leader] = {
        id.partition("+")[0] for id, name, _, _ in mixed.slurm.jobs(states="running") if red in name
    }
    mixed.slurm.run("scancel", leader)
    ended = mixed.ended(red)
    assert ended["status"] == "failed" and "CANCELLED" in str(ended["reason"]), ended
    mixed.until(lambda: mixed.slurm.run("squeue", "-h") == "", "nothing is left")
