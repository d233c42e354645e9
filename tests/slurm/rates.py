"""What the bridge adds to Slurm's own work: jobs through it, and the same calls of sbatch by hand.

Both run the same members, in turns, by the clock: what else the machine does falls on both alike.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.slurm.world import POOL, World

JOBS, ROUNDS = 300, 3
MOST = 1.3
CALLERS = 8  # as many as the bridge makes calls at once
WAIT = 900.0
POLL = 5.0  # as a bridge does unless told otherwise
# Often enough for rounds of many seconds, and seldom enough to cost nothing.
LOOK = 0.5
# What a member leaves of an attempt, and what would keep another from running it again.
_LEFT = ("claim.json", "said.jsonl", "started.json", "exit.json", "ended.json")
_TICK = os.sysconf("SC_CLK_TCK")
_RECORDER = """#!/bin/sh
at=$(mktemp {calls}/XXXXXXXX)
cat > "$at"
printf "%s\\n" "$@" > "$at.args"
exec {sbatch} "$@" < "$at"
"""


@dataclass(slots=True)
class Spent:
    """Seconds by the clock, and of CPU by the bridge, the commands that it ran, and the server."""

    clock: float = 0.0
    bridge: float = 0.0
    commands: float = 0.0
    server: float = 0.0


def run(world: World, jobs: int = JOBS, rounds: int = ROUNDS) -> dict[str, Any]:
    world.pool()
    world.up()
    world.policy("red")
    world.bridge.kill()
    through, alone, ratios = Spent(), 0.0, []
    for number in range(rounds):
        recorder, calls = _recorder(world, number)
        spent = _through(world, jobs // rounds, recorder)
        made = list(_calls(calls))
        assert len({_home(world, each) for each, _ in made}) == len(made) == jobs // rounds
        by_hand = _by_hand(world, made, recorder)
        ratios.append(round(spent.clock / by_hand, 3))
        alone += by_hand
        for name in Spent.__slots__:
            setattr(through, name, getattr(through, name) + getattr(spent, name))
    ratio = through.clock / alone
    found = {
        "jobs": jobs,
        "through the bridge": round(through.clock, 1),
        "alone": round(alone, 1),
        "ratio": round(ratio, 3),
        "of each round": ratios,
        "CPU of one job in ms": {
            name: round(1000 * getattr(through, name) / jobs, 1)
            for name in ("bridge", "commands", "server")
        },
    }
    assert ratio <= MOST, found
    return found


def _recorder(world: World, number: int) -> tuple[Path, Path]:
    """A folder with an sbatch that writes down how it is called, and where it does."""
    folder, calls = world.home / f"recorder-{number}", world.home / f"calls-{number}"
    folder.mkdir()
    calls.mkdir()
    program = shutil.which("sbatch", path=world.slurm.env["PATH"])
    (folder / "sbatch").write_text(_RECORDER.format(calls=calls, sbatch=program))
    (folder / "sbatch").chmod(0o755)
    return folder, calls


def _through(world: World, jobs: int, recorder: Path) -> Spent:
    world.bridge.start(PATH=f"{recorder}:{world.slurm.env['PATH']}")
    world.until(lambda: world.free() == world.slurm.gpus, "the bridge is back")
    assert world.bridge.process is not None
    pids = world.bridge.process.pid, world.server.process.pid
    before = [_cpu(each) for each in pids]
    began = time.monotonic()
    body = {"kind": "work", "component": "red", "component_type": "team", "pool": POOL}
    one = body | {"resources": {"gpu": 1}, "work": {"argv": ["true"]}}
    world.client.http.call("POST", "/api/v1/requests/bulk", body={"requests": [one] * jobs})
    _until_empty(world, lambda: not list(world.client.requests.list(limit=1, status=_LIVE)))
    clock = time.monotonic() - began
    (own, commands), (server, _) = (
        (now[0] - then[0], now[1] - then[1])
        for now, then in zip((_cpu(each) for each in pids), before, strict=True)
    )
    world.bridge.kill()
    return Spent(clock, own, commands, server)


_LIVE = ["queued", "allocated"]


def _cpu(pid: int) -> tuple[float, float]:
    """Seconds of a process, and of what it has started and waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system, waited_user, waited_system = (int(each) / _TICK for each in fields[11:15])
    return user + system, waited_user + waited_system


def _until_empty(world: World, is_empty: Any) -> None:
    """No request, or no job, is left, and Slurm has nothing either."""
    deadline = time.monotonic() + WAIT
    while not is_empty() or world.slurm.run("squeue", "-h"):
        assert time.monotonic() < deadline, world.story()
        time.sleep(LOOK)


def _calls(folder: Path) -> Iterator[tuple[list[str], str]]:
    for each in sorted(folder.glob("*.args"), key=lambda path: path.stat().st_mtime_ns):
        yield each.read_text().splitlines(), each.with_suffix("").read_text()


def _by_hand(world: World, calls: list[tuple[list[str], str]], recorder: Path) -> float:
    """The same calls of the same program, as many at a time as the bridge makes, with members that
    find fresh attempts.
    """
    homes = [_home(world, arguments) for arguments, _ in calls]
    for home in homes:
        for name in _LEFT:
            (home / name).unlink(missing_ok=True)
    began = time.monotonic()
    running: list[subprocess.Popen[bytes]] = []
    for arguments, script in calls:
        while len(running) >= CALLERS:
            assert running.pop(0).wait() == 0
        child = subprocess.Popen(
            [recorder / "sbatch", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=world.slurm.env,
        )
        assert child.stdin is not None
        child.stdin.write(script.encode())
        child.stdin.close()
        running.append(child)
    for each in running:
        assert each.wait() == 0
    _until_empty(world, lambda: True)
    clock = time.monotonic() - began
    for home in homes:
        said = [json.loads(line) for line in (home / "said.jsonl").read_text().splitlines()]
        assert said[-1]["event"] == "ended" and said[-1]["exit_code"] == 0, (home, said)
    return clock


def _home(world: World, arguments: list[str]) -> Path:
    [name] = [each for each in arguments if each.startswith("--job-name=cede-")]
    return world.bridge.data / "attempts" / f"{name.removeprefix('--job-name=cede-')}.0"
