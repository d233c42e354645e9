"""A policy: one subject's place in one pool."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cede.model.amounts import Amounts
from cede.model.pool import Pool
from cede.model.subject import Subject


class Mode(StrEnum):
    """How those below a policy share: together by weight, or one after the other."""

    FAIR_SHARE = "fair_share"
    FIFO = "fifo"


@dataclass(frozen=True, slots=True)
class Policy:
    """Reserved: what its subject is entitled to. Limit: the most it may hold. Priority: rank."""

    id: str
    pool_id: str
    subject: Subject
    priority: int
    reserved: Amounts
    limit: Amounts
    name: str = ""
    parent_id: str | None = None  # the policy of the same pool below which it stands
    weight: float = 1.0  # its part of what is shared by weight, against its siblings
    mode: Mode = Mode.FAIR_SHARE
    created: str = ""
    edited: int = 0  # the place in the journal of its last edit of amounts

    def limit_of(self, key: str, pool: Pool) -> int | None:
        """The most this policy may hold of a key; None where nothing bounds it."""
        if key in self.limit:
            return self.limit[key]
        return pool.capacity.get(key, 0) if pool.bounds_key(key) else None

    def reserved_of(self, key: str, pool: Pool) -> int | None:
        """What is reserved of a key; None where the pool does not count it at all."""
        return self.reserved.get(key, 0) if pool.bounds_key(key) else None
