"""Short forms of ids."""

from __future__ import annotations

from cede.model.ids import ambiguous, short_id, shorten
from cede.server.ids import new_id

ID = "0198c1d2-8b44-7a51-8c21-6f0d9b3c2a17"
FOREIGN = "6fa459ea-ee8a-4ca4-894e-db77e160355e"


def test_ids_of_one_minute_differ_in_their_short_forms() -> None:
    made = [new_id() for _ in range(100)]
    assert len({each[:8] for each in made}) <= 2
    assert len({short_id(each) for each in made}) == len(made)


def test_a_text_has_short_ids_and_leaves_those_of_others() -> None:
    text = f"request {ID} waits for {ID}.2 of run {FOREIGN}"
    assert shorten(text) == f"request 6f0d9b3c waits for 6f0d9b3c.2 of run {FOREIGN}"
    assert short_id("r1") == "r1"


def test_candidates_are_whole_where_short_forms_are_the_same() -> None:
    twin = "0198c1d2-8b45-7a51-8c21-6f0d9b3cffff"
    assert ambiguous("6f0d", [ID, twin]).problem.endswith(f"{ID}, {twin}")
    other = "0198c1d2-8b45-7a51-8c21-6f0dffffffff"
    assert ambiguous("6f0d", [ID, other]).problem.endswith("6f0d9b3c, 6f0dffff")
