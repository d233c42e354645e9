"""Slurm, through its commands. No library of it is linked, and no state of it is kept here."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cede.bridge import crash
from cede.bridge.cluster import Job, JobState, NotTaken, Seen, Unreachable, Wanted
from cede.bridge.slurm_text import (
    JOBS_FORMAT,
    Line,
    job_lines,
    job_of,
    machines,
    named,
    switch_groups,
)
from cede.model.errors import CedeError

# A controller under load answers within seconds; one that does not is asked again.
TIMEOUT = 30.0
COMMENT = "cede-bridge:"
PLAIN = frozenset({"mcpu", "memory_mb", "step_run"})
# Seconds that a job's walltime has on top of its work's: the supervisor ends the work first.
WALLTIME_MARGIN = 300.0
# Messages of sbatch when the controller was away, or there and did not answer.
_AWAY = re.compile(
    r"Unable to contact|Connection refused|Socket timed out|timed out|Connection reset|"
    r"Communication connection failure|slurm_load|Zero Bytes were transmitted|Transport|"
    r"controller|Resource temporarily unavailable|retrying|in standby|munge|Munge|"
    r"Protocol authentication error|Slurm temporarily unable|Unexpected message",
    re.IGNORECASE,
)
_NO_PROGRAM = (126, 127)
_NUMBER = re.compile(r"(\d+)(?:;\S*)?")
# A command dies with the thread that waits for it, where the system has a program for that.
_TIED = ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()


@dataclass(slots=True)
class Slurm:
    """`partition` limits the bridge to its nodes and jobs; `options` are for sbatch."""

    mark: str
    partition: str = ""
    account: str = ""
    options: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: _passed_on())
    kind: str = "Slurm"
    _groups: Mapping[str, str] | None = None

    def look(self) -> Seen:
        """Look at jobs before nodes: one of ours that starts between the two counts as others'
        until the next look, while others' use never counts as ours.
        """
        if self._groups is None:
            self._groups = switch_groups(self._topology())
        lines = list(job_lines(self._call("squeue", "-h", "-a", "-t", "all", "-o", JOBS_FORMAT)))
        ours = [each for each in lines if self._is_ours(each)]
        holders = named(each for each in lines if each.holds and not self._is_ours(each))
        text = self._call("scontrol", "-o", "-a", "-d", "show", "nodes")
        found = machines(text, self._groups, holders)
        mine = [m for m, parts in found if not self.partition or self.partition in parts]
        return Seen(tuple(mine), tuple(merged(map(job_of, ours))))

    def _topology(self) -> str:
        """Return the topology; empty where the cluster has none."""
        try:
            return self._call("scontrol", "-o", "show", "topology")
        except NotTaken:
            return ""

    def find(self, name: str) -> list[Job]:
        text = self._call("squeue", "-h", "-a", "-t", "all", "-n", name, "-o", JOBS_FORMAT)
        ours = [each for each in job_lines(text) if each.name == name and self._is_ours(each)]
        return merged(map(job_of, ours))

    def _is_ours(self, line: Line) -> bool:
        return line.comment == COMMENT + self.mark

    def submit(self, wanted: Wanted) -> str:
        parts = _components(wanted)
        script = _script(wanted, len(parts))
        command = ["sbatch", "--parsable", *self._common(wanted)]
        for number, part in enumerate(parts):
            command += [":"] * bool(number) + part
        said = self._call(*command, text=script)
        found = _NUMBER.fullmatch(said.strip().splitlines()[-1] if said.strip() else "")
        if found is None:
            raise Unreachable(f"sbatch answered {said.strip()[:200]!r}")
        return found[1]

    def _common(self, wanted: Wanted) -> list[str]:
        asked = [
            f"--job-name={wanted.name}",
            f"--comment={COMMENT}{self.mark}",
            "--no-requeue",
            "--export=ALL",
            f"--chdir={wanted.directory}",
            f"--output={wanted.output}",
            "--open-mode=append",
        ]
        if self.partition:
            asked.append(f"--partition={self.partition}")
        if self.account:
            asked.append(f"--account={self.account}")
        if wanted.user is not None:
            asked += [f"--uid={wanted.user}", f"--gid={wanted.group}"]
        if wanted.seconds is not None:
            minutes = int((wanted.seconds + WALLTIME_MARGIN) // 60) + 1
            asked.append(f"--time={minutes}")
        return [*asked, *self.options]

    def cancel(self, ids: Sequence[str], *, kill: bool = False) -> None:
        if not ids:
            return
        how = ["--signal=KILL", "--full"] if kill else []
        try:
            self._call("scancel", *how, *ids)
        except NotTaken as error:
            if "Invalid job id" not in str(error) and "already completing" not in str(error):
                raise Unreachable(str(error)) from None

    def _call(self, *command: str, text: str | None = None) -> str:
        """Return a command's output. The command dies with this process, and does no more then."""
        name = command[0]
        crash.at(f"{name}_before")
        try:
            with subprocess.Popen(
                [*_TIED, *command],
                stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(self.environment),
                text=True,
                errors="replace",
            ) as child:
                crash.at(f"{name}_in")
                try:
                    out, err = child.communicate(text, timeout=TIMEOUT)
                except subprocess.TimeoutExpired:
                    child.kill()
                    raise Unreachable(f"{name} did not answer within {TIMEOUT:.0f} s") from None
        except OSError as error:
            raise Unreachable(f"cannot run {name}: {error.strerror}") from None
        crash.at(f"{name}_after")
        if child.returncode == 0:
            return out
        why = (err.strip() or out.strip() or f"it ended with {child.returncode}").splitlines()[-1]
        raise _problem(name, why, child.returncode)


def _passed_on() -> dict[str, str]:
    """Return the environment of sbatch, which jobs inherit: only the way to Slurm."""
    kept = ("PATH", "LANG", "LC_ALL", "SLURM_CONF", "SLURM_CLUSTERS", "LD_LIBRARY_PATH")
    return {name: os.environ[name] for name in kept if name in os.environ}


def _problem(name: str, why: str, code: int) -> CedeError:
    text = f"{name}: {why.removeprefix(f'{name}: ').removeprefix('error: ')}"[:300]
    # A command that was killed may have done what it was asked.
    is_away = code < 0 or code in _NO_PROGRAM or _AWAY.search(why) is not None
    return Unreachable(text) if is_away else NotTaken(text)


def merged(jobs: Iterable[Job]) -> list[Job]:
    """Merge the components of a job: it waits while one of them does, and is over when all are."""
    found: dict[str, list[Job]] = {}
    for job in jobs:
        found.setdefault(job.id.partition("+")[0], []).append(job)
    whole = []
    for leader, parts in found.items():
        first = min(parts, key=lambda each: _ORDER[each.job_state])
        if first.job_state is JobState.OVER:
            first = next((each for each in parts if each.end is not parts[0].end), parts[0])
        whole.append(
            Job(
                leader,
                first.name,
                first.job_state,
                first.state,
                first.why,
                first.end,
                first.is_others,
                any(each.is_ending for each in parts),
            )
        )
    return whole


_ORDER = {JobState.WAITING: 0, JobState.RUNNING: 1, JobState.OVER: 2}


def _components(wanted: Wanted) -> list[list[str]]:
    """Return sbatch's options for each component: the nodes that have the same number of tasks."""
    by_count: dict[int, list[str]] = {}
    for node, count in wanted.tasks.items():
        by_count.setdefault(count, []).append(node)
    return [_component(nodes, count, wanted.amounts) for count, nodes in by_count.items()]


def _component(nodes: list[str], tasks: int, amounts: Mapping[str, int]) -> list[str]:
    cpus = max(1, -(-amounts.get("mcpu", 0) * tasks // 1000))
    memory = amounts.get("memory_mb", 0) * tasks
    asked = [
        f"--nodes={len(nodes)}",
        f"--ntasks={len(nodes)}",
        "--ntasks-per-node=1",
        f"--nodelist={','.join(nodes)}",
        f"--cpus-per-task={cpus}",
        *([f"--mem={memory}M"] if memory else []),  # else the site's default
    ]
    gres = [f"{k}:{n * tasks}" for k, n in sorted(amounts.items()) if k not in PLAIN and n]
    return [*asked, *([f"--gres={','.join(gres)}"] if gres else [])]


def _script(wanted: Wanted, components: int) -> str:
    """Return the script: on one node it is the work itself, on several a step with one task on
    each."""
    command = shlex.join(wanted.command)
    if len(wanted.tasks) > 1:
        groups = f" --het-group=0-{components - 1}" if components > 1 else ""
        command = f"srun --export=ALL --kill-on-bad-exit=0 --wait=0{groups} {command}"
    return f"#!/bin/sh\nexec {command}\n"
