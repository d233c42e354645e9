"""The rows and events that one transaction writes, and marks in the log of changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from cede.model.allocation import Allocation
from cede.model.node import Node
from cede.model.policy import Policy
from cede.model.pool import Pool
from cede.model.request import Request
from cede.model.tenant import Tenant

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of the journal."""

    index: int
    at: int
    kind: str
    request_id: str | None
    pool_id: str | None
    data: dict[str, Any]


@dataclass(slots=True)
class Rows(Generic[T]):
    inserted: list[T] = field(default_factory=list)
    updated: list[T] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Changes:
    """The rows and events that one transaction writes."""

    pools: Rows[Pool] = field(default_factory=Rows)
    nodes: Rows[Node] = field(default_factory=Rows)
    policies: Rows[Policy] = field(default_factory=Rows)
    tenants: Rows[Tenant] = field(default_factory=Rows)
    requests: Rows[Request] = field(default_factory=Rows)
    allocations: Rows[Allocation] = field(default_factory=Rows)
    events: list[Event] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        edited = (self.pools, self.nodes, self.policies, self.tenants)
        return not self.events and not any(
            rows.inserted or rows.updated or rows.deleted
            for rows in (*edited, self.requests, self.allocations)
        )


class Mark(NamedTuple):
    """A place in the log of changes, to go back to."""

    log: int
    events: int
    last: int  # the last index that was given out
    journal: int
    came_up: int  # timers
    clock: tuple[int, int]
    dirty: Mapping[str, None]
    unearmarked: Mapping[str, None]

    @property
    def written(self) -> tuple[int, int]:
        """Differs from an earlier mark's if there is more to write."""
        return self.log, self.last
