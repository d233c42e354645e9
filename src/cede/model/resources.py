"""The resources that a pipeline step declares, and the amounts that they count as (document 001).

`ResourceSettings` is the declaration; `request_amounts` is the one place that turns it into keys
and integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from cede.model.amounts import (
    MEMORY,
    Amounts,
    parse_amount,
    parse_amounts,
    parse_memory,
    parse_processors,
)
from cede.model.errors import Invalid, choices

STEP_RUN = "step_run"


@dataclass(frozen=True, slots=True)
class ResourceSettings:
    """The needs of one step. An unset field asks for nothing; a step may be preempted by
    default.
    """

    gpu_count: int | None = None
    cpu_count: int | Decimal | float | str | None = None
    memory: str | None = None
    pool_resources: Amounts = field(default_factory=dict)
    preemptible: bool = True

    def __post_init__(self) -> None:
        if self.gpu_count is not None:
            parse_amount(self.gpu_count, "gpu_count")
        if self.cpu_count is not None:
            parse_processors(self.cpu_count)
        if self.memory is not None:
            parse_memory(self.memory)
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
            known = choices(unknown[0], cls.__dataclass_fields__)
            raise Invalid(f"{field_name}.{unknown[0]}", f"unknown field; {known}")
        try:
            return cls(**value)
        except Invalid as error:
            raise Invalid(f"{field_name}.{error.field}", error.problem) from None


def request_amounts(settings: ResourceSettings) -> dict[str, int]:
    """The amounts that a step asks for: custom keys, overridden by typed fields, and one step
    slot.
    """
    amounts = {key: amount for key, amount in settings.pool_resources.items() if amount}
    if settings.gpu_count is not None:
        amounts.pop("gpu", None)
        if settings.gpu_count:
            amounts["gpu"] = settings.gpu_count
    if settings.cpu_count is not None:
        _set_positive(amounts, "mcpu", parse_processors(settings.cpu_count))
    if settings.memory is not None:
        _set_positive(amounts, MEMORY, parse_memory(settings.memory))
    amounts[STEP_RUN] = 1
    return amounts


def _set_positive(amounts: dict[str, int], key: str, amount: int) -> None:
    amounts.pop(key, None)
    if amount:
        amounts[key] = amount
