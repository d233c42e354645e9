"""What a call comes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class Away(Exception):
    """No answer came, and none will be waited for."""


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any

    @property
    def code(self) -> str:
        kind = self.body.get("type", "") if isinstance(self.body, dict) else ""
        return str(kind).rpartition(":")[2]
