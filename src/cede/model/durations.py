"""Lengths of time as people write them: the one grammar of every option, file and setting.

A number is seconds. A text is a number of seconds too, or numbers with the units w, d, h, m and s,
largest first: `90`, `1.5h`, `1h30m`. Inside, every length is an integer of milliseconds.
"""

from __future__ import annotations

import re
from decimal import Decimal
from itertools import pairwise

from cede.model import bounds
from cede.model.errors import Invalid, quoted

EXAMPLE = "90, 90m or 1h30m"
_UNITS = {"w": 7 * 24 * 3600, "d": 24 * 3600, "h": 3600, "m": 60, "s": 1}
# ASCII only: Python's own parsers accept digits of every script.
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_PARTS = re.compile(r"(?:[0-9]+[wdhms])*[0-9]+(?:\.[0-9]+)?[wdhms]")
_PART = re.compile(r"([0-9.]+)([wdhms])")
# Longer texts are no times, and a bound keeps the arithmetic exact.
_LENGTH_MAX = 24


def parse_duration(value: object, field: str, *, most: int = bounds.DURATION_MAX) -> int:
    """Milliseconds from seconds or from a text such as `1h30m`, exact to the millisecond."""
    if not isinstance(value, str):
        return parse_instant(value, field, most=most)
    exact = _seconds_in(value)
    if exact is None:
        raise Invalid(field, f"must be a time such as {EXAMPLE}, not {quoted(value)}")
    return _milliseconds(exact, value, field, most)


def parse_instant(value: object, field: str, *, most: int = bounds.AMOUNT_MAX) -> int:
    """Milliseconds from a number of seconds on the server's clock."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise Invalid(field, f"must be a number of seconds, not {value!r:.80}")
    exact = Decimal(value if isinstance(value, int) else str(value))
    return _milliseconds(exact, value, field, most)


def seconds(milliseconds: int | None) -> int | float | None:
    """Seconds for people: an integer if they are whole, else a decimal fraction."""
    if milliseconds is None:
        return None
    whole, rest = divmod(milliseconds, 1000)
    return milliseconds / 1000 if rest else whole


def _seconds_in(text: str) -> Decimal | None:
    if len(text) > _LENGTH_MAX:
        return None
    if _NUMBER.fullmatch(text):
        return Decimal(text)
    if not _PARTS.fullmatch(text):
        return None
    parts = _PART.findall(text)
    sizes = [_UNITS[unit] for _, unit in parts]
    # `30m1h` and `1h1h` are typing errors more often than times.
    if any(later >= earlier for earlier, later in pairwise(sizes)):
        return None
    return sum((Decimal(number) * _UNITS[unit] for number, unit in parts), Decimal())


def _milliseconds(exact: Decimal, written: object, field: str, most: int) -> int:
    # Compared before it is multiplied or printed: both operations have bounds of their own.
    if not exact.is_finite() or not 0 <= exact <= most or exact * 1000 > most:
        raise Invalid(field, f"must be from 0 to {most // 1000} seconds, not {quoted(written)}")
    return int(exact * 1000)
