"""A changed copy is what the standard library makes of it."""

from __future__ import annotations

import dataclasses

import pytest

from cede.engine.lifecycle.commands import Submission
from cede.model.copying import maker, replace, stamp
from cede.model.request import Request
from cede.model.subject import Subject


@dataclasses.dataclass(frozen=True, slots=True)
class _Checked:
    amount: int
    name: str = ""

    def __post_init__(self) -> None:
        if self.amount < 0:
            raise ValueError("negative")


@pytest.mark.parametrize("kind", [Request, Submission])
def test_a_copy_is_that_of_the_standard_library(kind: type[Request]) -> None:
    request = kind("a", Subject("team", "red"), {"gpu": 1}, labels={"job": "x"})
    copy = replace(request, attempt=2, owner="red")
    assert copy == dataclasses.replace(request, attempt=2, owner="red")
    assert type(copy) is kind
    assert (request.attempt, request.owner) == (1, "")


@pytest.mark.parametrize("kind", [Request, Submission])
def test_a_copy_is_frozen_and_has_no_more_than_its_fields(kind: type[Request]) -> None:
    copy = replace(kind("a", Subject("team", "red"), {"gpu": 1}), attempt=2)
    for name in ("attempt", "more"):
        with pytest.raises((dataclasses.FrozenInstanceError, TypeError)):
            setattr(copy, name, 3)
    assert not hasattr(copy, "__dict__")


def test_a_name_that_is_no_field_is_refused() -> None:
    request = Request("a", Subject("team", "red"), {"gpu": 1})
    with pytest.raises(TypeError, match="no field 'atempt'"):
        replace(request, atempt=2)  # type: ignore[call-arg]


def test_a_class_that_checks_itself_still_does() -> None:
    assert replace(_Checked(1), amount=2) == _Checked(2)
    with pytest.raises(ValueError, match="negative"):
        replace(_Checked(1), amount=-1)


@pytest.mark.parametrize("kind", [Request, Submission])
def test_what_is_made_is_what_its_class_makes(kind: type[Request]) -> None:
    given = ("a", Subject("team", "red"), {"gpu": 1})
    made = maker(kind)(*given, attempt=2)
    assert made == kind(*given, attempt=2)
    assert type(made) is kind
    assert made.labels is not maker(kind)(*given).labels
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.attempt = 3  # type: ignore[misc]
    with pytest.raises(TypeError, match="atempt"):
        maker(kind)(*given, atempt=2)


def test_a_class_that_checks_itself_makes_its_values() -> None:
    with pytest.raises(ValueError, match="negative"):
        maker(_Checked)(-1)


@pytest.mark.parametrize("kind", [Request, Submission])
def test_what_is_stamped_is_a_copy_with_its_own_fields(kind: type[Request]) -> None:
    common, stamped = stamp(kind, ("labels", "id"))
    first = kind("a", Subject("team", "red"), {"gpu": 1}, owner="red", labels={"job": "x"})
    made = stamped(common(first), ({"job": "y"}, "b"))
    assert made == dataclasses.replace(first, id="b", labels={"job": "y"})
    assert type(made) is kind
    with pytest.raises((dataclasses.FrozenInstanceError, TypeError)):
        made.id = "c"  # type: ignore[misc]
