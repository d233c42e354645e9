"""On what terms a request waits and holds: its class, whose tenant's it is, its own bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cede.model.amounts import Amounts, parse_amounts
from cede.model.errors import Malformed, quoted
from cede.model.settings import parse_flag, parse_own, parse_weight
from cede.model.subject import parse_name

# Document 004's classes. Who says nothing is "normal".
CLASS_MIN, CLASS_MAX = 0, 10
CLASS_DEFAULT = 4


@dataclass(frozen=True, slots=True)
class Terms:
    """`limit` bounds what all its tasks hold together; `settings` are its own fair-share ones, and
    `weight` its part of what its policy shares among its requests.
    """

    preemption_class: int = CLASS_DEFAULT
    sensitive: bool = False  # never stopped for anybody
    tenant: str = ""
    limit: Amounts = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    weight: float = 1


# Shared by all who say nothing: most requests.
USUAL = Terms()

# What of a fair-share pool's settings a request may set for itself, and only to be more modest.
OF_REQUEST = (
    "fair_share_starvation_timeout",
    "fair_share_starvation_tolerance",
    "non_preemptible_resource_usage_threshold",
)


def parse_terms(
    *,
    preemption_class: object = None,
    sensitive: object = None,
    tenant: object = None,
    limit: object = None,
    settings: object = None,
    weight: object = None,
) -> Terms:
    """Terms from outside data, in the units that people write."""
    made = Terms(
        preemption_class=(
            CLASS_DEFAULT if preemption_class is None else parse_class(preemption_class)
        ),
        sensitive=False if sensitive is None else parse_flag(sensitive, "sensitive"),
        tenant="" if tenant in (None, "") else parse_name(tenant, "tenant"),
        limit={} if limit is None else parse_amounts(limit, "limit"),
        settings={} if settings is None else parse_own(settings, OF_REQUEST, "a request"),
        weight=1 if weight is None else parse_weight(weight),
    )
    return USUAL if made == USUAL else made


def parse_class(value: object, field: str = "class") -> int:
    """Exactly an integer from 0 to 10: not a text, a fraction or a truth."""
    if isinstance(value, bool) or not isinstance(value, int) or not CLASS_MIN <= value <= CLASS_MAX:
        raise Malformed(
            field, f"must be an integer from {CLASS_MIN} to {CLASS_MAX}, not {quoted(value)}"
        )
    return value
