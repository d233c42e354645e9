"""Whether a file that holds a secret is private, judged by its owner and its mode alone."""

from __future__ import annotations

_ROOT = 0
_OTHERS = 0o077
# A key that root keeps for a group of services, as Debian does and as Kubernetes mounts secrets.
_OTHERS_THAN_GROUP_READERS = 0o037


def is_private(mode: int, owner: int) -> bool:
    """Whether nobody but its owner may use the file; of a file of root its group may read it."""
    return not mode & (_OTHERS_THAN_GROUP_READERS if owner == _ROOT else _OTHERS)
