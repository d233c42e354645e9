"""The type of an answer as JSON."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
