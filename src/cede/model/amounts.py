"""Integers by key, and the little arithmetic that everything else is counted with.

An `Amounts` is a plain dict that nobody changes after it was made. Keys that are absent mean zero;
a made value holds no zeros unless it came from a policy's limit, where 0 means "none of this".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from cede.model import bounds
from cede.model.errors import Invalid, quoted

Amounts = Mapping[str, int]

# Document 002: a pool without a row for one of these does not limit it; any other missing row is
# zero.
UNBOUNDED_WHEN_ABSENT = frozenset({"mcpu", "memory_mb", "step_run"})

_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_.\-/]{0,62}")


def parse_amounts(
    value: object, field: str, *, least: int = 0, empty: bool = True
) -> dict[str, int]:
    """Turn outside data into amounts, or say which key is wrong and why."""
    if not isinstance(value, Mapping):
        raise Invalid(field, "must be a map from resource key to integer, such as {gpu: 8}")
    if not value and not empty:
        raise Invalid(field, "must name at least one resource key, such as {gpu: 8}")
    if len(value) > bounds.KEYS_MAX:
        raise Invalid(field, f"has {len(value)} keys; at most {bounds.KEYS_MAX}")
    return {
        parse_key(key, field): parse_amount(amount, f"{field}.{key}", least)
        for key, amount in value.items()
    }


def parse_key(key: object, field: str) -> str:
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise Invalid(
            field,
            f"{str(key)[:80]!r} is not a resource key: a letter, then at most "
            f"{bounds.KEY_LENGTH_MAX - 1} letters, digits or _ . - /",
        )
    return key


def parse_amount(amount: object, field: str, least: int = 0) -> int:
    if isinstance(amount, bool) or not isinstance(amount, int):
        raise Invalid(field, f"must be an integer, not {amount!r:.80}")
    if not least <= amount <= bounds.AMOUNT_MAX:
        raise Invalid(field, f"must be from {least} to {bounds.AMOUNT_MAX}, not {quoted(amount)}")
    return amount


def plus(a: Amounts, b: Amounts) -> dict[str, int]:
    total = dict(a)
    for key, amount in b.items():
        total[key] = total.get(key, 0) + amount
    return total


def total(many: Iterable[Amounts]) -> dict[str, int]:
    result: dict[str, int] = {}
    for amounts in many:
        add_to(result, amounts)
    return result


def add_to(counter: dict[str, int], amounts: Amounts) -> None:
    """Count `amounts` into a mutable counter."""
    for key, amount in amounts.items():
        counter[key] = counter.get(key, 0) + amount


def take_from(counter: dict[str, int], amounts: Amounts) -> None:
    """Count `amounts` out of a mutable counter; the other half of `add_to`."""
    for key, amount in amounts.items():
        left = counter[key] - amount
        if left:
            counter[key] = left
        else:
            del counter[key]


def within(demand: Amounts, room: Amounts) -> bool:
    """Whether `demand` is at most `room` in every key that `room` names and the demand needs."""
    for key, amount in demand.items():  # noqa: SIM110 - the hottest loop; a generator costs double
        if amount and amount > room.get(key, amount):
            return False
    return True


def show(amounts: Amounts) -> str:
    """`2 gpu, 4000 mcpu`; `nothing` when empty."""
    return ", ".join(f"{amount} {key}" for key, amount in sorted(amounts.items())) or "nothing"
