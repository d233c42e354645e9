"""The type of an answer before it is written out."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
