"""A token: who a caller is, what it may do, and for whom."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from cede.model.errors import Invalid
from cede.model.subject import Subject


class Role(IntEnum):
    """What a token may do; each role may do everything that the ones before it may."""

    VIEWER = 1
    SUBMITTER = 2
    OPERATOR = 3
    ADMIN = 4

    def __str__(self) -> str:
        return self.name.lower()

    @classmethod
    def parse(cls, value: object, field: str = "role") -> Role:
        for role in cls:
            if value == str(role):
                return role
        known = ", ".join(str(role) for role in cls)
        raise Invalid(field, f"must be one of {known}, not {value!r:.80}")


@dataclass(frozen=True, slots=True)
class Token:
    """C3: the secret itself is nowhere in here, only its SHA-256.

    `expires_at_wall` is an ISO 8601 label in UTC with a fixed form, so that labels compare as text.
    It is the one thing that wall-clock time ends, and no decision of the engine depends on it.
    """

    id: str
    name: str
    role: Role
    subjects: tuple[Subject, ...]
    hash: str
    created: str
    expires_at_wall: str | None = None
    revoked: bool = False
