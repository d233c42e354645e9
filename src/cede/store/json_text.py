"""JSON as it stands in the rows."""

from __future__ import annotations

from typing import Any

import orjson

decode = orjson.loads


def encode(value: Any) -> str:
    """Words of closed sets are written as text, and whatever maps names as a map."""
    return orjson.dumps(value, dict).decode()
