"""What is done when, as a table: instants, what is wanted, and what comes of it."""

from __future__ import annotations

from typing import Any

import pytest

from cede.launch.course import LEFTOVERS_GRACE, NOTHING_WANTED, Course

# Each step: instant, control, whether the work runs, and the order. Then the cause.
Step = tuple[float, dict[str, Any], bool, str]
STOP = {"stop": {"grace": 5}}
KILL = {"stop": {"grace": 0}}
LEASE = {"deadline": 10}

COURSES: dict[str, tuple[float | None, list[Step], str]] = {
    "nothing is wanted": (None, [(0, {}, True, "wait"), (1e9, {}, True, "wait")], "exited"),
    "it is asked once and killed after its grace": (
        None,
        [(1, STOP, True, "ask"), (2, STOP, True, "wait"), (6, STOP, True, "kill")],
        "killed"),
    "it obeys": (None, [(1, STOP, True, "ask"), (2, STOP, False, "wait")], "stopped"),
    "what it leaves has the rest of the grace": (
        None,
        [(1, STOP, True, "ask"), (2, STOP, False, "wait"), (5.9, STOP, False, "wait"),
         (6, STOP, False, "kill")],
        "stopped"),
    "a kill asks nobody": (None, [(1, KILL, True, "kill")], "killed"),
    "a shorter grace counts from the first order": (
        None,
        [(1, STOP, True, "ask"), (3, {"stop": {"grace": 2}}, True, "kill")],
        "killed"),
    "a longer grace comes too late": (
        None,
        [(1, STOP, True, "ask"), (2, {"stop": {"grace": 50}}, True, "wait"),
         (6, {"stop": {"grace": 50}}, True, "kill")],
        "killed"),
    "a kill is not taken back": (None, [(1, KILL, True, "kill"), (2, {}, True, "kill")], "killed"),
    "a lease asks nobody": (None, [(9.9, LEASE, True, "wait"), (10, LEASE, True, "kill")], "lease"),
    "a lease that ends during a grace ends it": (
        None,
        [(8, {**STOP, **LEASE}, True, "ask"), (10, {**STOP, **LEASE}, True, "kill")],
        "killed"),
    "a walltime asks first": (
        20,
        [(19, {}, True, "wait"), (20, {}, True, "ask"), (49, {}, True, "wait"),
         (50, {}, True, "kill")],
        "walltime"),
    "an end by itself is that, whatever comes after": (
        None,
        [(1, {}, False, "ask"), (1.5, STOP, False, "wait"),
         (1 + LEFTOVERS_GRACE, STOP, False, "kill")],
        "exited"),
    "leftovers may be killed sooner": (
        None, [(1, {}, False, "ask"), (1.5, KILL, False, "kill")], "exited"),
}  # fmt: skip


@pytest.mark.parametrize("case", COURSES)
def test_course(case: str) -> None:
    walltime, steps, cause = COURSES[case]
    course = Course(walltime, 30)
    for now, control, running, order in steps:
        assert course.next(now, {**NOTHING_WANTED, **control}, running) == order, now  # type: ignore[typeddict-item]
    assert course.cause == cause


def test_it_wakes_for_whatever_comes_first() -> None:
    course = Course(20, 30)
    wanted: Any = {**NOTHING_WANTED, "deadline": 10}
    assert course.wakes_at(0, wanted, 0.2) == 0.2
    assert course.wakes_at(9.9, wanted, 0.2) == 10
    assert course.wakes_at(10, wanted, 0.2) == 10.2
    assert course.wakes_at(19.9, wanted, 0.2) == 20
