"""A policy: one subject's place in one pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from cede.model.amounts import Amounts
from cede.model.pool import Pool
from cede.model.subject import Subject


class Mode(StrEnum):
    """How those below a policy share: together by weight, or one after the other."""

    FAIR_SHARE = "fair_share"
    FIFO = "fifo"


class Kind(StrEnum):
    """Document 004's types of virtual cluster."""

    HPC_BATCH = "hpc_batch"
    ML_TRAINING = "ml_training"
    SERVICE = "service"
    SENSITIVE = "sensitive"
    INTERACTIVE = "interactive"


# What of a fair-share pool's settings a policy may set, for itself and those below it.
OF_POLICY = (
    "fair_share_starvation_timeout",
    "fair_share_starvation_tolerance",
    "enable_aggressive_starvation",
    "allow_aggressive_preemption",
    "non_preemptible_resource_usage_threshold",
)


@dataclass(frozen=True, slots=True)
class Home:
    """The nodes that are a policy's own: by label, or by name."""

    labels: Mapping[str, str] = field(default_factory=dict)
    names: tuple[str, ...] = ()

    def has(self, name: str, labels: Mapping[str, str]) -> bool:
        if name in self.names:
            return True
        return bool(self.labels) and all(labels.get(k) == v for k, v in self.labels.items())


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
    settings: Mapping[str, Any] = field(default_factory=dict)  # of its own and those below it
    integral: Mapping[str, Any] = field(default_factory=dict)  # a guarantee over time
    kind: Kind = Kind.HPC_BATCH
    max_class: int = 9
    allow_sensitive: bool = False
    home: Home | None = None
    allow_lending: bool = True  # its own nodes, while they are idle
    allow_borrowing: bool = True  # those of others
    max_borrow_pct: float = 0.2  # of its own nodes, at most this part is lent
    return_grace: int = 0  # how long a borrower has before a node is taken back
    created: str = ""
    edited: int = 0  # the place in the journal of its last edit of amounts

    def limit_of(self, key: str, pool: Pool) -> int | None:
        """The most this policy may hold of a key; None where only the pool bounds it."""
        limit = self.limit.get(key)
        return None if limit is None or limit >= pool.capacity.get(key, 0) else limit

    def reserved_of(self, key: str, pool: Pool) -> int | None:
        """What is reserved of a key; None where the pool does not count it at all."""
        return self.reserved.get(key, 0) if pool.bounds_key(key) else None
