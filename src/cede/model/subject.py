"""The subject of a policy, for which requests are submitted."""

from __future__ import annotations

import re
from typing import NamedTuple

from cede.model.errors import Invalid

SUBJECT_TYPES = ("orchestrator", "step_operator", "team", "user")

_NAME = re.compile(r"[^\s\x00-\x1f\x7f/\\][^\x00-\x1f\x7f/\\]{0,127}")


class Subject(NamedTuple):
    """A component (orchestrator or step operator), a team or a user, by type and name."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"

    @classmethod
    def of(cls, name: object, type_: object = "orchestrator", field: str = "component") -> Subject:
        if type_ not in SUBJECT_TYPES:
            known = ", ".join(SUBJECT_TYPES)
            raise Invalid(f"{field}_type", f"must be one of {known}, not {type_!r:.80}")
        return cls(str(type_), parse_name(name, field))

    @classmethod
    def parse(cls, text: str, field: str = "subject") -> Subject:
        """Read `team:red`; a bare name is an orchestrator."""
        type_, colon, name = text.partition(":")
        return cls.of(name, type_, field) if colon else cls.of(text, field=field)


def parse_name(name: object, field: str) -> str:
    """A name that is safe to print, as a file name and in a path segment."""
    valid = isinstance(name, str) and _NAME.fullmatch(name) and name.isprintable()
    if not valid or name in (".", ".."):
        raise Invalid(
            field,
            f"must be 1 to 128 printable characters without / or \\, not {name!r:.80}",
        )
    assert isinstance(name, str)
    return name
