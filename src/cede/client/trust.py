"""Certificates that no authority vouches for: those that a server shows, and trust by a
fingerprint."""

from __future__ import annotations

import hashlib
import re
import socket
import ssl
from typing import Any

from cede.client.errors import NotConfigured

_DIGITS = re.compile(r"[0-9a-f]{64}")
_PREFIX = "sha256:"


def fingerprint(der: bytes) -> str:
    return _PREFIX + hashlib.sha256(der).hexdigest()


def parse_fingerprint(text: str) -> str:
    """Parse a fingerprint as `fingerprint` or `openssl x509 -fingerprint -sha256` writes it."""
    digits = text.strip().lower().rpartition("=")[2].removeprefix(_PREFIX).replace(":", "")
    if not _DIGITS.fullmatch(digits):
        raise NotConfigured(f"{text!r:.100} is no fingerprint: {_PREFIX} and 64 hexadecimal digits")
    return _PREFIX + digits


def unverified() -> ssl.SSLContext:
    """Return a context for looking at a certificate; never for sending anything."""
    made = ssl.create_default_context()
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    return made


def chain(made: socket.socket) -> list[bytes]:
    """Return the certificates that the server shows, its own first."""
    asked: Any = getattr(made, "get_unverified_chain", None)
    if asked is not None:
        return list(asked())
    # Before Python 3.13 only the private inner object has it.
    inner: Any = getattr(made, "_sslobj", None)
    found = inner.get_unverified_chain() if hasattr(inner, "get_unverified_chain") else None
    if found:
        return [ssl.PEM_cert_to_DER_cert(each.public_bytes()) for each in found]
    own: bytes | None = made.getpeercert(binary_form=True)  # type: ignore[attr-defined]
    assert own is not None, "a server without a certificate does not get through a handshake"
    return [own]


def certificate(shown: list[bytes], wanted: str) -> str:
    """Return as text the shown certificate that has the wanted fingerprint."""
    for each in shown:
        if fingerprint(each) == parse_fingerprint(wanted):
            return ssl.DER_cert_to_PEM_cert(each)
    raise NotConfigured(
        f"the server shows another certificate: its fingerprint is {fingerprint(shown[-1])}",
        fix="somebody may stand between you and the server: ask whoever runs it",
    )
