"""What can go wrong between a client and its server, as types.

Every one is a `CedeClientError` with the server's typed reason, if it gave one, so that callers
branch on classes and codes and never on text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class CedeClientError(Exception):
    """Anything the library raises on its own account."""

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
        """The request this is about, where there is one."""
        return (self.reason or {}).get("request_id")


class NotConfigured(CedeClientError):
    """Nothing says which server to talk to, or with which token."""


class ServerUnreachable(CedeClientError):
    """No answer, or only "later", for as long as it is sensible to try."""


class NotTrusted(ServerUnreachable):
    """The server's certificate is vouched for by nobody that is trusted here."""


class ServerBroken(CedeClientError):
    """An answer that is not one of cede's: a failure inside the server, or something else listens
    there."""


class Unauthorized(CedeClientError):
    """The token is missing, unknown or revoked."""


class Forbidden(CedeClientError):
    """The token is good and its role or subjects do not allow this."""


class NotFound(CedeClientError):
    """Nothing visible to this token has that name or id."""


class Conflict(CedeClientError):
    """Well formed, and impossible in the present state."""


class Invalid(CedeClientError):
    """A value that can never be right; `field` says which."""


class Rejected(CedeClientError):
    """No pool can ever grant this, or its requester has no policy."""


class Preempted(CedeClientError):
    """The work was stopped for somebody else and its retries do not bring it back."""


class Cancelled(CedeClientError):
    """Somebody, or the end of its lease, cancelled the request."""


class Failed(CedeClientError):
    """The work itself failed for the last time."""


class LeaseLost(CedeClientError):
    """Renewals failed for longer than the lease: the units may be somebody else's by now."""


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
    """The error that a request's final status stands for; None while it has none."""
    kind_and_word = _ENDINGS.get(str(request.get("status")))
    if kind_and_word is None:
        return None
    kind, word = kind_and_word
    reason = request.get("reason") or {}
    text = reason.get("text") or word
    if kind is Failed and reason.get("code") == "lease_expired":
        kind = LeaseLost
    return kind(f"request {request.get('id')} was {word}: {text}", reason=reason)
