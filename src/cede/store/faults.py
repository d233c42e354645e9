"""Classifies the errors that a database reports: no space, damage, and all others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import MultipleResultsFound, NoResultFound, SQLAlchemyError

from cede.store.errors import Damaged, DiskFull, WrongDatabase

# SQLite's primary codes are the lowest eight bits. No space for the shared memory of the WAL is
# reported as an error of its own.
_SQLITE_FULL, _SQLITE_SHARED_MEMORY = 13, (4874, 5642)
_SQLITE_CORRUPT = (11, 26)
# disk_full; data_corrupted and index_corrupted.
_POSTGRESQL_FULL = "53100"
_POSTGRESQL_CORRUPT = ("XX001", "XX002")


@contextmanager
def told_apart() -> Iterator[None]:
    """Raise `DiskFull` or `Damaged` in place of a database's own errors of these kinds."""
    try:
        yield
    except SQLAlchemyError as error:
        if is_full(error):
            raise DiskFull from error
        if (found := damage(error)) is not None:
            raise Damaged([found]) from error
        raise


@contextmanager
def usable() -> Iterator[None]:
    """Raise errors that a start can show in one line, for any error of a damaged database."""
    try:
        with told_apart():
            yield
    except (NoResultFound, MultipleResultsFound) as error:
        raise Damaged(["table meta does not have its one row"]) from error
    except SQLAlchemyError as error:
        raise WrongDatabase(f"cannot use the database: {one_line(error)}") from error
    except (ValueError, TypeError) as error:
        # From drivers and conversions: a value is not of the kind of its column.
        raise Damaged([f"a value cannot be read: {one_line(error)}"]) from error


def one_line(error: BaseException) -> str:
    return " ".join(str(_cause(error)).split())[:300]


def is_full(error: BaseException) -> bool:
    cause = _cause(error)
    code = getattr(cause, "sqlite_errorcode", None)
    if code is not None:
        return code & 0xFF == _SQLITE_FULL or code in _SQLITE_SHARED_MEMORY
    return getattr(cause, "sqlstate", None) == _POSTGRESQL_FULL


def damage(error: BaseException) -> str | None:
    """A database's report of its own damage, in one line; None for any other error."""
    cause = _cause(error)
    code = getattr(cause, "sqlite_errorcode", None)
    corrupt = (
        (code is not None and code & 0xFF in _SQLITE_CORRUPT)
        or getattr(cause, "sqlstate", None) in _POSTGRESQL_CORRUPT
        # Invalid text: the driver's error has no code.
        or "Could not decode to UTF-8" in str(cause)
    )
    return one_line(error) if corrupt else None


def _cause(error: BaseException) -> BaseException:
    return getattr(error, "orig", None) or error
