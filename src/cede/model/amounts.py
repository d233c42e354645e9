"""Amounts: integers by resource key, their grammar and their arithmetic.

An `Amounts` is a plain dict that is never changed after it was made. An absent key means zero. A
new value holds no zeros, except in a policy's limit, where 0 means "none of this key".

The parsers here are the one grammar of every option and file: a map, or the text `gpu=8,mcpu=4000`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from cede.model import bounds
from cede.model.errors import Invalid, quoted

Amounts = Mapping[str, int]

# Document 002: a pool that has no row for one of these does not limit it; any other missing row is
# zero.
UNBOUNDED_WHEN_ABSENT = frozenset({"mcpu", "memory_mb", "step_run"})

MEMORY = "memory_mb"
EXAMPLE = "gpu=8,mcpu=4000 or {gpu: 8}"
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_.\-/]{0,62}")
# ASCII only, here and below: Python's own parsers accept digits of every script, and underscores.
_INTEGER = re.compile(r"-?[0-9]{1,40}")
_PROCESSORS = re.compile(r"[0-9.eE+-]{1,40}")
_SIZE = re.compile(r"([0-9]{1,18})([KMGTP])(i?)B")
_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_MEGABYTE = 10**6


def parse_amounts(
    value: object, field: str, *, least: int = 0, empty: bool = True
) -> dict[str, int]:
    """Parse amounts from outside data; `Invalid` names the key that is wrong, and why."""
    if isinstance(value, str):
        value = _pairs(value, field)
    if not isinstance(value, Mapping):
        raise Invalid(field, f"must be integers by resource key, such as {EXAMPLE}")
    if not value and not empty:
        raise Invalid(field, "must name at least one resource key, such as {gpu: 8}")
    if len(value) > bounds.KEYS_MAX:
        raise Invalid(field, f"has {len(value)} keys; at most {bounds.KEYS_MAX}")
    return {
        parse_key(key, field): parse_amount(_counted(key, amount), f"{field}.{key}", least)
        for key, amount in value.items()
    }


def _pairs(text: str, field: str) -> dict[str, object]:
    """The keys and values of `KEY=N,KEY=N`; each key once."""
    found: dict[str, object] = {}
    for each in text.split(","):
        key, equals, amount = (part.strip() for part in each.partition("="))
        if not equals or not key or not amount:
            raise Invalid(field, f"must be KEY=N, such as {EXAMPLE}, not {text!r:.80}")
        if key in found:
            raise Invalid(field, f"{key:.80} is there twice")
        found[key] = int(amount) if _INTEGER.fullmatch(amount) else amount
    return found


def _counted(key: object, amount: object) -> object:
    """The amount of a key; memory may be written with its unit: `memory_mb: 16GiB`."""
    if key == MEMORY and isinstance(amount, str) and _SIZE.fullmatch(amount):
        return parse_memory(amount, MEMORY)
    return amount


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


def parse_memory(memory: object, field: str = "memory") -> int:
    """Decimal megabytes, rounded up: "16GiB" is 17180."""
    match = _SIZE.fullmatch(memory) if isinstance(memory, str) else None
    if match is None:
        raise Invalid(
            field,
            "must be a whole number and a unit from KB, KiB, MB, MiB … PB, PiB, such as 16GiB, "
            f"not {memory!r:.80}",
        )
    number, prefix, binary = match.groups()
    unit: int = (1024 if binary else 1000) ** _POWERS[prefix]
    megabytes = -(-int(number) * unit // _MEGABYTE)
    if megabytes > bounds.AMOUNT_MAX:
        raise Invalid(field, f"must be at most {bounds.AMOUNT_MAX} megabytes, not {memory}")
    return megabytes


def parse_processors(cpus: object, field: str = "cpu_count") -> int:
    """Thousandths of a processor, rounded up, from the number as it was written.

    Computed in decimals: binary floats make 2.007 processors 2008 milli-processors.
    """
    from decimal import ROUND_CEILING, Decimal, InvalidOperation  # rarely needed

    try:
        if isinstance(cpus, bool) or not isinstance(cpus, int | float | Decimal | str):
            raise TypeError
        if isinstance(cpus, str) and not _PROCESSORS.fullmatch(cpus):
            raise TypeError
        written = Decimal(cpus if isinstance(cpus, int) else str(cpus))
        if not written.is_finite():
            raise TypeError
    except (InvalidOperation, TypeError):
        raise Invalid(field, f"must be a number such as 2 or 0.5, not {cpus!r:.80}") from None
    # Compared before it is multiplied: the exponents of decimals are bounded too.
    if not 0 <= written <= bounds.AMOUNT_MAX or written * 1000 > bounds.AMOUNT_MAX:
        raise Invalid(field, f"must be from 0 to {bounds.AMOUNT_MAX // 1000}, not {quoted(cpus)}")
    return int((written * 1000).to_integral_value(ROUND_CEILING))


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


def total_of_many(many: Iterable[Amounts]) -> dict[str, int]:
    """The same for very many, most of which are the same few values: each is multiplied."""
    held = list(many)
    ids = [*map(id, held)]
    values = dict(zip(ids, held, strict=True))
    result: dict[str, int] = {}
    for which, times in Counter(ids).items():
        for key, amount in values[which].items():
            result[key] = result.get(key, 0) + times * amount
    return result


def add_to(counter: dict[str, int], amounts: Amounts) -> None:
    """Add `amounts` to a mutable counter."""
    for key, amount in amounts.items():
        counter[key] = counter.get(key, 0) + amount


def take_from(counter: dict[str, int], amounts: Amounts) -> None:
    """Subtract `amounts` from a mutable counter; the inverse of `add_to`."""
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
