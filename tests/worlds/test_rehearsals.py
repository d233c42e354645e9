"""Which passes need a rehearsal, on walks through the worlds."""

from __future__ import annotations

from random import Random
from unittest.mock import patch

import pytest

from cede.engine.steps import rehearsal

from .checks import Broken
from .rehearsal_checks import Kept, checked_rehearsals
from .walk import walk

STEPS = 12


def walked(kind: str, walks: int) -> Kept:
    with checked_rehearsals() as kept:
        for seed in range(walks):
            rng, one = Random(seed), walk(kind, seed)
            for _ in range(STEPS):
                one.go([rng.randrange(1 << 16)])
    return kept


@pytest.mark.parametrize("kind", ["quota", "trees", "mixed"])
def test_what_follows_the_order_of_standing_needs_no_rehearsal(kind: str) -> None:
    kept = walked(kind, 120)
    assert kept.without and kept.rehearsed, kept


def test_a_pass_that_would_have_needed_one_is_found() -> None:
    always = patch.object(rehearsal, "_is_in_order", lambda *_: True)
    with always, pytest.raises(Broken, match="without a rehearsal"):
        walked("mixed", 120)
