"""The presets: full sets of settings of the one engine. No other module of the engine names one."""

from __future__ import annotations

from cede.model.errors import Invalid
from cede.model.settings import OverLimit, Patience, Price, Settings, Share

DEFAULT = "quota"

PRESETS: dict[str, Settings] = {
    "quota": Settings(),
    "fair_share": Settings(
        share=Share.FAIR_SHARE,
        patience=Patience.STARVATION,
        price=Price.FEWEST,
        over_limit=OverLimit.PREEMPT,
    ),
}


def preset(name: object, field: str = "preset") -> Settings:
    if not isinstance(name, str) or name not in PRESETS:
        raise Invalid(field, f"must be one of {', '.join(PRESETS)}, not {name!r:.80}")
    return PRESETS[name]
