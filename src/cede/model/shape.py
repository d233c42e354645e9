"""How a demand must sit on nodes: tasks that are alike, each whole on one node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from cede.model import bounds
from cede.model.amounts import Amounts
from cede.model.errors import Invalid, quoted
from cede.model.fields import Count, Labels, Text, Word, declared


class Topology(StrEnum):
    """The topology groups that the tasks should be in: as few and as near as possible, as many as
    possible, or any.
    """

    ANY = "any"
    TIGHT = "tight"
    SPREAD = "spread"


class Form(NamedTuple):
    """A shape as a comparable value: waiters of one form fit in the same places."""

    amounts: tuple[tuple[str, int], ...]
    tasks: int
    per_node: int
    labels: tuple[tuple[str, str], ...]
    fingerprint: str
    topology: Topology
    folders: tuple[str, ...] = ()  # checkpoint folders, one for each task; empty: any

    @property
    def by_folder(self) -> list[Form]:
        """This form, or one form for each of the folders that its tasks must sit at."""
        tasks = Counter(self.folders)
        if len(tasks) <= 1:
            return [self]
        return [
            self._replace(tasks=count, folders=(folder,) * count) for folder, count in tasks.items()
        ]


@dataclass(frozen=True, slots=True)
class Shape:
    """`amounts` is the demand of one task; `per_node` bounds the tasks on one node."""

    amounts: Amounts
    tasks: int = 1
    per_node: int | None = declared(
        Count(1, bounds.TASKS_MAX), "At most so many tasks on one node.", None
    )
    labels: Mapping[str, str] = declared(
        Labels(of_nodes=True),
        "Only on nodes with these labels.",
        default_factory=dict,
        name="node_labels",
    )
    fingerprint: str = declared(
        Text(bounds.NAME_LENGTH_MAX), "Only on nodes with this fingerprint.", ""
    )
    topology: Topology = declared(
        Word(Topology),
        "Its tasks: in few and near groups of nodes, in many, in any.",
        Topology.TIGHT,
    )

    def form(self, metered: Amounts) -> Form:
        """The form of this shape in a pool that counts only these amounts of a task."""
        return Form(
            tuple(sorted(metered.items())),
            self.tasks,
            self.tasks if self.per_node is None else self.per_node,
            tuple(sorted(self.labels.items())),
            self.fingerprint,
            self.topology if self.tasks > 1 else Topology.ANY,  # one task is in one group
        )


# A node, and the number of tasks of a demand on it.
Footprint = tuple[tuple[str, int], ...]


def parse_count(value: object, field: str, most: int = bounds.TASKS_MAX) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise Invalid(field, f"must be an integer from 1 to {most}, not {quoted(value)}")
    return value
