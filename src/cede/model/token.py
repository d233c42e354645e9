"""A token: the identity of a caller, its role and its subjects."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from cede.model.errors import Invalid
from cede.model.subject import Subject


class Role(IntEnum):
    """The role of a token.

    From viewer on, each role may do everything that the ones before it may. A machine's roles stand
    beside them: no other role may do what a machine's may, and they may do nothing else.
    """

    NODE = -2  # one node's agent, or a bridge that speaks for several nodes
    JOIN = -1  # a machine that is to become a node
    VIEWER = 1
    SUBMITTER = 2
    OPERATOR = 3
    ADMIN = 4

    def __str__(self) -> str:
        return self.name.lower()

    @property
    def machine(self) -> bool:
        return self < Role.VIEWER

    def covers(self, needed: Role) -> bool:
        """Whether this role includes the role `needed`."""
        return self is needed or (not needed.machine and self >= needed)

    @classmethod
    def parse(cls, value: object, field: str = "role") -> Role:
        for role in cls:
            if value == str(role):
                return role
        known = ", ".join(str(role) for role in cls)
        raise Invalid(field, f"must be one of {known}, not {value!r:.80}")


def bridge_subject(name: str) -> Subject:
    """The subject of a bridge's token: every node that carries its name."""
    return Subject("bridge", name)


def node_subject(node_id: str) -> Subject:
    """The subject of a node's token; no other subject can have this type."""
    return Subject("node", node_id)


@dataclass(frozen=True, slots=True)
class Token:
    """A caller's credential. C3: it has only the SHA-256 of the secret, not the secret.

    `expires_at_wall` is an ISO 8601 label in UTC with a fixed form, so that labels compare as text.
    It is the only thing that ends by wall-clock time, and no decision of the engine depends on it.
    `uses` is the number of nodes that a join token may still make; None: unbounded. The subject of
    a node's token is the node or the bridge; a bounded join token's subjects are the nodes and
    bridges it made.
    """

    id: str
    name: str
    role: Role
    subjects: tuple[Subject, ...]
    hash: str
    created: str
    expires_at_wall: str | None = None
    revoked: bool = False
    uses: int | None = None

    @property
    def identity(self) -> str:
        """The identity under which its actions are kept: SUBJECT/NAME, or NAME for a token without
        subjects.

        Names are not unique: red's "ci" is not blue's, and stays the same when it is renewed.
        """
        if not self.subjects or self.role.machine or self.role >= Role.OPERATOR:
            return self.name
        return ",".join(sorted(str(each) for each in self.subjects)) + "/" + self.name


def name_in(identity: str) -> str:
    """The token's name in an identity, for people; names contain no slash."""
    return identity.rpartition("/")[2]
