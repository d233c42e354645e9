"""Jobs that do nothing, end to end on one node: how many a second, and what each costs whom.

This tree and the version that landed before it, one after the other in one run. Processor time of
the server and the agent is their own; that of supervisors, template and work is what the agent's
group has used beside the agent, where this machine counts groups (cpuacct).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import perf_counter, sleep

from benchmarks.report import Figure
from cede import Client, NotFound
from cede.client.errors import CedeClientError
from tests.client.serving import Serving
from tests.support.sources import HERE, NoHistory, Source, of_commit

BEFORE = "f656fe2"
CEDE = (sys.executable, "-m", "cede.cli")
JOBS = 300
SLOTS = 40
TICKS = os.sysconf("SC_CLK_TCK")
ACCOUNTS = Path("/sys/fs/cgroup/cpuacct")
PATIENCE = 300.0


@dataclass(frozen=True)
class Run:
    """Jobs a second, and milliseconds of processor time that each cost."""

    rate: float
    server: float
    agent: float
    rest: float | None  # supervisors, template and work

    @property
    def whole(self) -> float:
        return self.server + self.agent + (self.rest or 0.0)

    def __str__(self) -> str:
        rest = "not counted here" if self.rest is None else f"{self.rest:.1f}"
        return (
            f"{self.rate:.0f} jobs/s; ms a job: server {self.server:.1f}, agent {self.agent:.1f}, "
            f"supervisor and work {rest}"
        )


def no_op_jobs() -> Figure:
    after = _measured(HERE)
    try:
        with tempfile.TemporaryDirectory(prefix="cede-before-") as folder:
            before = _measured(of_commit(BEFORE, Path(folder)))
    except NoHistory as error:
        return Figure("no-op jobs a second", after.rate, least=1, detail=f"not compared: {error}")
    return Figure(
        f"no-op jobs on one node with {SLOTS} slots, over those of {BEFORE}",
        after.rate / before.rate,
        least=3.0,
        detail=f"{after} | before {before}",
    )


def no_op_cost() -> Figure:
    after = _measured(HERE)
    return Figure("no-op jobs: processor ms a job", after.whole, most=12.0, detail=str(after))


@cache
def _measured(source: Source) -> Run:
    with (
        tempfile.TemporaryDirectory(prefix="cede-jobs-") as folder,
        node(Path(folder), source) as found,
    ):
        client, group = found.client, found.group
        server, agent = found.serving.process.pid, found.agent.pid
        _all_done(client, SLOTS)  # warm
        used = _used(server), _used(agent), _used_by_group(group)
        started = perf_counter()
        _all_done(client, JOBS)
        took = perf_counter() - started
        now = _used(server), _used(agent), _used_by_group(group)
    serving, own, whole = (
        None if after is None or before is None else 1000 * (after - before) / JOBS
        for before, after in zip(used, now, strict=True)
    )
    assert serving is not None and own is not None
    return Run(JOBS / took, serving, own, None if whole is None else whole - own)


def _all_done(client: Client, number: int) -> None:
    """Submit so many in one call, and wait until all have ended; ask rarely, for asking costs."""
    job = {"kind": "work", "component": "bench", "component_type": "team", "pool": "bench"}
    job |= {"resources": {"gpu": 1}, "work": {"argv": ["true"]}}  # type: ignore[dict-item]
    for made in client.requests.create_many([job] * number):
        assert not isinstance(made, CedeClientError), made
    deadline = perf_counter() + PATIENCE
    while perf_counter() < deadline:
        pool = client.pools.get("bench")
        if not pool["queued"] and not pool["active"]:
            return
        sleep(0.1)
    raise AssertionError(f"jobs did not end within {PATIENCE:.0f} s")


@dataclass(frozen=True)
class Node:
    """A server and the agent of its only node; `group` counts the agent's processor time."""

    client: Client
    serving: Serving
    agent: subprocess.Popen[bytes]
    group: Path | None


@contextmanager
def node(home: Path, source: Source) -> Iterator[Node]:
    """One node with 40 slots in the pool `bench`, where the team `bench` may use all of it."""
    home.chmod(0o755)
    serving = Serving(home / "data", options=("--no-agent",), source=source)
    client = serving.client()
    group = _account()
    try:
        client.pools.create("bench", nodes={"pool": "bench"})
        client.policies.attach("bench", "bench", component_type="team", priority=1)
        join = client.tokens.create("join", "join")["token"]
        (home / "join").write_text(join)
        (home / "join").chmod(0o600)
        options = ["--data", str(home / "agent"), "--join-file", str(home / "join")]
        options += ["--amount", f"gpu={SLOTS}", "--label", "pool=bench", "--allow-root-jobs"]
        agent = subprocess.Popen(
            [*CEDE, "agent", "--server", serving.url, "--name", "bench", *options],
            env={**os.environ, **source.variables()},
            stdout=subprocess.DEVNULL,
            preexec_fn=_entering(group),
        )
        try:
            _until(lambda: client.nodes.get("bench")["state"] == "ready")
            yield Node(client, serving, agent, group)
        finally:
            agent.terminate()
            agent.wait(60)
    finally:
        client.close()
        serving.stop()
        if group is not None:
            with suppress(OSError):
                group.rmdir()


def _until(condition: Callable[[], bool]) -> None:
    deadline = perf_counter() + PATIENCE
    while perf_counter() < deadline:
        with suppress(NotFound, CedeClientError):
            if condition():
                return
        sleep(0.1)
    raise AssertionError("the node did not become ready")


def _account() -> Path | None:
    """A group of our own that counts processor time; None where the machine has none to give."""
    group = ACCOUNTS / f"cede-bench-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        return None
    return group


def _entering(group: Path | None) -> Callable[[], None] | None:
    if group is None:
        return None

    def enter() -> None:
        (group / "cgroup.procs").write_text(str(os.getpid()))

    return enter


def _used(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _used_by_group(group: Path | None) -> float | None:
    return None if group is None else int((group / "cpuacct.usage").read_text()) / 1e9


FIGURES = [no_op_jobs, no_op_cost]
