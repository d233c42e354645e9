"""How properties are searched: the same examples each time where they gate, others elsewhere.

A run that decides about a change must not be red for what the change did not do, so under CI
examples are repeatable. Everywhere else each run tries others. `PROPERTY_TIMES` says how many times
as many as a test's own settings: 20 for a search, which tries new ones in CI too, and 0.2 in the
quick loop. What a test's own settings say of the rest does not count.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings


def in_ci(environ: Mapping[str, str] = os.environ) -> bool:
    return environ.get("CI", "").lower() not in ("", "0", "false")


@dataclass(frozen=True)
class Properties:
    repeatable: bool
    times: float = 1

    @classmethod
    def of(cls, environ: Mapping[str, str] = os.environ) -> Properties:
        """Who asks for more examples asks for new ones, in CI too."""
        times = float(environ.get("PROPERTY_TIMES", "1"))
        return cls(repeatable=in_ci(environ) and times <= 1, times=times)

    def examples(self, own: int) -> int:
        """How many are tried where a test says `own`."""
        return max(1, round(own * self.times))

    def load(self) -> None:
        """For everything that states nothing else; before any test module is imported."""
        settings.register_profile(
            "cede",
            # On a busy machine both would fail tests for the machine's slowness.
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
            derandomize=self.repeatable,
            print_blob=True,
        )
        settings.load_profile("cede")

    def hold_for(self, items: Iterable[pytest.Item]) -> None:
        """Also for tests with settings of their own."""
        # Each function once: one that has parameters is several items.
        for test in {_function(each) for each in items if isinstance(each, pytest.Function)}:
            if is_hypothesis_test(test):
                self.hold_for_test(test)

    def hold_for_test(self, test: Any) -> None:
        # A second decorator is refused, so this goes the way of hypothesis' own plug-in for pytest.
        own = test._hypothesis_internal_use_settings
        test._hypothesis_internal_use_settings = settings(
            own,
            max_examples=self.examples(own.max_examples),
            deadline=None,
            derandomize=self.repeatable,
        )


def _function(item: pytest.Function) -> Callable[..., Any]:
    return getattr(item.obj, "__func__", item.obj)
