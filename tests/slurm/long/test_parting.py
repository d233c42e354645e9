"""The bridge, the server or Slurm's controller is away while work saves itself: what was saved is
resumed, nothing runs twice, and nothing fails for what cede did.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.slurm.notes import folder, last_saved, lines, noted
from tests.slurm.tally import jobs_twice
from tests.slurm.world import World, eventually

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]
TASKS = 4


def away(world: World, *who: str) -> Callable[[], None]:
    """These die; what is returned brings them back."""
    if "bridge" in who:
        world.bridge.kill()
    if "server" in who:
        world.server.kill()
    if "slurmctld" in who:
        world.slurm.stop_controller()

    def back() -> None:
        if "slurmctld" in who:
            world.slurm.start_controller()
        if "server" in who:
            world.server.start()
        if "bridge" in who:
            world.bridge.start()

    return back


def borrowing(world: World) -> tuple[str, Path]:
    """A gang of red has everything, and saves slowly."""
    world.pool()
    world.up()
    world.policy("red")
    world.policy("blue", reserved={"gpu": 16})
    home = folder(world, "red")
    (home / "slowly").touch()
    red = world.counting(
        home, gpus=4, tasks=TASKS, gang=True, checkpoint_timeout=800.0, retry={"max_retries": 3}
    )
    world.running(red)
    for task in range(TASKS):
        lines(home, task)
    return red, home


def node_list(world: World) -> str:
    return world.server.cede("node", "list", "-o", "tsv").stdout


def asks(world: World) -> tuple[str, Path]:
    """Blue wants its own."""
    home = folder(world, "blue")
    return world.counting(home, component="blue", gpus=4), home


def all_note(home: Path, word: str, times: int = 1) -> None:
    for task in range(TASKS):
        eventually(lambda: len(noted(home, word, task)) >= times)  # noqa: B023


def goes_on_and_ends(world: World, red: str, home: Path, blue: str, blue_home: Path) -> None:
    """Blue has its own; then red goes on from where each of its tasks saved itself."""
    world.running(blue)
    assert world.get(red)["status"] == "suspended", world.get(red)
    saved = [last_saved(home, task) for task in range(TASKS)]
    (blue_home / "enough").touch()
    assert world.ended(blue)["status"] == "released"
    all_note(home, "from", 2)
    again = [noted(home, "from", task)[-1] for task in range(TASKS)]
    assert [int(each[1]) for each in again] == saved
    assert {each[3] for each in again} == {"2"}
    (home / "enough").touch()
    ended = world.ended(red)
    assert (ended["status"], ended["attempt"]) == ("released", 2), ended
    for task in range(TASKS):
        assert len(noted(home, "from", task)) == 2
    names = [name for _, name, _, _ in world.slurm.jobs() if red in name or blue in name]
    assert not jobs_twice(names), names
    world.until(lambda: world.slurm.run("squeue", "-h") == "", "nothing is left")


@pytest.mark.parametrize("who", ["bridge", "server", "bridge server", "slurmctld"])
def test_work_that_saves_and_leaves_meanwhile_is_resumed(bridged: World, who: str) -> None:
    red, home = borrowing(bridged)
    blue, blue_home = asks(bridged)
    all_note(home, "saving")
    back = away(bridged, *who.split())
    (home / "now").touch()
    all_note(home, "saved")
    back()
    goes_on_and_ends(bridged, red, home, blue, blue_home)


def test_work_is_asked_by_a_bridge_that_came_back(bridged: World) -> None:
    red, home = borrowing(bridged)
    back = away(bridged, "bridge")
    bridged.until(lambda: "bridge slurm is silent" in node_list(bridged), "it is told")
    blue, blue_home = asks(bridged)
    back()
    all_note(home, "saving")
    away(bridged, "bridge")()  # and dies again while work is at it
    (home / "now").touch()
    goes_on_and_ends(bridged, red, home, blue, blue_home)


def test_work_that_crashes_after_saving_meanwhile_resumes_from_there(bridged: World) -> None:
    red, home = borrowing(bridged)
    blue, blue_home = asks(bridged)
    all_note(home, "saving")
    back = away(bridged, "bridge")
    (home / "crash").touch()
    (home / "now").touch()
    all_note(home, "saved")
    bridged.until(lambda: bridged.slurm.run("squeue", "-h") == "", "its job is over")
    (home / "crash").unlink()
    saved = [last_saved(home, task) for task in range(TASKS)]
    back()
    bridged.running(blue)
    (blue_home / "enough").touch()
    all_note(home, "from", 2)
    assert [int(noted(home, "from", task)[-1][1]) for task in range(TASKS)] == saved
    (home / "enough").touch()
    assert bridged.ended(red)["status"] == "released"
