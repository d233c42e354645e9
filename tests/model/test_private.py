"""Which files are private enough for a secret."""

from __future__ import annotations

import pytest

from cede.model.private import is_private


@pytest.mark.parametrize("owner", [0, 1000])
def test_nobody_but_the_owner_and_the_group_of_root(owner: int) -> None:
    readers = (0, 4) if owner == 0 else (0,)  # root keeps keys for a group of services
    for mode in range(0o1000):
        group, others = mode >> 3 & 7, mode & 7
        expected = others == 0 and group in readers
        assert is_private(0o100000 | mode, owner) is expected, oct(mode)
