"""Everything dies: no attempt runs twice, none is forgotten, no device has two, nothing is left.

The bridge is killed before, in and after each of its calls to Slurm; then slurmctld, a slurmd, the
server, and the answer of sbatch.
"""

from __future__ import annotations

import stat
import sys
from pathlib import Path

from tests.client.serving import eventually
from tests.slurm import tally
from tests.slurm.world import OVER, World

STEP = Path(__file__).parent / "step.py"
CALLS = ("sbatch", "squeue", "scontrol", "scancel")
POINTS = [
    *(f"{call}_{when}:{n}" for n in (1, 2) for call in CALLS for when in ("before", "in", "after")),
    *(
        f"{point}:{n}"
        for n in (1, 2, 3)
        for point in ("intent_before", "intent_after", "number_after")
    ),
    *(f"sbatch_{when}:{n}" for n in (3, 4) for when in ("before", "in", "after")),
    "squeue_in:6",
]
OTHERS = ("controller", "daemon", "server", "lost_answer")
WAIT = 240.0
LOSSY = """#!/bin/sh
/usr/bin/sbatch "$@" >/dev/null
echo "sbatch: error: Socket timed out on send/recv operation" >&2
exit 1
"""


class Faults:
    def __init__(self, world: World) -> None:
        self.world = world
        self.notes = world.home / "notes"
        self.mine: list[str] = []
        self.strays: list[str] = []
        self.cancelled = ""
        self.killed: list[str] = []

    def prepare(self) -> None:
        self.world.pool()
        self.world.up()
        self.world.policy("red")

    def submit(self, seconds: float = 0.3, **fields: object) -> str:
        argv = (sys.executable, "-S", str(STEP), str(self.notes), str(seconds))
        made = self.world.submit(*argv, gpus=2, retry={"max_retries": 3}, **fields)  # type: ignore[arg-type]
        self.mine.append(made)
        return made

    def batch(self) -> None:
        """Single tasks, a gang, and one that is cancelled while it runs."""
        for _ in range(2):
            self.submit()
        self.submit(tasks=2, gang=True)
        self.cancelled = self.submit(seconds=600.0)

    def cancel_when_it_runs(self) -> None:
        world = self.world
        world.until(
            lambda: (world.get(self.cancelled)["allocation"] or {}).get("state") == "running",
            "it runs", WAIT,
        )  # fmt: skip
        world.client.requests.cancel(self.cancelled)

    def all_over(self) -> None:
        for each in self.mine:
            self.world.until(lambda: self.world.get(each)["status"] in OVER, each, WAIT)  # noqa: B023
        found = {each: self.world.get(each)["status"] for each in self.mine}
        wrong = {each: s for each, s in found.items() if s not in ("released", "cancelled")}
        assert not wrong, [self.world.get(each) for each in wrong]
        self.world.until(lambda: not self.world.slurm.run("squeue", "-h"), "no job is left", WAIT)
        self.mine.clear()

    def nothing_left(self) -> None:
        """No process of any attempt."""
        home = str(self.world.bridge.data)

        def left() -> list[str]:
            found = []
            for each in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    text = each.read_bytes().replace(b"\0", b" ").decode(errors="replace")
                except OSError:
                    continue
                if (home in text and "bridge.member" in text) or str(self.notes) in text:
                    found.append(text)
            return found

        eventually(lambda: not left(), WAIT)

    def kill_bridge_at(self, point: str) -> bool:
        """Whether it came to that point. Jobs are cancelled that do not end when they are told."""
        bridge, name = self.world.bridge, point.partition("_")[0]
        bridge.kill()
        bridge.start(CEDE_BRIDGE_CRASH=point)
        self.batch()
        times = int(point.partition(":")[2]) if name == "scancel" else 0
        for _ in range(times):  # one after the other: strays that are seen together go together
            stray = self.plant_stray()
            self.world.until(lambda: bridge.has_ended() or self.is_gone(stray), "", WAIT)  # noqa: B023
        died = self._has_died()
        bridge.kill()
        bridge.start()
        if times:
            self.world.until(lambda: self.is_gone(stray), "it is cancelled", WAIT)
        self.cancel_when_it_runs()
        self.all_over()
        self.check()
        return died

    def _has_died(self) -> bool:
        try:
            eventually(self.world.bridge.has_ended, 120.0)
        except AssertionError:
            return False
        return True

    def plant_stray(self) -> str:
        """A job with the bridge's mark that nothing explains."""
        mark = (self.world.bridge.data / "mark").read_text()
        options = (f"--comment=cede-bridge:{mark}", "-J", f"cede-stray{len(self.strays)}")
        self.strays.append("")
        wrap = ("-o", "/dev/null", "--wrap=sleep 600")
        return self.world.slurm.run("sbatch", "--parsable", *options, *wrap)

    def is_gone(self, job: str) -> bool:
        return job not in self.world.slurm.run("squeue", "-h", "-o", "%A").split()

    def check(self) -> None:
        tally.check(self.world.slurm, self.notes, self.killed)
        self.nothing_left()

    def controller(self) -> None:
        self.batch()
        self.world.running(self.cancelled)
        self.world.slurm.stop_controller()
        late = self.submit()
        self.world.until(
            lambda: "does not answer" in self.world.nodes()["n1"]["others_why"], "", WAIT
        )
        self.world.slurm.start_controller()
        self.world.until(lambda: self.world.get(late)["status"] == "released", "late", WAIT)
        self.cancel_when_it_runs()
        self.all_over()
        self.check()

    def daemon(self) -> None:
        """A slurmd dies and stays away until Slurm gives its job up: it runs elsewhere."""
        request = self.submit(seconds=30.0)
        self.world.running(request)
        node = self.world.where(request)[0]
        self.world.slurm.kill(node)
        self.world.until(lambda: self.world.get(request)["attempt"] == 2, "given up", WAIT)
        self.world.running(request)
        assert self.world.where(request)[0] != node
        assert self.world.get(request)["lost_count"] == 1
        self.world.slurm.start_node(node)
        self.world.slurm.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
        self.all_over()
        self.world.slurm.wait_ready()
        self.killed.append(f"{request}.1.0")  # it could not note that it ended
        self.check()

    def server(self) -> None:
        self.batch()
        self.world.running(self.cancelled)
        self.world.server.kill()
        self.world.server.start()
        self.cancel_when_it_runs()
        self.all_over()
        self.check()

    def lost_answer(self) -> None:
        """sbatch submits and dies before it says so."""
        folder = self.world.home / "lossy"
        folder.mkdir()
        wrapper = folder / "sbatch"
        wrapper.write_text(LOSSY)
        wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
        self.world.bridge.kill()
        self.world.bridge.start(PATH=f"{folder}:{self.world.slurm.env['PATH']}")
        self.batch()
        self.cancel_when_it_runs()
        self.all_over()
        self.check()
        self.world.bridge.kill()
        self.world.bridge.start()


def run(world: World, points: list[str] = POINTS) -> dict[str, int]:
    """How many faults of each kind were survived."""
    faults = Faults(world)
    faults.prepare()
    killed = missed = 0
    for point in points:
        came = faults.kill_bridge_at(point)
        killed, missed = killed + came, missed + (not came)
        sys.stdout.write(f"bridge killed at {point}: {'survived' if came else 'not reached'}\n")
        sys.stdout.flush()
    for name in OTHERS:
        getattr(faults, name)()
        sys.stdout.write(f"{name}: survived\n")
        sys.stdout.flush()
    assert not missed, missed
    return {"killed": killed, "others": len(OTHERS)}
