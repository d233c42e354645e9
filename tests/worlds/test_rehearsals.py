"""Which passes need a rehearsal, on walks through the worlds."""

from __future__ import annotations

from random import Random
from unittest.mock import patch

import pytest

from cede.engine.steps import rehearsal

from .checks import Broken
from .draw import draw
from .explore import Search
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


def test_a_grant_that_is_undone_for_nothing_is_found() -> None:
    """The owner by amounts for which it was undone has nothing after all: a younger one does."""
    with (
        patch.object(rehearsal, "_undone_in_vain", lambda *_: {}),
        pytest.raises(Broken, match="lost it to nobody above it"),
    ):
        Search(draw(7000000198), 4_000).run()


def test_a_pass_that_would_have_needed_one_is_found() -> None:
    always = patch.object(rehearsal, "_is_in_order", lambda *_: True)
    with always, pytest.raises(Broken, match="without a rehearsal"):
        walked("mixed", 120)
