"""How long the term of this server surely holds.

Leases, renewals and orders are answered only while its term surely holds (law 6). The term counts
from before the last successful renewal was sent, on the clock that goes on in a suspended machine,
so a server that was frozen or cut off from its database knows it at once. This module knows no
database: a term without end is that of a lock on a file, which ends with the process.
"""

from __future__ import annotations

from cede.model import bounds
from cede.model.errors import CedeError
from cede.server import clock

# Taken off a term: 1 % for clocks that differ, and the rest for the time between reading the clock
# and acting on it.
MARGIN_DIVISOR = 10


class NotLeading(CedeError):
    """The term of this server may be over; another server leads, or will."""

    def __init__(self) -> None:
        super().__init__(
            "this server could not renew its term: its database does not answer, or another server "
            "leads; ask that one, or try again"
        )


class Leadership:
    """The term of one server: its writer renews it, all threads ask for it."""

    def __init__(self, lasts: int | None) -> None:
        self._lasts = None if lasts is None else lasts - lasts // MARGIN_DIVISOR
        self._until = 0

    def renewed(self, sent_at: int) -> None:
        """Note that a renewal that was sent then has succeeded; `sent_at` is of
        `clock.boottime`."""
        if self._lasts is not None:
            self._until = max(self._until, sent_at + self._lasts)

    @property
    def seconds_left(self) -> float | None:
        """How long the term surely lasts; None without an end."""
        if self._lasts is None:
            return None
        return max(0, self._until - clock.boottime()) / bounds.SECOND

    def require(self) -> None:
        """Raise `NotLeading` unless the term surely holds now."""
        if self._lasts is not None and clock.boottime() >= self._until:
            raise NotLeading
