"""The requests that belong to this ZenML server.

The plug-in's token may see more than its ZenML server's users should touch: a caller of ZenML must
not release or renew requests that were submitted elsewhere. Those do not exist here.
"""

from __future__ import annotations

import threading
from typing import Any

from cede.client.errors import NotFound
from cede.integrations.zenml.line import Line
from cede.integrations.zenml.mapping import SERVER

# Renewals come every few seconds for each running step; beyond this many, some are looked up again.
KNOWN_MAX = 10_000


class Own:
    """Looks a request up once, then remembers it; labels never change."""

    def __init__(self, line: Line, server_id: str) -> None:
        self._line = line
        self._server_id = server_id
        self._known: set[str] = set()
        self._lock = threading.Lock()

    def note(self, request_id: str) -> None:
        with self._lock:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known.add(request_id)

    def check(self, request_id: str) -> None:
        """Raise `NotFound` unless the request belongs to this ZenML server."""
        if request_id not in self._known:
            self.get(request_id)

    def get(self, request_id: str) -> dict[str, Any]:
        found = self._line.get(request_id)
        if (found.get("labels") or {}).get(SERVER) != self._server_id:
            raise NotFound(f"this ZenML server has no request {request_id}")
        self.note(request_id)
        return found
