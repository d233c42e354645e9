"""The form of a token: `cede_`, 256 random bits in base 62, and six characters of checksum (C3).

The checksum catches a mistyped or cut token before any lookup, and lets scanners tell a leaked
token from noise. The SHA-256 of the whole text is stored; slow hashes protect guessable secrets,
which this is not.
"""

from __future__ import annotations

import hashlib
import secrets
import zlib

PREFIX = "cede_"
SECRET_BITS = 256
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_BODY_LENGTH = 43  # the fewest base-62 digits that hold 256 bits
_CHECKSUM_LENGTH = 6  # the fewest that hold a CRC-32
LENGTH = len(PREFIX) + _BODY_LENGTH + _CHECKSUM_LENGTH


def new_token() -> tuple[str, str]:
    """Return a fresh secret, to be shown once, and the hash that is stored in its place."""
    body = _base62(secrets.randbits(SECRET_BITS), _BODY_LENGTH)
    secret = PREFIX + body + _checksum(body)
    return secret, hash_of(secret)


def well_formed(secret: str) -> bool:
    """Whether this can be a token of cede at all: prefix, length and checksum."""
    if len(secret) != LENGTH or not secret.startswith(PREFIX) or not secret.isascii():
        return False
    body = secret[len(PREFIX) : -_CHECKSUM_LENGTH]
    return secret[-_CHECKSUM_LENGTH:] == _checksum(body)


def hash_of(secret: str) -> str:
    """Return the stored form, by which a token is looked up: SHA-256 in hexadecimal."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode("ascii", "replace")), _CHECKSUM_LENGTH)


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))
