"""The terms on which a request waits and holds: its class, its tenant, its own bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cede.model import bounds
from cede.model.amounts import Amounts
from cede.model.fields import Count, Flag, Name, Quantities, Ratio, changed, declared
from cede.model.settings import parse_own

# Document 004's classes. The default is "normal".
CLASS_MIN, CLASS_MAX = 0, 10
CLASS_DEFAULT = 4


CLASS = Count(CLASS_MIN, CLASS_MAX, malformed=True)


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms that all independent tasks of a request share. `settings` are its own fair-share
    settings.
    """

    preemption_class: int = declared(
        CLASS, f"Its preemption class; {CLASS_DEFAULT} unless given.", CLASS_DEFAULT, name="class"
    )
    sensitive: bool = declared(
        Flag(), "Never stopped for anybody, where its policy allows it.", False
    )
    tenant: str = declared(Name(), "Whose it is, for quotas and accounts.", "")
    limit: Amounts = declared(
        Quantities(), "The most that all its tasks may hold together.", default_factory=dict
    )
    settings: Mapping[str, Any] = field(default_factory=dict)
    weight: float = declared(
        Ratio(bounds.WEIGHT_MIN, bounds.WEIGHT_MAX),
        "Its part of what its policy shares by weight, against its other requests.",
        1,
    )


# Shared by all requests with the usual terms, which are most.
USUAL = Terms()

# The fair-share settings that a request may set for itself, and only to be more modest.
OF_REQUEST = (
    "fair_share_starvation_timeout",
    "fair_share_starvation_tolerance",
    "non_preemptible_resource_usage_threshold",
)


def parse_terms(*, preemption_class: object = None, settings: object = None, **given: Any) -> Terms:
    """Terms from outside data, in the units that people write."""
    own = {}
    if settings is not None:
        own["settings"] = parse_own(settings, OF_REQUEST, "a request")
    return changed(USUAL, {"class": preemption_class, **given}, **own)
