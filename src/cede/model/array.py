"""Arrays: tasks that differ only in their number, submitted as one.

`0-99` are a hundred tasks, `0-90:10` every tenth number, `1,3,5-9` a list; `%10` behind it lets at
most ten of them run at once. The text is kept in one normal form, so that equal arrays compare
equal. A task is called by the id of its array, an underscore and its number: `ID_7`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from cede.model import bounds
from cede.model.errors import Invalid, quoted

_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")
_TASK = re.compile(r"(.+)_(\d{1,9})")
_EXAMPLE = "such as 0-99, 1,3,5-9 or 0-90:10, and %10 behind it for at most 10 at once"


class Array(NamedTuple):
    numbers: tuple[int, ...]  # ascending
    at_once: int | None  # None: as many as fit

    @property
    def text(self) -> str:
        """The normal form, in which the array is kept and shown."""
        behind = "" if self.at_once is None else f"%{self.at_once}"
        return shown_numbers(self.numbers) + behind


@lru_cache(maxsize=1024)
def parse_array(text: str, field: str = "array") -> Array:
    """The array that a text describes; `Invalid` says what is wrong."""
    if len(text) > bounds.ARRAY_LENGTH_MAX:
        raise Invalid(field, f"must be at most {bounds.ARRAY_LENGTH_MAX} characters")
    listed, percent, most = text.replace(" ", "").partition("%")
    numbers: set[int] = set()
    for part in listed.split(","):
        numbers.update(_range(part, field))
        if len(numbers) > bounds.PARTS_MAX:
            raise Invalid(field, f"must be at most {bounds.PARTS_MAX} tasks")
    return Array(tuple(sorted(numbers)), _at_once(most, field) if percent else None)


def array_of(tasks: int) -> Array:
    """An array of this many tasks, numbered from 0."""
    return Array(tuple(range(tasks)), None)


def _range(part: str, field: str) -> range:
    found = _PART.fullmatch(part)
    if found is None:
        raise Invalid(field, f"{quoted(part)} is no number and no range; write {_EXAMPLE}")
    first, last, step = (None if each is None else int(each) for each in found.groups())
    assert first is not None
    if last is None:
        last = first
    if last < first:
        raise Invalid(field, f"the range {part} ends before it begins")
    if step == 0:
        raise Invalid(field, f"the range {part} has the step 0; it must be at least 1")
    if last > bounds.ARRAY_NUMBER_MAX:
        most = bounds.ARRAY_NUMBER_MAX
        raise Invalid(field, f"numbers of tasks are at most {most}, not {last}")
    found_range = range(first, last + 1, step or 1)
    if len(found_range) > bounds.PARTS_MAX:
        raise Invalid(
            field, f"must be at most {bounds.PARTS_MAX} tasks, and {part} are {len(found_range)}"
        )
    return found_range


def _at_once(most: str, field: str) -> int:
    if not re.fullmatch(r"\d{1,9}", most) or not 1 <= int(most) <= bounds.PARTS_MAX:
        wanted = f"a number from 1 to {bounds.PARTS_MAX}"
        raise Invalid(field, f"behind % stands how many may run at once: {wanted}")
    return int(most)


def shown_numbers(numbers: tuple[int, ...]) -> str:
    """Numbers as people write them: 0-3,7."""
    parts: list[list[int]] = []
    for each in numbers:
        if parts and each == parts[-1][1] + 1:
            parts[-1][1] = each
        else:
            parts.append([each, each])
    stepped = _stepped(numbers)
    shown = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
    return stepped if stepped and len(stepped) < len(shown) else shown


def _stepped(numbers: tuple[int, ...]) -> str:
    """The numbers as one range with a step; empty if they are none."""
    if len(numbers) < 3:
        return ""
    step = numbers[1] - numbers[0]
    whole = tuple(range(numbers[0], numbers[-1] + 1, step))
    return f"{numbers[0]}-{numbers[-1]}:{step}" if whole == numbers else ""


def task_ref(array_id: str, number: int) -> str:
    """The name of one task of an array."""
    return f"{array_id}_{number}"


def split_task(ref: str) -> tuple[str, int] | None:
    """The array and the number in a reference to one task; None if it is no such reference."""
    found = _TASK.fullmatch(ref)
    return None if found is None else (found[1], int(found[2]))
