"""Users map to accounts of Slurm: each team's work is its account's, and so are its files."""

from __future__ import annotations

import pwd
import shutil
import site
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.notes import folder, last_saved, lines, noted
from tests.slurm.world import World, eventually
from tests.support.sources import HERE

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]
ACCOUNTS = {"red": "nobody", "blue": "daemon"}


def may_all_run(program: Path) -> bool:
    """Whether any account may run it: so it is where every folder above it is open."""
    real = program.resolve()
    return all(each.stat().st_mode & stat.S_IXOTH for each in (real, *real.parents))


def open_python(home: Path) -> str:
    """A Python with cede that any account may run, as a site would install it."""
    if may_all_run(Path(sys.executable)):
        return sys.executable
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    usual = shutil.which(name, path="/usr/bin:/usr/local/bin")
    if usual is None or not may_all_run(Path(usual)):
        pytest.skip(f"no {name} here that other accounts may run")
    subprocess.run([usual, "-m", "venv", "--without-pip", home / "venv"], check=True)
    paths = [*site.getsitepackages(), str(HERE.folder)]
    packages = home / "venv" / "lib" / name / "site-packages"
    (packages / "cede.pth").write_text("\n".join(paths) + "\n")
    return str(home / "venv" / "bin" / "python")


@pytest.fixture
def mapped(bridged: World) -> Iterator[World]:
    """The bridge is root and maps two teams; the third one is nobody's."""
    bridge = bridged.bridge
    bridged.python = open_python(bridged.home)
    bridge.kill()
    usual = bridge.options
    for team, account in ACCOUNTS.items():
        bridge.options = (*bridge.options, "--user-map", f"team:{team}={account}")
    bridge.root_jobs = False
    bridge.start()
    yield bridged
    bridge.kill()
    bridged.python, bridge.options, bridge.root_jobs = sys.executable, usual, True
    bridge.start()


def users_in_slurm(world: World) -> set[str]:
    return set(world.slurm.run("squeue", "-h", "-t", "running", "-o", "%u").split())


def test_each_team_has_its_account_also_in_slurm(mapped: World) -> None:
    mapped.pool()
    mapped.up()
    mapped.policy("red")
    mapped.policy("blue", reserved={"gpu": 8})
    mapped.policy("green")
    home, blue_home = folder(mapped, "red"), folder(mapped, "blue")
    red = mapped.counting(home, gpus=4, tasks=4, gang=True, checkpoint_timeout=600.0)
    mapped.running(red)
    number = str(pwd.getpwnam("nobody").pw_uid)
    assert [lines(home, task)[0][5] for task in range(4)] == [number] * 4
    assert users_in_slurm(mapped) == {"nobody"}
    # Its output is read through cede; its files are its own, the bridge's are not.
    attempt = mapped.bridge.data / "attempts" / f"{red}.1.0"
    assert str(attempt.stat().st_uid) == number
    jobs = mapped.bridge.data / "jobs" / f"{red}.1"
    assert (jobs.stat().st_uid, (jobs / "job.json").stat().st_uid) == (0, 0)

    # It saves itself as that account, and goes on from there after another one was on its node.
    blue = mapped.counting(blue_home, component="blue", gpus=4)
    mapped.running(blue)
    assert lines(blue_home)[0][5] == str(pwd.getpwnam("daemon").pw_uid)
    assert users_in_slurm(mapped) == {"daemon"}
    saved = [last_saved(home, task) for task in range(4)]
    (blue_home / "enough").touch()
    assert mapped.ended(blue)["status"] == "released"
    for task in range(4):
        eventually(lambda: len(noted(home, "from", task)) == 2)  # noqa: B023
    assert [int(noted(home, "from", task)[-1][1]) for task in range(4)] == saved
    (home / "enough").touch()
    assert mapped.ended(red)["status"] == "released"

    # Nobody's work is not root's, and its submitter is told.
    green = mapped.submit("true", component="green")
    ended = mapped.ended(green)
    assert ended["status"] == "failed" and "no account of this node is for" in str(ended), ended
