"""JSON as it stands in the rows."""

from __future__ import annotations

from typing import Any

import orjson

decode = orjson.loads


def encode(value: Any) -> str:
    """JSON of a value: words of closed sets as text, and any mapping as a map."""
    return orjson.dumps(value, dict).decode()
