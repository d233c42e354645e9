"""From what a step declares to what is counted (document 001, primer).

`ResourceSettings` is what people write; `request_amounts` is the one place that turns it into keys
and integers. Processors are computed in decimals: binary floats make 2.007 processors 2008
milli-processors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal, InvalidOperation

from cede.model import bounds
from cede.model.amounts import Amounts, parse_amount, parse_amounts
from cede.model.errors import Invalid, quoted

STEP_RUN = "step_run"

_MEMORY = re.compile(r"([0-9]{1,18})([KMGTP])(i?)B")
_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_MEGABYTE = 10**6


@dataclass(frozen=True, slots=True)
class ResourceSettings:
    """What one step needs. Unset fields ask for nothing; it may be preempted by default."""

    gpu_count: int | None = None
    cpu_count: int | Decimal | float | str | None = None
    memory: str | None = None
    pool_resources: Amounts = field(default_factory=dict)
    preemptible: bool = True

    def __post_init__(self) -> None:
        if self.gpu_count is not None:
            parse_amount(self.gpu_count, "gpu_count")
        if self.cpu_count is not None:
            milli_cpus(self.cpu_count)
        if self.memory is not None:
            memory_megabytes(self.memory)
        parse_amounts(self.pool_resources, "pool_resources")
        if not isinstance(self.preemptible, bool):
            raise Invalid("preemptible", f"must be true or false, not {self.preemptible!r:.80}")

    @property
    def amounts(self) -> dict[str, int]:
        return request_amounts(self)

    @classmethod
    def parse(cls, value: object, field_name: str = "settings") -> ResourceSettings:
        """Read settings from outside data, refusing unknown keys."""
        if not isinstance(value, Mapping):
            raise Invalid(field_name, "must be a map, such as {gpu_count: 2}")
        unknown = sorted(str(key) for key in value if key not in cls.__dataclass_fields__)
        if unknown:
            known = ", ".join(cls.__dataclass_fields__)
            raise Invalid(f"{field_name}.{unknown[0]}", f"unknown field; known are {known}")
        try:
            return cls(**value)
        except Invalid as error:
            raise Invalid(f"{field_name}.{error.field}", error.problem) from None


def request_amounts(settings: ResourceSettings) -> dict[str, int]:
    """The amounts a step asks for: custom keys, overridden by typed fields, and one step slot."""
    amounts = {key: amount for key, amount in settings.pool_resources.items() if amount}
    if settings.gpu_count is not None:
        amounts.pop("gpu", None)
        if settings.gpu_count:
            amounts["gpu"] = settings.gpu_count
    if settings.cpu_count is not None:
        _set_positive(amounts, "mcpu", milli_cpus(settings.cpu_count))
    if settings.memory is not None:
        _set_positive(amounts, "memory_mb", memory_megabytes(settings.memory))
    amounts[STEP_RUN] = 1
    return amounts


def _set_positive(amounts: dict[str, int], key: str, amount: int) -> None:
    amounts.pop(key, None)
    if amount:
        amounts[key] = amount


def milli_cpus(cpus: int | Decimal | float | str) -> int:
    """Thousandths of a processor, rounded up, from the number as it was written."""
    try:
        if isinstance(cpus, bool):
            raise TypeError
        written = Decimal(cpus if isinstance(cpus, int) else str(cpus))
        if not written.is_finite():
            raise TypeError
    except (InvalidOperation, TypeError):
        raise Invalid("cpu_count", f"must be a number such as 2 or 0.5, not {cpus!r:.80}") from None
    # Compared before it is multiplied: an exponent has a bound of its own.
    if not 0 <= written <= bounds.AMOUNT_MAX or written * 1000 > bounds.AMOUNT_MAX:
        raise Invalid(
            "cpu_count", f"must be from 0 to {bounds.AMOUNT_MAX // 1000}, not {quoted(cpus)}"
        )
    return int((written * 1000).to_integral_value(ROUND_CEILING))


def memory_megabytes(memory: str) -> int:
    """Decimal megabytes, rounded up: "16GiB" is 17180."""
    match = _MEMORY.fullmatch(memory) if isinstance(memory, str) else None
    if match is None:
        raise Invalid(
            "memory",
            "must be a whole number and a unit from KB, KiB, MB, MiB … PB, PiB, such as 16GiB, "
            f"not {memory!r:.80}",
        )
    number, prefix, binary = match.groups()
    unit: int = (1024 if binary else 1000) ** _POWERS[prefix]
    megabytes = -(-int(number) * unit // _MEGABYTE)
    if megabytes > bounds.AMOUNT_MAX:
        raise Invalid("memory", f"must be at most {bounds.AMOUNT_MAX} megabytes, not {memory}")
    return megabytes
