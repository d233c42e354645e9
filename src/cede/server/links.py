"""Links that open the page: each holds a code that can be exchanged for its maker's token once, for
minutes.

A link stands in terminals, histories and messages, where a token must not. The code is of no use
once the page was opened by it, or a few minutes after it was made. Its token is in the memory of
this process alone, and gone when the process ends.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable

from cede.model.bounds import LINK_LIFE, LINKS_MAX, SECOND

_CODE_BYTES = 24


class Links:
    """Codes that were made and neither used nor forgotten yet. Threads may share it."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, str]] = {}  # by code: when it ends, and the token

    def make(self, token: str) -> str:
        """Return a new code for this token; beyond the bound the oldest is forgotten."""
        code = secrets.token_urlsafe(_CODE_BYTES)
        with self._lock:
            self._forget()
            while len(self._known) >= LINKS_MAX:
                del self._known[next(iter(self._known))]
            self._known[code] = (self._monotonic() + LINK_LIFE / SECOND, token)
        return code

    def take(self, code: str) -> str | None:
        """Return the token of a code, once; None if it has none."""
        with self._lock:
            self._forget()
            found = self._known.pop(code, None)
        return None if found is None else found[1]

    def _forget(self) -> None:
        now = self._monotonic()
        for code in [code for code, (until, _) in self._known.items() if until <= now]:
            del self._known[code]
