"""One measured ratio, its bound, and how it is shown."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Figure:
    name: str
    value: float
    most: float | None = None
    least: float | None = None
    unit: str = ""
    detail: str = ""

    @property
    def good(self) -> bool:
        return (self.most is None or self.value <= self.most) and (
            self.least is None or self.value >= self.least
        )

    def __str__(self) -> str:
        bound = f"<= {self.most}" if self.most is not None else f">= {self.least}"
        mark = "ok  " if self.good else "MISS"
        return (
            f"{mark} {self.value:6.2f}{self.unit} ({bound}{self.unit})  {self.name}: {self.detail}"
        )


def in_a_process(measure: Callable[[], T]) -> T:
    """Measure in a fresh process, so that nothing measured before weighs in."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure)
