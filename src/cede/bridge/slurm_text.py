"""Parses the output of Slurm's commands into values. Pure.

Lines of `squeue -o` and `scontrol -o show nodes -d` have had the same form for many versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from cede.bridge.cluster import End, Job, JobState, Machine

# Job id, state, user, node list, reason, comment, name. A name may hold anything but a line end, so
# it comes last; the comment of our jobs holds no bar, and those of others do not matter.
JOBS_FORMAT = "%i|%T|%u|%N|%r|%k|%j"
_FIELDS = 7
# At most so many outside jobs are named in a reason.
NAMED = 3

HOLDING = frozenset(
    {"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT"}
)
WAITS = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD"})
_ENDS = {
    "COMPLETED": End.ITSELF,
    "FAILED": End.ITSELF,
    "NODE_FAIL": End.FAILED,
    "BOOT_FAIL": End.FAILED,
    "PREEMPTED": End.FAILED,
    "REVOKED": End.FAILED,
    "SPECIAL_EXIT": End.FAILED,
    "CANCELLED": End.ENDED,
    "TIMEOUT": End.ENDED,
    "DEADLINE": End.ENDED,
    "OUT_OF_MEMORY": End.ENDED,
}
# Reasons of a job that others keep from its nodes; any other reason is about the job itself.
_OTHERS = re.compile(
    r"None|Resources|Priority|BeginTime|Cleaning|Prolog|NodeDown|FrontEndDown|PartitionDown|"
    r"PartitionInactive|Reservation|ReqNodeNotAvail.*|Nodes_required_for_job_are_.*|"
    r"Required_Node_not_available.*|.*Node.*",
)
# States of a node in which it takes no new work, whatever other states it has.
_AWAY = frozenset(
    {
        *("DOWN", "DRAIN", "DRAINING", "DRAINED", "FAIL", "FAILING", "UNKNOWN", "ERROR", "INVAL"),
        *("NOT_RESPONDING", "MAINT", "MAINTENANCE", "RESERVED", "REBOOT", "REBOOT_ISSUED"),
        *("POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN", "FUTURE", "BLOCKED"),
        *("PLANNED_DOWN", "INVALID_REG"),
    }
)
_PAIR = re.compile(r"(?:^| )([A-Za-z][A-Za-z0-9_:/]*)=")
_GRES = re.compile(r"(?:gres[:/])?([A-Za-z_][A-Za-z0-9_]*)(?::([A-Za-z_][^:(,]*))?:(\d+)([KMG]?)")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


@dataclass(frozen=True, slots=True)
class Line:
    """One job of `squeue`."""

    id: str
    state: str
    user: str
    nodes: str
    why: str
    comment: str
    name: str

    @property
    def holds(self) -> bool:
        return self.state in HOLDING


def job_lines(text: str) -> Iterator[Line]:
    for each in text.splitlines():
        parts = each.split("|", _FIELDS - 1)
        if len(parts) == _FIELDS:
            yield Line(*parts)


def job_of(line: Line) -> Job:
    if line.state in WAITS:
        is_others = _OTHERS.fullmatch(line.why) is not None
        return Job(line.id, line.name, JobState.WAITING, line.state, line.why, is_others=is_others)
    if line.holds:
        is_ending = line.state == "COMPLETING"
        return Job(line.id, line.name, JobState.RUNNING, line.state, is_ending=is_ending)
    end = _ENDS.get(line.state, End.FAILED)
    return Job(line.id, line.name, JobState.OVER, line.state, line.why, end=end)


def hosts(text: str) -> Iterator[str]:
    """Expand a host list, such as `n[01-03,7],login1`, into names."""
    depth, begin = 0, 0
    for at, letter in enumerate(f"{text},"):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            if part := text[begin:at]:
                yield from _expanded(part)
            begin = at + 1


def _expanded(text: str) -> Iterator[str]:
    before, bracket, rest = text.partition("[")
    if not bracket:
        yield text
        return
    inside, _, after = rest.partition("]")
    tails = list(_expanded(after)) or [""]
    for part in inside.split(","):
        found = _RANGE.fullmatch(part)
        if found is None:
            continue
        first, last = found[1], found[2] or found[1]
        for number in range(int(first), int(last) + 1):
            yield from (f"{before}{number:0{len(first)}d}{tail}" for tail in tails)


def devices(text: str) -> dict[str, int]:
    """Count by name a list of generic resources, such as `gpu:a100:4(S:0-1),shard:8`."""
    found: dict[str, int] = {}
    for name, _, count, unit in _GRES.findall(re.sub(r"\([^)]*\)", "", text)):
        times = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[unit]
        found[name] = found.get(name, 0) + int(count) * times
    return found


def fields_of(line: str) -> dict[str, str]:
    """Parse the `KEY=VALUE` pairs of a line; values may hold spaces."""
    marks = list(_PAIR.finditer(line))
    ends = [each.start() for each in marks[1:]] + [len(line)]
    return {each[1]: line[each.end() : end].strip() for each, end in zip(marks, ends, strict=True)}


def machines(
    text: str, groups: Mapping[str, str], holders: Mapping[str, Iterable[str]]
) -> Iterator[tuple[Machine, frozenset[str]]]:
    """Parse the nodes of `scontrol -o show nodes -d`, each with its partitions."""
    for line in text.splitlines():
        if not line.startswith("NodeName="):
            continue
        fields = fields_of(line)
        name = fields["NodeName"]
        amounts = _amounts(fields, "CPUTot", "RealMemory", "Gres")
        if "CPUEfctv" in fields:
            amounts["mcpu"] = 1000 * int(fields["CPUEfctv"])
        reserved = int(fields.get("MemSpecLimit") or 0)
        amounts["memory_mb"] = amounts.get("memory_mb", 0) - reserved
        partitions = frozenset(each for each in fields.get("Partitions", "").split(",") if each)
        labels = {f"feature/{each}": "yes" for each in _features(fields)}
        machine = Machine(
            name,
            {key: n for key, n in amounts.items() if n > 0},
            {
                key: n
                for key, n in _amounts(fields, "CPUAlloc", "AllocMem", "GresUsed").items()
                if n
            },
            labels | {"slurm": "yes"} | {f"partition/{each}": "yes" for each in sorted(partitions)},
            groups.get(name, ""),
            _away(fields),
            tuple(holders.get(name, ())),
        )
        yield machine, partitions


def _amounts(fields: Mapping[str, str], cpus: str, memory: str, gres: str) -> dict[str, int]:
    found = devices(fields.get(gres, "").replace("(null)", ""))
    found["mcpu"] = 1000 * int(fields.get(cpus) or 0)
    found["memory_mb"] = int(fields.get(memory) or 0)
    return found


def _features(fields: Mapping[str, str]) -> Iterator[str]:
    text = fields.get("ActiveFeatures") or fields.get("AvailableFeatures") or ""
    for each in text.split(","):
        if re.fullmatch(r"[A-Za-z0-9_.\-]{1,48}", each):
            yield each


def _away(fields: Mapping[str, str]) -> str:
    state = fields.get("State", "UNKNOWN")
    parts = {part.rstrip("*~#!%$@^-+") for part in state.split("+")}
    if not (parts & _AWAY) and "*" not in state:
        return ""
    why = re.sub(r" \[[^\]]*\]$", "", fields.get("Reason", ""))
    shown = state.replace("*", "").lower()
    return f"{shown} in Slurm: {why}" if why else f"{shown} in Slurm"


def switch_groups(text: str) -> dict[str, str]:
    """Return each node's path of switches, from the lines of `scontrol -o show topology`."""
    above: dict[str, str] = {}
    below: dict[str, str] = {}
    for line in text.splitlines():
        fields = fields_of(line)
        name = fields.get("SwitchName", "")
        if not name:
            continue
        if switches := fields.get("Switches", "").replace("(null)", ""):
            above |= dict.fromkeys(hosts(switches), name)
        elif nodes := fields.get("Nodes", "").replace("(null)", ""):
            below |= dict.fromkeys(hosts(nodes), name)
    return {node: "/".join(_path(switch, above)) for node, switch in below.items()}


def _path(switch: str, above: Mapping[str, str]) -> list[str]:
    path = [switch]
    while path[0] in above and above[path[0]] not in path:
        path.insert(0, above[path[0]])
    return path


def named(lines: Iterable[Line]) -> dict[str, list[str]]:
    """Return by node the outside jobs that hold some of it; the first few with their users."""
    found: dict[str, list[Line]] = {}
    for line in lines:
        for host in hosts(line.nodes):
            found.setdefault(host, []).append(line)
    return {
        host: [
            *(f"outside job {each.id} of {each.user}" for each in jobs[:NAMED]),
            *([f"{len(jobs) - NAMED} more"] if len(jobs) > NAMED else []),
        ]
        for host, jobs in found.items()
    }
