"""Counts what was run: each attempt at most once, each device under one task at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.slurm.cluster import Cluster


def begun(notes: Path) -> list[list[str]]:
    if not notes.exists():
        return []
    return [line.split(" ") for line in notes.read_text().splitlines()]


def twice(notes: Path) -> list[str]:
    """Tasks of an attempt that began more than once."""
    counted = Counter(f"{line[2]}.{line[3]}" for line in begun(notes) if line[0] == "begins")
    return [name for name, count in counted.items() if count > 1]


def jobs_twice(names: Iterable[str]) -> list[str]:
    """Jobs of one name that Slurm has more than once."""
    return [name for name, count in Counter(names).items() if count > 1]


def overlaps(notes: Path) -> list[str]:
    """Devices that two tasks had at once; one that was killed had its own until the next began."""
    held: dict[tuple[str, str], str] = {}
    found = []
    for line in sorted(begun(notes), key=lambda each: int(each[1])):
        word, _, allocation, task, node, devices = line
        who = f"{allocation}.{task}"
        for device in filter(None, devices.split(",")):
            other = held.get((node, device))
            if word == "begins":
                if other is not None and other != who:
                    found.append(f"{node} {device}: {other} and {who}")
                held[node, device] = who
            elif other == who:
                del held[node, device]
    return found


def check(slurm: Cluster, notes: Path, killed: Iterable[str] = ()) -> None:
    names = [name for _, name, _, _ in slurm.jobs() if name.startswith("cede-")]
    assert not jobs_twice(names), jobs_twice(names)
    assert not twice(notes), twice(notes)
    dead = set(killed)
    assert not [each for each in overlaps(notes) if not dead & set(each.split())], overlaps(notes)
