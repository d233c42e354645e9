"""The exception of a problem in the HTTP API (RFC 9457).

Making an answer of it is elsewhere: a process that only reads and plans a snapshot finds problems
too, and need not load a web framework and a database for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TYPE_PREFIX = "urn:cede:problem:"
TITLES = {
    400: "The request cannot be read",
    401: "No valid token",
    403: "Not permitted",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict with the present state",
    413: "Too large",
    415: "Unsupported media type",
    421: "Wrong host",
    422: "Not acceptable as it is",
    429: "Too many requests",
    431: "Too large",
    500: "Internal error",
    503: "Not now",
    507: "No space",
}


class Problem(Exception):
    """An error of the HTTP API, ready to be shown."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        field: str | None = None,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.field = field
        self.headers = dict(headers or {})
        self.more = more

    def to_dict(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "type": TYPE_PREFIX + self.code,
            "title": TITLES.get(self.status, "Error"),
            "status": self.status,
            "detail": self.detail,
        }
        if self.field is not None:
            body["field"] = self.field
        return body | self.more
