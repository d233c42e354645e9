"""The sealed position at which a page of a list ended.

A cursor names its list and the last place shown, and is sealed with a secret of this database: one
that was forged, changed or used for another list is refused.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

from cede.model.errors import Invalid

_SEAL = 16
_LENGTH_MAX = 1_000


class Cursors:
    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def make(self, list_: str, filters: Any, place: Any) -> str:
        """The cursor for what follows `place` in this list under these filters."""
        body = json.dumps([_digest(list_, filters), place], separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(self._seal(body) + body).decode().rstrip("=")

    def read(self, list_: str, filters: Any, cursor: str) -> Any:
        """The place in a cursor of this list under these filters."""
        try:
            if len(cursor) > _LENGTH_MAX:
                raise ValueError
            padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
            raw = base64.b64decode(padded, altchars=b"-_", validate=True)
        except (ValueError, UnicodeEncodeError):
            raise _refusal() from None
        seal, body = raw[:_SEAL], raw[_SEAL:]
        if not hmac.compare_digest(seal, self._seal(body)):
            raise _refusal()
        digest, place = json.loads(body)
        if digest != _digest(list_, filters):
            raise Invalid(
                "cursor", "belongs to another list, or to other filters; start without one"
            )
        return place

    def _seal(self, body: bytes) -> bytes:
        return hmac.digest(self._secret, body, "sha256")[:_SEAL]


def _digest(list_: str, filters: Any) -> str:
    text = json.dumps([list_, filters], separators=(",", ":"), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _refusal() -> Invalid:
    return Invalid("cursor", "is not one that this server gave; start without one")
