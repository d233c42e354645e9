"""The stories of the README on a Slurm of four nodes with four pretended GPUs each."""

from __future__ import annotations

import pytest

from tests.slurm.notes import folder, last_saved, lines
from tests.slurm.world import World, eventually

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]


def test_quota_borrow_reclaim_resume_elsewhere_gang_drain_and_why(bridged: World) -> None:
    """Red borrows what blue has reserved, gives it back with a checkpoint and goes on elsewhere."""
    bridged.pool()
    bridged.up()
    bridged.policy("red", reserved={"gpu": 8})
    bridged.policy("blue", reserved={"gpu": 8})
    homes = [folder(bridged, f"red-{number}") for number in range(4)]
    reds = [bridged.counting(home, gpus=4) for home in homes]
    for red in reds:
        bridged.running(red)
    found = {bridged.where(red)[0] for red in reds}
    assert found == set(bridged.slurm.names)  # each on a node of its own, one half of it borrowed
    devices = bridged.get(reds[0])["allocation"]["members"][0]["devices"]
    assert devices == {"gpu": ["0", "1", "2", "3"]}
    assert lines(homes[0])[0][4] == "0,1,2,3"

    blue_home = folder(bridged, "blue")
    blue = bridged.counting(blue_home, component="blue", gpus=4, tasks=2, gang=True)
    bridged.running(blue)
    victims = [
        (red, home) for red, home in zip(reds, homes, strict=True)
        if bridged.get(red)["status"] == "suspended"
    ]  # fmt: skip
    assert len(victims) == 2
    taken = set(bridged.where(blue))
    assert len(taken) == 2
    assert [lines(blue_home, task)[0][2] for task in (0, 1)] == bridged.where(blue)
    [job] = [name for _, name, _, _ in bridged.slurm.jobs() if blue in name]
    assert job == f"cede-{blue}.1"  # a gang is one job
    # A victim went with what it saved, and says why it waits.
    victim, home = victims[0]
    saved, before = last_saved(home), lines(home)[0][2]
    assert "blue" in bridged.why(victim) or "reserved" in bridged.why(victim)

    # One of the others ends; the victim goes on there, at its step, on another node.
    free = next(n for n, red in enumerate(reds) if red not in [v for v, _ in victims])
    elsewhere = bridged.where(reds[free])[0]
    (homes[free] / "enough").touch()
    assert bridged.ended(reds[free])["status"] == "released"
    first = next(
        v for v in victims if bridged_started_again(bridged, [v for v, _ in victims], v[0])
    )
    victim, home = first
    saved, before = last_saved(home), lines(home)[0][2]
    bridged.running(victim)
    eventually(lambda: len([line for line in lines(home) if line[0] == "from"]) == 2)
    again = [line for line in lines(home) if line[0] == "from"][-1]
    assert (int(again[1]), again[2], again[3]) == (saved, elsewhere, "2")
    assert before in taken and elsewhere not in taken

    # Drained in cede: what runs ends by itself, nothing new goes there.
    bridged.client.nodes.drain(elsewhere, "for a test")
    (blue_home / "enough").touch()
    assert bridged.ended(blue)["status"] == "released"
    for home in homes:
        (home / "enough").touch()
    for red in reds:
        assert bridged.ended(red)["status"] == "released"
    bridged.until(lambda: bridged.nodes()[elsewhere]["state"] == "drained", "it is drained")
    bridged.until(lambda: bridged.slurm.run("squeue", "-h") == "", "nothing is left behind")


def bridged_started_again(world: World, victims: list[str], wanted: str) -> bool:
    """Whether it is the one of the victims that went on."""

    def again() -> list[str]:
        return [each for each in victims if world.get(each)["status"] == "allocated"]

    world.until(lambda: again(), "a victim goes on")
    return wanted in again()


def test_fair_share_divides_and_takes_back(bridged: World) -> None:
    """Red has everything while it is alone; blue starves, and gets its half."""
    bridged.pool(preset="fair_share", settings={"grace": 10.0, "fair_share_starvation_timeout": 1})
    bridged.up()
    bridged.policy("red")
    bridged.policy("blue")
    home = folder(bridged, "red")
    reds = [bridged.counting(home, gpus=2) for _ in range(8)]
    for red in reds:
        bridged.running(red)
    other = folder(bridged, "blue")
    blues = [bridged.counting(other, component="blue", gpus=2) for _ in range(4)]
    for blue in blues:
        bridged.running(blue)
    status = [bridged.get(red)["status"] for red in reds]
    assert status.count("allocated") == 4
    assert status.count("suspended") == 4
    for each in (home, other):
        (each / "enough").touch()
    for request in (*reds, *blues):
        assert bridged.ended(request)["status"] == "released"


def test_classes_a_higher_class_takes_the_cheapest(bridged: World) -> None:
    """A high class takes from the lowest, which saves itself and resumes when there is room."""
    bridged.pool(preset="classes", settings={"grace": 10.0})
    bridged.up()
    bridged.policy("red")
    low_home, high_home = folder(bridged, "low"), folder(bridged, "high")
    lows = [bridged.counting(low_home, gpus=4, **{"class": 1}) for _ in range(4)]
    for low in lows:
        bridged.running(low)
    high = bridged.counting(high_home, gpus=4, walltime=3600, **{"class": 8})
    bridged.running(high)
    status = [bridged.get(low)["status"] for low in lows]
    assert status.count("suspended") == 1
    (high_home / "enough").touch()
    assert bridged.ended(high)["status"] == "released"
    (low_home / "enough").touch()
    for low in lows:
        assert bridged.ended(low)["status"] == "released"


def test_outside_jobs_and_drained_nodes_are_named(bridged: World) -> None:
    """What others hold lowers what is free, and `why` names them; Slurm's own ends are told."""
    slurm = bridged.slurm
    bridged.pool()
    bridged.up()
    bridged.policy("red")
    outside = slurm.run(
        "sbatch", "--parsable", "-w", "n1", "--gres=gpu:4", "-o", "/dev/null", "--wrap=sleep 600"
    )
    slurm.run("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=bad memory")
    bridged.until(lambda: bridged.free() == 8, "what others hold is seen")
    assert f"job {outside} of root" in bridged.nodes()["n1"]["others_why"]
    assert "bad memory" in bridged.nodes()["n2"]["others_why"]
    printed = bridged.server.cede("node", "list", "-o", "tsv").stdout
    assert f"held outside: outside job {outside} of root" in printed and "bad memory" in printed
    request = bridged.submit("sleep", "600", gpus=4, tasks=4, gang=True)
    eventually(lambda: f"job {outside} of root" in bridged.why(request))
    assert "bad memory" in bridged.why(request)
    assert bridged.get(request)["status"] == "queued"
    slurm.run("scontrol", "update", "NodeName=n2", "State=RESUME")
    slurm.run("scancel", outside)
    bridged.running(request)
    # An administrator of Slurm ends it: the request has no retries, and says who it was.
    [(job, *_)] = [each for each in slurm.jobs(states="running") if request in each[1]]
    slurm.run("scancel", job)
    ended = bridged.ended(request)
    assert ended["status"] == "failed"
    assert "CANCELLED" in str(ended["reason"])
    again = bridged.submit("sleep", "600", gpus=1, retry={"max_retries": 1})
    bridged.running(again)
    [(job, *_)] = [each for each in slurm.jobs(states="running") if again in each[1]]
    slurm.run("scancel", job)
    bridged.until(lambda: bridged.get(again)["attempt"] == 2, "it is tried again")
    bridged.running(again)
    bridged.client.requests.cancel(again)
    assert bridged.ended(again)["status"] == "cancelled"
    bridged.until(lambda: slurm.run("squeue", "-h") == "", "nothing is left")
