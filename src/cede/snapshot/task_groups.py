"""Requests with several independent tasks, as people write them in a snapshot.

Written by hand, such a request is in `requests` once, with the tasks that it still wants, and its
holdings are in `running`, each with `request: ID`. The engine has one request for each task, all of
them part of the first. This module converts the first form to the second, as data: every entry
keeps its path, so that errors name the place where it was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cede.model.amounts import parse_amount
from cede.model.array import parse_array
from cede.model.fields import deciding
from cede.model.request import Request
from cede.model.shape import Shape, parse_count
from cede.model.stopping import StopPolicy
from cede.model.terms import OF_REQUEST, Terms
from cede.snapshot.fields import Entry, SnapshotError, at

Listed = tuple[str, Any]

# Fields that all tasks of a request share; an entry may repeat but not contradict them.
_COMMON = (
    *("component", "component_type", "policy"),
    *deciding(Terms),
)
# Fields that a task inherits unless its own entry has them.
_ALIKE = (
    *("preemptible", "submitted_at", "lease", "work"),
    *("retries", "preemptions", "retry_delay", "retry_backoff", "lost_count"),
    *(name for part in (Request, Shape, StopPolicy) for name in deciding(part)),
)


@dataclass(slots=True)
class _TaskGroup:
    """One request of the snapshot that becomes several in the engine."""

    id: str
    base: Entry  # the entry that the others inherit from
    asked: bool  # it is in `requests`, so its first task there has its id
    numbered: int = 1

    def next_id(self, taken: set[str]) -> str:
        """The next free name for a task without an id of its own: `ID#2` and so on."""
        while True:
            self.numbered += 1
            if (name := f"{self.id}#{self.numbered}") not in taken:
                return name


def spread(running: list[Listed], requests: list[Listed]) -> tuple[list[Listed], list[Listed]]:
    """The same entries with one for each task."""
    task_groups = _task_groups(running, requests)
    taken = {str(each["id"]) for _, each in (*running, *requests) if _is_map(each) and "id" in each}
    held = [(path, _held(path, each, task_groups, taken)) for path, each in running]
    wanted = [entry for path, each in requests for entry in _wanted(path, each, task_groups, taken)]
    return held, wanted


def in_tasks(path: str, value: Any) -> Any:
    """An entry with whole nodes and GPUs per node, written as tasks, one to a node."""
    if not _is_map(value):
        return value
    entry = dict(value)
    if "gpus_per_node" in entry:
        with at(path):
            gpus = parse_amount(entry.pop("gpus_per_node"), "gpus_per_node")
        resources = entry.get("resources") or {}
        if _is_map(resources) and resources.get("gpu", gpus) != gpus:
            raise SnapshotError(f"{path}.gpus_per_node", "resources say another number of gpu")
        entry["resources"] = {**resources, "gpu": gpus}
    if entry.get("nodes") is None:
        entry.pop("nodes", None)
    elif not isinstance(entry["nodes"], list):
        with at(path):
            nodes = parse_count(entry.pop("nodes"), "nodes")
        if entry.setdefault("tasks", nodes) != nodes:
            raise SnapshotError(f"{path}.nodes", "tasks say another number")
        entry.setdefault("per_node", 1)
    return entry


def names(entries: Iterable[Listed]) -> set[str]:
    """All ids and names of requests in these entries."""
    return {
        str(each[name])
        for _, each in entries
        if _is_map(each)
        for name in ("id", "request")
        if name in each
    }


def _task_groups(running: list[Listed], requests: list[Listed]) -> dict[str, _TaskGroup]:
    named: dict[str, list[Listed]] = {}
    for path, each in running:
        if _is_map(each) and each.get("request") is not None:
            named.setdefault(str(each["request"]), []).append((path, each))
    asked = {
        str(each["id"]): (path, each) for path, each in requests if _is_map(each) and "id" in each
    }
    found = {}
    for id_, holders in named.items():
        if id_ in asked:
            path, base = asked[id_]
            if base.get("gang") is True:
                problem = f"a gang holds all of its tasks or none, and {holders[0][0]} holds some"
                raise SnapshotError(f"{path}.gang", problem)
            found[id_] = _TaskGroup(id_, base, asked=True)
        elif len(holders) > 1:
            found[id_] = _TaskGroup(id_, holders[0][1], asked=False)
    return found


def _held(path: str, value: Any, task_groups: dict[str, _TaskGroup], taken: set[str]) -> Any:
    task_group = task_groups.get(str(value.get("request"))) if _is_map(value) else None
    if task_group is None:
        return value
    entry = _part(path, value, task_group)
    del entry["request"]
    if "id" not in entry:
        free = not task_group.asked and task_group.id not in taken
        entry["id"] = task_group.id if free else task_group.next_id(taken)
        taken.add(entry["id"])
    return entry


def _wanted(
    path: str, value: Any, task_groups: dict[str, _TaskGroup], taken: set[str]
) -> Iterator[Listed]:
    if not _is_map(value):
        yield path, value
        return
    if value.get("array") and value.get("part_of") is None:
        yield from _in_array(path, value, taken)
        return
    task_group = task_groups.get(str(value.get("id")))
    gang = value.get("gang")
    if gang is not None and not isinstance(gang, bool):
        raise SnapshotError(f"{path}.gang", f"must be true or false, not {gang!r:.80}")
    entry = {name: each for name, each in value.items() if name != "gang"}
    if task_group is None and gang is not False:
        yield path, entry
        return
    with at(path):
        tasks = parse_count(entry.pop("tasks", 1), "tasks")
    if tasks == 1 and task_group is None:
        yield path, entry
        return
    if entry.get("earmark") is not None and tasks > 1:
        raise SnapshotError(f"{path}.earmark", "is promised to one task; give that its own entry")
    task_group = task_group or _TaskGroup(str(value.get("id")), value, asked=True)
    entry = _part(path, entry, task_group)
    for number in range(tasks):
        yield path, {**entry, "id": task_group.id if number == 0 else task_group.next_id(taken)}


def _in_array(path: str, value: Entry, taken: set[str]) -> Iterator[Listed]:
    """One entry for each task of an array that is in `requests` once."""
    task_group = _TaskGroup(str(value.get("id")), value, asked=True)
    with at(path):
        numbers = parse_array(str(value["array"])).numbers
    for number in numbers:
        name = task_group.id if number == numbers[0] else task_group.next_id(taken)
        yield path, {**value, "id": name, "part_of": task_group.id, "array_task": number}


def _part(path: str, entry: Entry, task_group: _TaskGroup) -> dict[str, Any]:
    """One task of a task group, with the fields that it inherits."""
    for name in _COMMON:
        if name in entry and name in task_group.base and entry[name] != task_group.base[name]:
            other = f"{task_group.base[name]!r:.80}"
            raise SnapshotError(f"{path}.{name}", f"request {task_group.id} has {other}")
    if entry.get("part_of") not in (None, task_group.id):
        raise SnapshotError(f"{path}.part_of", f"it is part of {task_group.id}")
    base = {name: task_group.base[name] for name in _COMMON if name in task_group.base}
    if task_group.asked:
        base |= {name: task_group.base[name] for name in _ALIKE if name in task_group.base}
    return {**base, **_needs(entry, task_group), **entry, "part_of": task_group.id}


def _needs(entry: Entry, task_group: _TaskGroup) -> dict[str, Any]:
    """The demand and own settings that a task inherits if its entry has none."""
    base, found = task_group.base, {}
    silent = "resources" not in entry and "settings" not in entry
    if silent and task_group.asked:
        found = {name: base[name] for name in ("resources", "settings") if name in base}
    elif "settings" not in entry and _is_map(base.get("settings")):
        own = {name: each for name, each in base["settings"].items() if name in OF_REQUEST}
        found = {"settings": own} if own else {}
    return found


def _is_map(value: Any) -> bool:
    return isinstance(value, Mapping)
