"""Errors of the database itself.

None of these is a caller's mistake; each stops the writer.
"""

from __future__ import annotations

from collections.abc import Sequence


class StoreError(Exception):
    """The store cannot do what it promises; the message says why and what to do, in one line."""


class Deposed(StoreError):
    """S12: another server has taken over; this one's transaction committed nothing."""

    def __init__(self, epoch: int, current: int | None) -> None:
        super().__init__(
            f"this server writes under epoch {epoch}, but the database is at epoch {current}: "
            "another server has taken over"
        )
        self.epoch = epoch
        self.current = current


class StaleIndex(StoreError):
    """The journal is not where this writer left it, although no server took over.

    Another program wrote to it.
    """

    def __init__(self, expected: int, found: int) -> None:
        super().__init__(
            f"the journal should be at index {expected} and is at {found}: "
            "something else has written to this database"
        )


class WrongDatabase(StoreError):
    """Not a database that this version may use: foreign, newer, or not reachable."""


class DatabaseAway(StoreError):
    """The database cannot be reached now: it restarts, or the way to it is lost."""

    def __init__(self) -> None:
        super().__init__("the database does not answer; try again")


class RolledBack(StoreError):
    """S25: the database is older than its witness."""


class Damaged(StoreError):
    """Stored rows differ from the committed ones. Each finding names its table."""

    def __init__(self, findings: Sequence[str]) -> None:
        more = f"; and {len(findings) - 5} more" if len(findings) > 5 else ""
        super().__init__(
            f"the database is damaged: {'; '.join(findings[:5])}{more}; nothing is written to it: "
            "stop the server, check its disk and restore a backup"
        )
        self.findings = list(findings)


class DiskFull(StoreError):
    """There is no space for a commit; nothing of it was written."""

    def __init__(self) -> None:
        super().__init__(
            "the disk of the database is full: nothing can be written until there is space; "
            "what runs goes on"
        )


class Stopped(StoreError):
    """Asked to stop while waiting to become the writer."""

    def __init__(self) -> None:
        super().__init__("stopped while waiting for another server to let go of the database")
