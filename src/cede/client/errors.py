"""Errors between a client and its server, as types.

Every one is a `CedeClientError` with the server's typed reason, if it gave one, so that callers
branch on classes and codes and never on text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class CedeClientError(Exception):
    """Any error that the library itself raises."""

    def __init__(
        self,
        message: str,
        *,
        reason: Mapping[str, Any] | None = None,
        fix: str = "",
        status: int | None = None,
        code: str = "",
        field: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = dict(reason) if reason else None
        self.fix = fix or str((reason or {}).get("fix", ""))
        self.status = status
        # The reason's code says more than the problem's, which is "refused" for all of them.
        self.code = str((reason or {}).get("code", "")) or code
        self.field = field

    @property
    def request_id(self) -> str | None:
        """The request that the error is about, or None."""
        return (self.reason or {}).get("request_id")


class NotConfigured(CedeClientError):
    """No server is configured, or no token for it."""


class ServerUnreachable(CedeClientError):
    """No answer, or only "later", after as many tries as are sensible."""


class NotTrusted(ServerUnreachable):
    """The server's certificate is vouched for by no authority that is trusted here."""


class ServerBroken(CedeClientError):
    """An answer that is not cede's: the server failed, or another program listens there."""


class Unauthorized(CedeClientError):
    """The token is missing, unknown or revoked."""


class Forbidden(CedeClientError):
    """The token is valid, and its role or subjects do not allow the call."""


class NotFound(CedeClientError):
    """Nothing visible to this token has that name or id."""


class Conflict(CedeClientError):
    """The call is well formed, and impossible in the present state."""


class Invalid(CedeClientError):
    """A value that can never be right; `field` names it."""


class Rejected(CedeClientError):
    """No pool can ever grant the request, or its requester has no policy."""


class Preempted(CedeClientError):
    """The work was stopped for another request, and no retry is left."""


class Cancelled(CedeClientError):
    """The request was cancelled by a caller or by the end of its lease."""


class Failed(CedeClientError):
    """The work itself failed for the last time."""


class LeaseLost(CedeClientError):
    """Renewals failed for longer than the lease: the units may be granted to others by now."""


class WaitTimeout(CedeClientError):
    """The request was not granted within the time its caller was ready to wait."""


_ENDINGS: dict[str, tuple[type[CedeClientError], str]] = {
    "rejected": (Rejected, "rejected"),
    "preempted": (Preempted, "preempted"),
    "cancelled": (Cancelled, "cancelled"),
    "failed": (Failed, "failed"),
    "released": (Cancelled, "released by somebody else"),
}


def ending(request: Mapping[str, Any]) -> CedeClientError | None:
    """Return the error for a request's final status; None while it has none."""
    kind_and_word = _ENDINGS.get(str(request.get("status")))
    if kind_and_word is None:
        return None
    kind, word = kind_and_word
    reason = request.get("reason") or {}
    text = reason.get("text") or word
    if kind is Failed and reason.get("code") == "lease_expired":
        kind = LeaseLost
    return kind(f"request {request.get('id')} was {word}: {text}", reason=reason)
