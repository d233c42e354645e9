"""What can be wrong with the database itself.

None of these is a caller's mistake; each stops the writer.
"""

from __future__ import annotations


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
    """The journal is not where this writer left it, although nobody took over.

    Something else wrote.
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
    """S25: the database is older than what has been witnessed."""


class Stopped(StoreError):
    """Asked to stop while waiting to become the writer."""

    def __init__(self) -> None:
        super().__init__("stopped while waiting for another server to let go of the database")
