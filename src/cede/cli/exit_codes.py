"""Exit codes, in one place. docs/reference/cli.md holds the same table."""

from __future__ import annotations

OK = 0
ERROR = 1
USAGE = 2
NOT_FOUND = 3
REFUSED = 4
CONFLICT = 5
UNREACHABLE = 6
UNAUTHORIZED = 7
PREEMPTED = 8
CANCELLED = 9
BROKEN = 10
# `cede run` exits with its command's own code, and like a shell with 128 + n for signal n.
SIGNAL_BASE = 128
INTERRUPTED = 130

# By class name, so that this module imports neither the client nor its HTTP library.
_BY_ERROR = {
    "NotFound": NOT_FOUND,
    "Rejected": REFUSED,
    "Conflict": CONFLICT,
    "ServerUnreachable": UNREACHABLE,
    "LeaseLost": UNREACHABLE,
    "Unauthorized": UNAUTHORIZED,
    "Forbidden": UNAUTHORIZED,
    "Preempted": PREEMPTED,
    "Cancelled": CANCELLED,
}


def of_error(error: BaseException) -> int:
    for kind in type(error).__mro__:
        if kind.__name__ in _BY_ERROR:
            return _BY_ERROR[kind.__name__]
    return ERROR


def of_command(exit_code: int) -> int:
    """Return a child's code as a shell tells it."""
    return exit_code if exit_code >= 0 else SIGNAL_BASE - exit_code
