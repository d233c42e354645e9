"""Reading JSON that may be hostile: bounded in size and depth, and meaning one thing only.

Python's reader accepts what others do not: duplicate keys (the last wins), NaN, integers of any
length, lone surrogates. Each is refused here, so that no later line has to think of it (C10).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import AsyncIterator
from typing import Any, NoReturn

from cede.model import bounds
from cede.server.api.problem import Problem

# Digits of 2**53 - 1, and a sign. Longer ones never become integers.
_DIGITS_MAX = 17
_DIGITS_TOLD_MAX = 40


# To its end or to that of the piece, so that no quote inside it is ever looked at as a beginning.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)', re.DOTALL)
# Behind a piece: a string that goes on in the next one swallows it.
_END = b"\0"


async def read_bounded(
    chunks: AsyncIterator[bytes], declared: str | None, size_max: int, values_max: int | None
) -> bytes:
    """The whole body, or 413 as soon as it is known to be too large or to hold too many values."""
    if declared is not None and declared.isdecimal() and int(declared[:20]) > size_max:
        raise _too_large(size_max)
    counter = _Counter()
    parts: list[bytes] = []
    size = counted = 0
    at_most = 1  # as if there were no strings
    async for chunk in chunks:
        size += len(chunk)
        if size > size_max:
            raise _too_large(size_max)
        parts.append(chunk)
        at_most += _marks(chunk)
        if values_max is not None and at_most > values_max:
            values = max(map(counter.feed, parts[counted:]))
            counted = len(parts)
            if values > values_max:
                raise Problem(413, "too_large", f"the body has more than {values_max} values")
    return b"".join(parts)


def _marks(text: bytes) -> int:
    """The marks that begin a value: commas and brackets."""
    return text.count(b",") + text.count(b"[") + text.count(b"{")


class _Counter:
    """Counts the values of a JSON text that comes in pieces, without building any of them."""

    def __init__(self) -> None:
        self._values = 1
        self._open = b""  # the start of a string that goes on in the next piece

    def feed(self, piece: bytes) -> int:
        """How many values there are so far."""
        text = self._open + piece
        structure = _STRING.sub(b"", text + _END)
        if structure.endswith(_END):
            self._open = b""
        else:
            escapes = len(text) - len(text.rstrip(b"\\"))
            self._open = b'"' + b"\\" * (escapes % 2)
        self._values += _marks(structure)
        return self._values


def parse(body: bytes) -> Any:
    """The value of a JSON text; every oddity is a `Problem` that names it."""
    try:
        text = body.decode("utf-8")
        value = _DECODER.decode(text)
    except UnicodeDecodeError as error:
        raise _malformed(f"not UTF-8: byte {error.start} cannot be decoded") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise _malformed(f"not JSON: {error.msg} at {where}") from None
    except RecursionError:
        raise _too_deep() from None
    # A text with fewer brackets is not so deep.
    if body.count(b"{") + body.count(b"[") > bounds.JSON_DEPTH_MAX:
        _check_depth(value)
    # Raw NUL bytes are refused by the reader and raw surrogates by UTF-8: only escapes can make
    # them.
    if b"\\u" in body or b"\\U" in body:
        _check_strings(value, "")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise Problem(
                    400, "malformed", f"the key {key!r:.80} appears twice", field=key[:80]
                )
            seen.add(key)
    return result


def _constant(name: str) -> NoReturn:
    raise _malformed(f"{name} is not a JSON number")


def _integer(digits: str) -> int | float:
    if _DIGITS_MAX < len(digits) <= _DIGITS_TOLD_MAX:
        return float(digits)  # beyond every field, which refuses it by its name and range
    if len(digits) > _DIGITS_TOLD_MAX:
        raise Problem(
            422,
            "invalid",
            f"an integer of {len(digits)} digits: they go from -{bounds.AMOUNT_MAX} "
            f"to {bounds.AMOUNT_MAX}",
        )
    return int(digits)


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise Problem(422, "invalid", f"{text[:40]} is too large for a number")
    return number


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_constant, parse_int=_integer, parse_float=_float
)


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(bounds.JSON_DEPTH_MAX + 1):
        level = [
            inner
            for outer in level
            for inner in (
                outer.values() if type(outer) is dict else outer if type(outer) is list else ()
            )
            if type(inner) is dict or type(inner) is list
        ]
        if not level:
            return
    raise _too_deep()


def _check_strings(value: Any, place: str) -> None:
    if isinstance(value, str):
        if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
            detail = "holds a NUL character or half of a surrogate pair"
            raise Problem(422, "invalid", f"{place or 'body'}: {detail}", field=place or "body")
    elif isinstance(value, dict):
        for key, inner in value.items():
            _check_strings(key, place)
            _check_strings(inner, f"{place}.{key}" if place else key)
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            _check_strings(inner, f"{place}.{position}" if place else str(position))


def _malformed(detail: str) -> Problem:
    return Problem(400, "malformed", detail)


def _too_deep() -> Problem:
    return Problem(400, "malformed", f"nested deeper than {bounds.JSON_DEPTH_MAX} levels")


def _too_large(most: int) -> Problem:
    return Problem(413, "too_large", f"the body is larger than {most} bytes")
