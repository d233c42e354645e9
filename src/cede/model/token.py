"""A token: who a caller is, what it may do, and for whom."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from cede.model.errors import Invalid
from cede.model.subject import Subject


class Role(IntEnum):
    """What a token may do. From viewer on, each may do everything that the ones before it may; a
    machine's roles stand beside them: whoever may more may not do what they do, nor they anything
    else.
    """

    NODE = -2  # one node's agent, or a bridge that speaks for several nodes
    JOIN = -1  # a machine that is about to be a node
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
        """Whether this role may do what asks for that one."""
        return self is needed or (not needed.machine and self >= needed)

    @classmethod
    def parse(cls, value: object, field: str = "role") -> Role:
        for role in cls:
            if value == str(role):
                return role
        known = ", ".join(str(role) for role in cls)
        raise Invalid(field, f"must be one of {known}, not {value!r:.80}")


def bridge_subject(name: str) -> Subject:
    """Whom a bridge's token speaks for: every node that carries its name."""
    return Subject("bridge", name)


def node_subject(node_id: str) -> Subject:
    """Whom a node's token speaks for; nobody else can have this type."""
    return Subject("node", node_id)


@dataclass(frozen=True, slots=True)
class Token:
    """C3: the secret itself is nowhere in here, only its SHA-256.

    `expires_at_wall` is an ISO 8601 label in UTC with a fixed form, so that labels compare as text.
    It is the one thing that wall-clock time ends, and no decision of the engine depends on it.
    `uses` is how many nodes a join token may still make, where that is bounded. The subject of a
    node's token is the node or the bridge; a bounded join token's are the nodes and bridges it
    made.
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
        """Who it acts as, wherever that is kept: SUBJECT/NAME, or NAME of a token that is bound to
        nobody. Names are not unique: red's "ci" is not blue's, and is the same when it is renewed.
        """
        if not self.subjects or self.role.machine or self.role >= Role.OPERATOR:
            return self.name
        return ",".join(sorted(str(each) for each in self.subjects)) + "/" + self.name


def name_in(identity: str) -> str:
    """The token's name in an identity, for people; no name has a slash."""
    return identity.rpartition("/")[2]
