"""What Slurm's commands print."""

from __future__ import annotations

import time

import pytest

from cede.bridge.cluster import End, JobState
from cede.bridge.slurm import Slurm, merged
from cede.bridge.slurm_text import (
    devices,
    hosts,
    job_lines,
    job_of,
    machines,
    named,
    switch_groups,
)

NODE = (
    "NodeName=n1 Arch=x86_64 CoresPerSocket=8  CPUAlloc=2 CPUEfctv=8 CPUTot=8 CPULoad=1.58 "
    "AvailableFeatures=a100,ib ActiveFeatures=a100,ib Gres=gpu:a100:4(S:0-1) GresDrain=N/A "
    "GresUsed=gpu:a100:2(IDX:0-1) NodeAddr=127.0.0.1 RealMemory=8000 AllocMem=100 State={state} "
    "ThreadsPerCore=1 Partitions=main,gpu  AllocTRES=cpu=2,mem=100M {reason}"
)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", []),
        ("n1", ["n1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[01-03,07],login", ["n01", "n02", "n03", "n07", "login"]),
        ("r[1-2]n[8-9]", ["r1n8", "r1n9", "r2n8", "r2n9"]),
    ],
)
def test_host_lists(text: str, wanted: list[str]) -> None:
    assert list(hosts(text)) == wanted


def test_generic_resources_are_counts() -> None:
    assert devices("gpu:4") == {"gpu": 4}
    assert devices("gpu:a100:4(S:0-1),gpu:h100:2,shard:8") == {"gpu": 6, "shard": 8}
    assert devices("gpu:a100:2(IDX:0-1),mps:0") == {"gpu": 2, "mps": 0}
    assert devices("") == {}


def test_a_node() -> None:
    text = NODE.format(state="MIXED", reason="")
    [(machine, partitions)] = machines(text, {"n1": "spine/rack1"}, {"n1": ["job 1 of ann"]})
    assert partitions == {"main", "gpu"}
    assert machine.amounts == {"gpu": 4, "mcpu": 8000, "memory_mb": 8000}
    assert machine.held == {"gpu": 2, "mcpu": 2000, "memory_mb": 100}
    assert machine.labels["feature/a100"] == machine.labels["partition/gpu"] == "yes"
    assert (machine.group, machine.away, machine.holders) == ("spine/rack1", "", ("job 1 of ann",))


@pytest.mark.parametrize(
    ("state", "reason", "away"),
    [
        ("IDLE", "", ""),
        ("ALLOCATED+CLOUD", "", ""),
        ("MIXED+DRAIN", "Reason=bad memory [root@2026]", "mixed+drain in Slurm: bad memory"),
        ("DOWN*", "Reason=Not responding [slurm@2026]", "down in Slurm: Not responding"),
        ("IDLE+NOT_RESPONDING", "", "idle+not_responding in Slurm"),
        ("RESERVED", "", "reserved in Slurm"),
    ],
)  # fmt: skip
def test_a_node_that_takes_no_work_says_why(state: str, reason: str, away: str) -> None:
    [(machine, _)] = machines(NODE.format(state=state, reason=reason), {}, {})
    assert machine.away == away


def test_topology() -> None:
    text = (
        "SwitchName=rack1 Level=0 LinkSpeed=1 Nodes=n[1-2]\n"
        "SwitchName=rack2 Level=0 LinkSpeed=1 Nodes=n3\n"
        "SwitchName=spine Level=1 LinkSpeed=1 Nodes=n[1-3] Switches=rack[1-2]\n"
    )
    assert switch_groups(text) == {"n1": "spine/rack1", "n2": "spine/rack1", "n3": "spine/rack2"}


@pytest.mark.parametrize(
    ("line", "job_state", "end", "others"),
    [
        ("7|PENDING|ann||Resources|cede-bridge:m|cede-a.1", JobState.WAITING, None, True),
        ("7|PENDING|ann||QOSMaxGRESPerUser|cede-bridge:m|cede-a.1", JobState.WAITING, None, False),
        ("7|RUNNING|ann|n1|None|cede-bridge:m|cede-a.1", JobState.RUNNING, None, False),
        ("7|COMPLETING|ann|n1|None|cede-bridge:m|cede-a.1", JobState.RUNNING, None, False),
        ("7|COMPLETED|ann|n1|None|cede-bridge:m|cede-a.1", JobState.OVER, End.ITSELF, False),
        ("7|NODE_FAIL|ann|n1|None|cede-bridge:m|cede-a.1", JobState.OVER, End.FAILED, False),
        ("7|PREEMPTED|ann|n1|None|cede-bridge:m|cede-a.1", JobState.OVER, End.FAILED, False),
        ("7|TIMEOUT|ann|n1|TimeLimit|cede-bridge:m|cede-a.1", JobState.OVER, End.ENDED, False),
        ("7|SOMETHING_NEW|ann|n1|None|cede-bridge:m|cede-a.1", JobState.OVER, End.FAILED, False),
    ],
)
def test_how_a_job_stands(line: str, job_state: JobState, end: End | None, others: bool) -> None:
    [found] = job_lines(line)
    job = job_of(found)
    assert (job.id, job.name, job.job_state, job.end) == ("7", "cede-a.1", job_state, end)
    assert job.is_others is others


def test_a_name_may_hold_bars_and_lines_that_are_none_are_skipped() -> None:
    [line] = job_lines("7|RUNNING|ann|n1|None||a|b|c\nslurm_load_jobs: something\n")
    assert line.name == "a|b|c"


def test_components_of_one_job_are_one_job() -> None:
    both = "7+0|RUNNING|ann|n1|None||x\n7+1|COMPLETED|ann|n2|None||x\n8|COMPLETED|ann|n3|None||y"
    found = {each.id: each.job_state for each in merged(map(job_of, job_lines(both)))}
    assert found == {"7": JobState.RUNNING, "8": JobState.OVER}


def test_holders_are_named_and_counted() -> None:
    text = "\n".join(f"{n}|RUNNING|ann|n[1-2]|None||x" for n in range(5))
    assert named(job_lines(text))["n2"] == [
        *("outside job 0 of ann", "outside job 1 of ann", "outside job 2 of ann", "2 more"),
    ]  # fmt: skip


def test_a_look_at_a_large_cluster_costs_little() -> None:
    """1,000 nodes and 10,000 outside jobs, as Slurm prints them."""
    nodes = "\n".join(
        NODE.format(state="MIXED", reason="").replace("NodeName=n1 ", f"NodeName=n{n} ")
        for n in range(1000)
    )
    jobs = "\n".join(
        f"{n}|{'RUNNING' if n % 2 else 'PENDING'}|user{n % 50}|"
        f"{f'n[{n % 990}-{n % 990 + 7}]' if n % 2 else ''}|None||outside work {n}"
        for n in range(10_000)
    )

    class Recorded(Slurm):
        def _call(self, *command: str, text: str | None = None) -> str:
            if "topology" in command:
                return ""
            return jobs if command[0] == "squeue" else nodes

    slurm = Recorded("m")
    slurm.look()
    began = time.process_time()
    seen = slurm.look()
    assert time.process_time() - began < 1.0
    assert len(seen.machines) == 1000
    assert sum(bool(each.holders) for each in seen.machines) > 900
