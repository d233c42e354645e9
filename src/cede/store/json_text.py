"""JSON as it stands in the rows."""

from __future__ import annotations

from typing import Any

import orjson

decode = orjson.loads


def encode(value: Any) -> str:
    return orjson.dumps(value).decode()
