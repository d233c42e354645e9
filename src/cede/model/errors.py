"""The errors that a caller can cause, as types.

`assert` is for our own mistakes; these are for everyone else's. Each names the field and the fix,
and the edge (HTTP, command line) turns each into its own form without parsing text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cede.model.reason import Reason

_LISTED_MAX = 20


class CedeError(Exception):
    """Base of every refusal by cede."""


class Invalid(CedeError, ValueError):
    """A value that can never be right: wrong type, out of bound, unknown key."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class Malformed(Invalid):
    """A value of the wrong kind altogether: a text or a fraction where a class is expected."""


class NotFound(CedeError, LookupError):
    """A name or id of nothing that is visible to the caller."""

    def __init__(self, kind: str, name: str, known: Iterable[str] = ()) -> None:
        near = nearest(name, known)
        super().__init__(f"no {kind} {name!r}" + (f"; {near}" if near else ""))
        self.kind = kind
        self.name = name


class Conflict(CedeError):
    """A request that is well formed and cannot be done in the present state."""

    def __init__(self, code: str, problem: str) -> None:
        super().__init__(problem)
        self.code = code
        self.problem = problem


class Forbidden(CedeError):
    """An action that this caller may not do; `field` names it."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(problem)
        self.field = field


def quoted(value: object) -> str:
    """A value for a message: short, also where Python refuses to print it whole."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    return f"{value!r:.80}"


def listed(name: object, known: Iterable[str]) -> str:
    """The known names; of many, those that look most like the given one."""
    several = sorted(known)
    if len(several) <= _LISTED_MAX:
        return ", ".join(several)
    close = _close(name, several, n=_LISTED_MAX // 2, cutoff=0)
    return f"{', '.join(close)} and others"


def nearest(name: object, known: Iterable[str]) -> str:
    """`did you mean grace?`; empty if no known name looks like this one."""
    close = _close(name, sorted(known), n=1)
    return f"did you mean {close[0]}?" if close else ""


def choices(name: object, known: Iterable[str]) -> str:
    """The nearest known name, if there is one, and then the known names."""
    several = sorted(known)
    return " ".join(filter(None, (nearest(name, several), f"known are {listed(name, several)}")))


def _close(name: object, known: list[str], **options: int) -> list[str]:
    from difflib import get_close_matches  # only after mistakes: imports cost time

    # Cut before it is compared: the comparison is quadratic.
    return get_close_matches(str(name)[:80], known, **options)


class Refused(CedeError):
    """A request that is rejected on submission, with the typed reason."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.text)
        self.reason = reason
