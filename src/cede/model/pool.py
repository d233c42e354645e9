"""A pool: named capacity, and how it decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cede.model.amounts import UNBOUNDED_WHEN_ABSENT, Amounts
from cede.model.settings import Settings


@dataclass(frozen=True, slots=True)
class Pool:
    id: str
    name: str
    capacity: Amounts
    preset: str
    settings: Settings
    description: str = ""
    created: str = ""
    edited: int = 0  # the place in the journal of the last edit of its amounts
    nodes: Mapping[str, str] | None = None  # labels of its nodes, which add up to its capacity
    # Until this instant nothing is granted: the database was restored, and leases that it does not
    # know of may last until then.
    quarantine: int | None = None

    def bounds_key(self, key: str) -> bool:
        """Whether this pool limits `key` at all."""
        return key in self.capacity or key not in UNBOUNDED_WHEN_ABSENT

    def metered(self, demand: Amounts) -> Amounts:
        """The part of a demand that this pool counts; mostly all of it, and then itself."""
        capacity = self.capacity
        for key, amount in demand.items():
            if not amount or key not in capacity:
                break
        else:
            return demand
        return {key: amount for key, amount in demand.items() if amount and self.bounds_key(key)}
