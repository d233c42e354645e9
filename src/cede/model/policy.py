"""A policy: one subject's place in one pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cede.model import bounds
from cede.model.amounts import Amounts
from cede.model.fields import Count, Duration, Flag, Quantities, Ratio, Word, declared
from cede.model.policy_fields import OF_POLICY, Guarantee, Home, HomeNodes, OwnSettings
from cede.model.pool import Pool
from cede.model.subject import Subject
from cede.model.terms import CLASS

__all__ = ["OF_POLICY", "Home", "Kind", "Mode", "Policy"]


class Mode(StrEnum):
    """How the policies below a policy share: together by weight, or one after the other."""

    FAIR_SHARE = "fair_share"
    FIFO = "fifo"


class Kind(StrEnum):
    """Document 004's types of virtual cluster."""

    HPC_BATCH = "hpc_batch"
    ML_TRAINING = "ml_training"
    SERVICE = "service"
    SENSITIVE = "sensitive"
    INTERACTIVE = "interactive"


@dataclass(frozen=True, slots=True)
class Policy:
    """Reserved: what its subject is entitled to. Limit: the most it may hold. Priority: its
    rank.
    """

    id: str
    pool_id: str
    subject: Subject
    priority: int = declared(Count(0, bounds.PRIORITY_MAX), "Its rank; higher comes first.", 0)
    reserved: Amounts = declared(
        Quantities(), "What its subject is entitled to.", default_factory=dict
    )
    limit: Amounts = declared(Quantities(), "The most it may hold.", default_factory=dict)
    name: str = ""
    parent_id: str | None = None  # the policy of the same pool below which it stands
    weight: float = declared(
        Ratio(bounds.WEIGHT_MIN, bounds.WEIGHT_MAX),
        "Its part of what is shared by weight, against its siblings.",
        1.0,
    )
    mode: Mode = declared(
        Word(Mode), "How those below it share: by weight, or one after the other.", Mode.FAIR_SHARE
    )
    settings: Mapping[str, Any] = declared(
        OwnSettings(), "Its own, for itself and those below it.", default_factory=dict
    )
    integral: Mapping[str, Any] = declared(
        Guarantee(), "A guarantee over time.", default_factory=dict
    )
    kind: Kind = declared(
        Word(Kind), "The kind of work that it is for.", Kind.HPC_BATCH, name="type"
    )
    max_class: int = declared(CLASS, "The highest class its requests may have.", 9)
    allow_sensitive: bool = declared(
        Flag(), "Whether its requests may be sensitive, or of class 10.", False
    )
    home: Home | None = declared(
        HomeNodes(),
        "The nodes that are its own: by label or by name; empty: none.",
        None,
        example={"rack": "r1"},
    )
    allow_lending: bool = declared(Flag(), "Its own nodes, while they are idle.", True)
    allow_borrowing: bool = declared(Flag(), "The nodes of others.", True)
    max_borrow_pct: float = declared(
        Ratio(0, 1_000), "How much of its home it lends: this part of its nodes.", 0.2
    )
    return_grace: int = declared(
        Duration(), "Seconds a borrower has before a node of its own is taken back.", 0
    )
    created: str = ""
    edited: int = 0  # the place in the journal of its last edit of amounts

    def limit_of(self, key: str, pool: Pool) -> int | None:
        """The most that this policy may hold of a key; None if only the pool bounds it."""
        limit = self.limit.get(key)
        return None if limit is None or limit >= pool.capacity.get(key, 0) else limit

    def reserved_of(self, key: str, pool: Pool) -> int | None:
        """The reserved amount of a key; None if the pool does not count the key."""
        return self.reserved.get(key, 0) if pool.bounds_key(key) else None
