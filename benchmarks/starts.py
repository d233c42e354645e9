"""From a grant to the first instruction of what waited for it, while 1,000 others wait.

Three who wait: `cede run`, a step of the library, and work that a node runs. The grant of the first
two follows from the release of the one unit that there is, that of the third from its submission;
the clock runs from before that call, so that the commit itself is in the figure. What the same
process takes to start with nobody in between is subtracted.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles
from time import sleep, time
from urllib.parse import urlsplit

from benchmarks.jobs import PATIENCE, Node, node
from benchmarks.report import Figure
from benchmarks.waking import BULK, TEAM, asking
from cede.client.errors import CedeClientError
from tests.support.sources import HERE

WAITERS = 1_000
TOKENS = 5
SAMPLES = 20
MOST = 100.0  # milliseconds over the bare start
NOW = ("date", "+%s.%N")
SHELL_NOW = ("sh", "-c", " ".join(NOW))
RUN = (
    *(sys.executable, "-m", "cede.cli", "run", "-q", "--component", "waits", "-t", "team"),
    *("--pool", "turn", "--gpu", "1", "--", *NOW),
)
SETTLED = 0.3  # seconds until a client that waits has asked to be told
TURN = {**TEAM, "pool": "turn"}
PYTHON_NOW = (sys.executable, "-c", "import time; print(time.time())")
STEP = """
import time
from cede import ResourceSettings, pipeline, step

@step(settings={"resources": ResourceSettings(gpu_count=1)})
def now():
    return time.time()

@pipeline(dynamic=True, orchestrator="steps")
def turn():
    return now()

if __name__ == "__main__":
    print(turn())
"""


def first_instructions() -> Figure:
    with (
        tempfile.TemporaryDirectory(prefix="cede-starts-") as folder,
        node(Path(folder), HERE) as found,
        ExitStack() as waiting,
    ):
        _crowd(found, waiting)
        step = Path(folder) / "turn.py"
        step.write_text(STEP)
        kinds: dict[str, tuple[Callable[[], float], float]] = {
            "cede run": (lambda: _granted(found, RUN), _bare(NOW)),
            "step": (lambda: _granted(found, (sys.executable, str(step))), _bare(PYTHON_NOW)),
            "submitted work": (lambda: _submitted(found, Path(folder)), _bare(SHELL_NOW)),
        }
        over = {}
        for name, (sample, bare) in kinds.items():
            delays = [1000 * (sample() - bare) for _ in range(SAMPLES)]
            over[name] = (median(delays), quantiles(delays, n=20)[-1])
    return Figure(
        f"grant to first instruction, p95 over the bare start, {WAITERS} others waiting, ms",
        max(late for _, late in over.values()),
        most=MOST,
        detail="; ".join(f"{k}: median {m:.0f}, p95 {p:.0f}" for k, (m, p) in over.items()),
    )


def _crowd(found: Node, waiting: ExitStack) -> None:
    """Others, each with a renewal that the server holds back; and a pool with one unit."""
    client = found.client
    for pool in ("few", "turn"):
        client.pools.create(pool, {"gpu": 1})
        client.policies.attach(pool, "waits", component_type="team", priority=1)
    client.policies.attach("turn", "steps", component_type="orchestrator", priority=1)
    tokens = [client.tokens.create(f"b{n}", "operator")["token"] for n in range(TOKENS)]
    client.requests.create(TEAM)
    address = urlsplit(found.serving.url).netloc
    for first in range(0, WAITERS, BULK):
        made = client.requests.create_many([TEAM] * min(BULK, WAITERS - first))
        for at, each in enumerate(made):
            assert not isinstance(each, CedeClientError), each
            waiting.enter_context(asking(address, each["id"], tokens[at % TOKENS]))


def _granted(found: Node, command: tuple[str, ...]) -> float:
    """Seconds from the release of the one unit to what the waiter does first."""
    client = found.client
    holder = client.requests.create(TURN)
    waiter = subprocess.Popen(
        command, env=found.serving.environment(), stdout=subprocess.PIPE, text=True
    )
    _until(lambda: client.pools.get("turn")["queued"] == 1)
    sleep(SETTLED)
    before = time()
    client.requests.release(holder["id"])
    printed, _ = waiter.communicate(timeout=PATIENCE)
    assert waiter.returncode == 0, command
    _until(lambda: client.pools.get("turn")["active"] == 0)
    return float(printed.split()[-1]) - before


def _submitted(found: Node, folder: Path) -> float:
    """Seconds from before a submission to the first instruction of the work."""
    file = folder / f"now-{os.urandom(4).hex()}"
    body = {"kind": "work", "component": "bench", "component_type": "team", "pool": "bench"}
    work = {"argv": [*SHELL_NOW[:-1], f"{SHELL_NOW[-1]} > {file}"]}
    before = time()
    made = found.client.requests.create({**body, "resources": {"gpu": 1}, "work": work})
    _until(lambda: found.client.requests.get(made["id"])["status"] == "released")
    return float(file.read_text()) - before


def _bare(command: tuple[str, ...]) -> float:
    """Seconds from the start of a process to its first instruction, as the median of some."""
    delays = []
    for _ in range(SAMPLES):
        before = time()
        delays.append(float(subprocess.check_output(command, text=True)) - before)
    return median(delays)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time() + PATIENCE
    while not condition():
        assert time() < deadline, "it did not happen"
        sleep(0.02)


FIGURES = [first_instructions]
