"""The presets: full sets of settings of the one engine. No other module of the engine names one."""

from __future__ import annotations

from cede.model import bounds
from cede.model.errors import Invalid
from cede.model.settings import (
    OverLimit,
    Patience,
    Precedence,
    Price,
    QueueOrder,
    Rank,
    Settings,
    Share,
    VictimOrder,
)

DEFAULT = "quota"

PRESETS: dict[str, Settings] = {
    "quota": Settings(),
    "fair_share": Settings(
        share=Share.FAIR_SHARE,
        patience=Patience.STARVATION,
        rank=Rank.NONE,
        price=Price.FEWEST,
        over_limit=OverLimit.PREEMPT,
    ),
    "classes": Settings(
        precedence=Precedence.RANK_FIRST,
        rank=Rank.CLASS,
        order=QueueOrder.SCORE,
        bypass_max=0,
        price=Price.CHECKPOINT,
        victim_order=VictimOrder.PRICE,
        max_victims=3,
        value_bound=True,
        near_completion_threshold=5 * bounds.MINUTE,
        protect_unsaved=True,
        wait_first=True,
        broker=True,
    ),
}


def preset(name: object, field: str = "preset") -> Settings:
    if not isinstance(name, str) or name not in PRESETS:
        raise Invalid(field, f"must be one of {', '.join(PRESETS)}, not {name!r:.80}")
    return PRESETS[name]
