"""What the bridge adds to Slurm's own work: the same calls of sbatch by hand, and through it.

Both run the same members, one after the other, by the clock: compare the two of one run only.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.slurm.world import POOL, World

JOBS = 300
WAIT = 900.0
_TICK = os.sysconf("SC_CLK_TCK")


def run(world: World, jobs: int = JOBS) -> dict[str, Any]:
    world.pool()
    world.up()
    world.policy("red")
    recorded = _record(world, jobs)
    through = recorded["seconds"]
    alone = _replay(world, recorded["calls"])
    ratio = through / alone
    assert ratio <= 1.3, (through, alone, ratio)
    return {"jobs": jobs, "through the bridge": through, "alone": alone, "ratio": ratio}


def _record(world: World, jobs: int) -> dict[str, Any]:
    """Through the bridge, and with which calls."""
    folder = world.home / "recorder"
    folder.mkdir()
    calls = world.home / "calls"
    calls.mkdir()
    (folder / "sbatch").write_text(
        "#!/bin/sh\n"
        f'at=$(mktemp {calls}/XXXXXXXX)\ncat > "$at"\nprintf "%s\\n" "$@" > "$at.args"\n'
        'exec /usr/bin/sbatch "$@" < "$at"\n'
    )
    (folder / "sbatch").chmod(0o755)
    world.bridge.kill()
    world.bridge.start(PATH=f"{folder}:{world.slurm.env['PATH']}")
    world.until(lambda: world.free() == 16, "the bridge is back")
    began = time.monotonic()
    body = {"kind": "work", "component": "red", "component_type": "team", "pool": POOL}
    one = body | {"resources": {"gpu": 1}, "work": {"argv": ["true"]}}
    for _ in range(jobs // 100):
        world.client.http.call("POST", "/api/v1/requests/bulk", body={"requests": [one] * 100})
    _until_released(world, jobs)
    seconds = time.monotonic() - began
    return {"seconds": seconds, "calls": calls}


def _until_released(world: World, jobs: int) -> None:
    deadline = time.monotonic() + WAIT
    while True:
        left = list(world.client.requests.list(status=["queued", "allocated"], limit=1))
        if not left:
            break
        assert time.monotonic() < deadline, world.story()
        time.sleep(0.2)
    names = [name for _, name, _, _ in world.slurm.jobs() if name.startswith("cede-")]
    assert len(names) == len(set(names)) >= jobs


def _calls(folder: Path) -> Iterator[tuple[list[str], str]]:
    for each in sorted(folder.glob("*.args")):
        yield each.read_text().splitlines(), each.with_suffix("").read_text()


def _replay(world: World, folder: Path) -> float:
    """The same calls by hand, eight at a time as the bridge makes them, with fresh attempts."""
    world.bridge.kill()
    calls = list(_calls(folder))
    for path in (world.bridge.data / "attempts").glob("*"):
        for name in ("claim.json", "said.jsonl", "started.json", "exit.json", "ended.json"):
            (path / name).unlink(missing_ok=True)
    began = time.monotonic()
    running: list[subprocess.Popen[bytes]] = []
    for arguments, script in calls:
        while len(running) >= 8:
            running.pop(0).wait()
        child = subprocess.Popen(
            ["/usr/bin/sbatch", *arguments],
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
    deadline = time.monotonic() + WAIT
    while world.slurm.run("squeue", "-h"):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return time.monotonic() - began
