"""The amounts that others hold on the nodes of a cluster, and what of that the server has been
told."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from cede.agent import wire
from cede.bridge import folder
from cede.bridge.cluster import Machine, Seen
from cede.model import bounds

# The nodes as last seen, for a bridge that starts while its cluster is away.
NODES = "nodes.json"
# One missed answer may mean a busy cluster; after two, no new work is put there.
AWAY_AFTER = 2
# For so many looks a node gets no work that its cluster keeps for a job that comes first.
KEPT_OFF = 10

Held = tuple[Mapping[str, int], str]


class Others:
    """Safe to use from the threads that call the server, while the machine's thread updates it."""

    def __init__(self, data: Path) -> None:
        self._path = data / NODES
        self._lock = threading.Lock()
        self._machines: dict[str, Machine] = {}
        self._held: dict[str, Held] = {}
        self._told: dict[str, Held] = {}
        self._away = 0
        self._off: dict[str, int] = {}
        self._has_news = self._has_changed = False
        self._introduced: list[wire.Json] | None = None
        for each in folder.get(self._path) or ():
            self._machines[each["name"]] = Machine(
                each["name"], each["amounts"], {}, each["labels"], each["group"]
            )

    @property
    def is_known(self) -> bool:
        return bool(self._machines)

    def remember(self, seen: Seen) -> None:
        """Note the nodes of a first look. The bridge's own use is not known yet, so nothing is
        free."""
        with self._lock:
            self._machines = {each.name: each for each in seen.machines}
            folder.put(self._path, [_facts(each) for each in self._machines.values()])
            why = "its bridge has just begun"
            self._set({each.name: (dict(each.amounts), why) for each in seen.machines})

    def seen(self, seen: Seen, ours: Iterable[tuple[str, Mapping[str, int]]]) -> None:
        """Take in a look at the cluster; `ours` has the node and the amounts of each running
        task of the bridge."""
        own: dict[str, dict[str, int]] = {}
        for node, amounts in ours:
            mine = own.setdefault(node, {})
            for key, amount in amounts.items():
                mine[key] = mine.get(key, 0) + amount
        held: dict[str, Held] = {}
        for machine in seen.machines:
            held[machine.name] = self._of(machine, own.get(machine.name, {}))
        self._off = {name: left - 1 for name, left in self._off.items() if left > 1}
        with self._lock:
            self._away = 0
            machines = {each.name: each for each in seen.machines}
            known = [_facts(each) for each in machines.values()]
            if known != [_facts(each) for each in self._machines.values()]:
                folder.put(self._path, known)
                self._has_changed = self._introduced is not None
            self._machines = machines
            self._set(held)

    def _of(self, machine: Machine, own: Mapping[str, int]) -> Held:
        if machine.away:
            # Holders first: a node that does not answer for a moment keeps its holders.
            return dict(machine.amounts), ", ".join((*machine.holders, machine.away))
        if machine.name in self._off:
            return dict(machine.amounts), "its cluster keeps it for a job that comes first"
        taken = {
            key: min(n - own.get(key, 0), machine.amounts.get(key, 0))
            for key, n in machine.held.items()
            if n > own.get(key, 0) and key in machine.amounts
        }
        if not taken:
            return {}, ""
        why = ", ".join(machine.holders) or "what its cluster rounds up for our own jobs"
        return taken, why

    def keep_off(self, nodes: Iterable[str]) -> None:
        self._off |= dict.fromkeys(nodes, KEPT_OFF)

    def is_away(self, why: str) -> None:
        self._away += 1
        if self._away < AWAY_AFTER:
            return
        with self._lock:
            text = f"its cluster does not answer: {why}"
            machines = self._machines.values()
            self._set({each.name: (dict(each.amounts), text) for each in machines})

    def _set(self, held: Mapping[str, Held]) -> None:
        if held != self._held:
            self._held = {name: (amounts, _short(why)) for name, (amounts, why) in held.items()}
            self._has_news = True

    # Reports to the server

    def introduction(self) -> list[wire.Json]:
        """Return all nodes and what they have, as of now."""
        with self._lock:
            self._introduced = [_facts(each) for each in self._machines.values()]
            self._has_changed = False
            return [
                {**each, "others": dict(held[0]), "why": held[1]}
                for each in self._introduced
                if (held := self._held.get(each["name"], ({}, ""))) is not None
            ]

    def take_changed(self) -> bool:
        with self._lock:
            changed, self._has_changed = self._has_changed, False
            return changed

    def take_news(self) -> bool:
        with self._lock:
            news, self._has_news = self._has_news, False
            return news

    def untold(self) -> list[wire.Json]:
        with self._lock:
            return [
                {"node": name, "others": dict(amounts), "why": why}
                for name, (amounts, why) in self._held.items()
                if self._told.get(name) != (amounts, why)
            ][: bounds.BRIDGED_NODES_MAX]

    def told(self, said: Sequence[wire.Json]) -> None:
        with self._lock:
            for each in said:
                self._told[each["node"]] = (each["others"], each["why"])


def _facts(machine: Machine) -> wire.Json:
    return {
        "name": machine.name,
        "amounts": dict(machine.amounts),
        "labels": dict(machine.labels),
        "group": machine.group,
    }


def _short(text: str) -> str:
    """Cut a text as the server takes it: printable, and not too long."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    most = bounds.LABEL_LENGTH_MAX
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"
