"""Logs in the ZenML server why a request waits, for which request and by which rule it is
stopped, and why it is rejected. Each replica logs each message once.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from cede.integrations.zenml import mapping

log = logging.getLogger(__name__)

# The number of requests whose last message is remembered; an older one's may be logged again.
REMEMBERED_MAX = 10_000

_SAID = {
    "queued": (logging.INFO, "waits"),
    "suspended": (logging.INFO, "waits"),
    "preempting": (logging.WARNING, "is told to stop"),
    "preempted": (logging.WARNING, "was stopped"),
    "cancelled": (logging.WARNING, "was cancelled"),
    "rejected": (logging.ERROR, "is rejected"),
}


class Told:
    """The last message of each request."""

    def __init__(self) -> None:
        self._last: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def tell(self, request: Mapping[str, Any]) -> None:
        """Log the state of a request if it is new."""
        if str(request["status"]) not in _SAID:
            return
        level, word = _SAID[str(request["status"])]
        text = f"{word}: {mapping.reason_of(request) or 'its turn has not come'}"
        if request["status"] == "preempting" and (
            rule := (request.get("reason") or {}).get("code")
        ):
            text += f" (rule: {rule})"
        if not self._is_new(str(request["id"]), text):
            return
        labels = request.get("labels") or {}
        log.log(
            level,
            "step %s of run %s, request %s, %s",
            labels.get("step"),
            labels.get("run"),
            request["id"],
            text,
        )

    def _is_new(self, request_id: str, text: str) -> bool:
        with self._lock:
            before = self._last.pop(request_id, None)
            self._last[request_id] = text
            if len(self._last) > REMEMBERED_MAX:
                self._last.popitem(last=False)
        return before != text
