"""Pools, policies and tenants as people declare them.

Each knows its place in the text, such as `policies[2]`, so that an error can name it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cede.model.amounts import Amounts
from cede.model.settings import Settings
from cede.model.subject import Subject

KINDS = ("pools", "policies", "tenants")


@dataclass(frozen=True, slots=True)
class WantedPool:
    path: str
    name: str
    capacity: Amounts | None  # None: its nodes give it
    nodes: Mapping[str, str] | None
    preset: str
    settings: Settings
    description: str


@dataclass(frozen=True, slots=True)
class WantedPolicy:
    """`pool` and `parent` are names; `fields` are by the attributes of a policy, all of them."""

    path: str
    pool: str
    subject: Subject
    name: str
    parent: str | None
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class WantedTenant:
    path: str
    name: str
    fields: Mapping[str, Any]  # all of them, in the units that people write


@dataclass(frozen=True, slots=True)
class Configuration:
    """None for a kind that the text does not mention, so that nothing of it is pruned."""

    pools: tuple[WantedPool, ...] | None = None
    policies: tuple[WantedPolicy, ...] | None = None
    tenants: tuple[WantedTenant, ...] | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """One pool, policy or tenant that was created, updated or deleted. `fields` has the old and the
    new value by name, as people write them; a setting's name is `settings.NAME`.
    """

    do: str  # create, update or delete
    kind: str  # pool, policy or tenant
    id: str
    name: str  # of a policy its subject, such as team:red
    pool: str | None = None  # of a policy
    fields: Mapping[str, tuple[Any, Any]] | None = None
