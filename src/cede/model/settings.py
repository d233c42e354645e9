"""What a pool may be told about how it decides. A preset is a full set; single ones may be
overridden.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from enum import StrEnum
from typing import Any

from cede.model import bounds
from cede.model.errors import Invalid, quoted


class Precedence(StrEnum):
    """Which comes first in standing: being inside one's share, or rank."""

    RIGHTS_FIRST = "rights_first"
    RANK_FIRST = "rank_first"


@dataclass(frozen=True, slots=True)
class Settings:
    """One pool's settings; durations in milliseconds (in seconds wherever people write them)."""

    precedence: Precedence = Precedence.RIGHTS_FIRST
    bypass_max: int = bounds.BYPASS_MAX_DEFAULT
    withhold_max: int = bounds.WITHHOLD_MAX_DEFAULT
    min_run: int = 0
    reclaim_min_run: int = 0
    grace: int = bounds.GRACE_DEFAULT

    def override(self, given: object, field: str = "settings") -> Settings:
        """These settings with some replaced by outside data; unknown or impossible ones are
        refused.
        """
        if not isinstance(given, Mapping):
            raise Invalid(field, "must be a map of settings")
        known = {each.name for each in fields(Settings)}
        for name in given:
            if name not in known:
                raise Invalid(
                    f"{field}.{name}", f"unknown setting; known are {', '.join(sorted(known))}"
                )
        return replace(self, **{name: _parse(name, value, field) for name, value in given.items()})

    def differences(self, base: Settings) -> dict[str, Any]:
        """What was overridden against `base`, in the units that people write."""
        return {
            each.name: self.shown(each.name)
            for each in fields(Settings)
            if getattr(self, each.name) != getattr(base, each.name)
        }

    def shown(self, name: str) -> Any:
        value = getattr(self, name)
        return (
            seconds(value) if name in DURATIONS else str(value) if name == "precedence" else value
        )


DURATIONS = frozenset({"withhold_max", "min_run", "reclaim_min_run", "grace"})


def _parse(name: str, value: object, field: str) -> Any:
    if name == "precedence":
        try:
            return Precedence(value)  # type: ignore[arg-type]
        except ValueError:
            known = " or ".join(Precedence)
            raise Invalid(f"{field}.precedence", f"must be {known}, not {value!r:.80}") from None
    if name in DURATIONS:
        return parse_duration(value, f"{field}.{name}")
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 1_000_000:
        raise Invalid(f"{field}.{name}", f"must be an integer from 0 to 1000000, not {value!r:.80}")
    return value


def parse_duration(value: object, field: str, *, most: int = bounds.DURATION_MAX) -> int:
    """Milliseconds from a number of seconds, exact to the millisecond."""
    return parse_instant(value, field, most=most)


def parse_instant(value: object, field: str, *, most: int = bounds.AMOUNT_MAX) -> int:
    """Milliseconds from a number of seconds on the one clock."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise Invalid(field, f"must be a number of seconds, not {value!r:.80}")
    # Compared before it is multiplied or printed: both have bounds of their own.
    exact = Decimal(value if isinstance(value, int) else str(value))
    if not exact.is_finite() or not 0 <= exact <= most or exact * 1000 > most:
        raise Invalid(field, f"must be from 0 to {most // 1000} seconds, not {quoted(value)}")
    return int(exact * 1000)


def seconds(milliseconds: int | None) -> int | float | None:
    """What people read: whole seconds as an integer, others as a decimal fraction."""
    if milliseconds is None:
        return None
    whole, rest = divmod(milliseconds, 1000)
    return milliseconds / 1000 if rest else whole
