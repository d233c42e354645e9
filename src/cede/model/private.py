"""Whether a file that holds a secret is private, judged by its owner and mode alone."""

from __future__ import annotations

_ROOT = 0
_OTHERS = 0o077
# A key file of root that a group of services may read, as Debian and Kubernetes set it up.
_OTHERS_THAN_GROUP_READERS = 0o037


def is_private(mode: int, owner: int) -> bool:
    """Whether only its owner may use the file; a file of root may also be read by its group."""
    return not mode & (_OTHERS_THAN_GROUP_READERS if owner == _ROOT else _OTHERS)
