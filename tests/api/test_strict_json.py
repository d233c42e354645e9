"""JSON that may be hostile means one thing or is refused (C10, bad-input matrix)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from cede.model import bounds
from cede.server.api import strict_json
from cede.server.api.problem import Problem

REFUSED = {
    "not JSON": (b"{", 400, "not JSON"),
    "empty": (b"", 400, "not JSON"),
    "trailing text": (b"{} {}", 400, "not JSON"),
    "not UTF-8": (b'{"a": "\xff"}', 400, "not UTF-8"),
    "a raw surrogate in UTF-8": (b'{"a": "\xed\xa0\x80"}', 400, "not UTF-8"),
    "a raw NUL": (b'{"a": "\x00"}', 400, "not JSON"),
    "duplicate keys": (b'{"gpu": 1, "gpu": 2}', 400, "'gpu' appears twice"),
    "duplicate keys far inside": (b'{"a": [{"b": 1, "b": 1}]}', 400, "'b' appears twice"),
    "NaN": (b'{"a": NaN}', 400, "NaN"),
    "Infinity": (b'{"a": Infinity}', 400, "Infinity"),
    "minus Infinity": (b'{"a": -Infinity}', 400, "-Infinity"),
    "a float beyond floats": (b'{"a": 1e400}', 422, "1e400"),
    "an endless integer": (b'{"a": ' + b"9" * 10_000 + b"}", 422, str(bounds.AMOUNT_MAX)),
    "an escaped NUL": (b'{"a": {"b": "\\u0000"}}', 422, "a.b"),
    "a lone surrogate": (b'{"a": ["\\ud800"]}', 422, "a.0"),
    "a lone surrogate in a key": (b'{"\\udc00": 1}', 422, "surrogate"),
    "too deep": (b"[" * 40 + b"]" * 40, 400, str(bounds.JSON_DEPTH_MAX)),
    "absurdly deep": (b"[" * 100_000 + b"]" * 100_000, 400, str(bounds.JSON_DEPTH_MAX)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name: str) -> None:
    body, status, said = REFUSED[name]
    with pytest.raises(Problem) as caught:
        strict_json.parse(body)
    assert caught.value.status == status
    assert said in caught.value.detail
    json.dumps(caught.value.to_dict()).encode("utf-8")


ACCEPTED = {
    "a pair of surrogates is one letter": (b'"\\ud83d\\ude00"', "😀"),
    "the largest integer": (b"9007199254740991", 2**53 - 1),
    "minus zero": (b"-0", 0),
    "right to left text": ('"\u202eabc"'.encode(), "\u202eabc"),
    "as deep as allowed": (b"[" * 32 + b"]" * 32, None),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepts(name: str) -> None:
    body, value = ACCEPTED[name]
    parsed = strict_json.parse(body)
    if value is not None:
        assert parsed == value


@pytest.mark.parametrize("declared", ["9999999999", None])
def test_a_large_body_is_refused_before_it_is_read_whole(declared: str | None) -> None:
    read = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal read
        for _ in range(1_000):
            read += 1
            yield b"x" * 1_000_000

    with pytest.raises(Problem) as caught:
        asyncio.run(strict_json.read_bounded(chunks(), declared, 8 * 2**20, None))
    assert caught.value.status == 413
    assert str(bounds.BODY_BYTES_MAX) in caught.value.detail
    assert read < 20


# A text, and how many values it is counted as: one, and one for each comma and bracket.
COUNTED = {
    b'{"a": "x,[{", "b": [1, 2], "c": {}}': 7,
    b'["\\"", "\\\\", ",", "\\\\\\","]': 5,
    b'{"a,": "\\u005c", "[": "]"}': 3,
    b'["' + b'\\",' * 100_000 + b'", 1]': 3,
}


@pytest.mark.parametrize("text", COUNTED, ids=range(len(COUNTED)))
@pytest.mark.parametrize("piece", [1, 2, 3, 7, 65_536])
def test_values_are_counted_while_they_come_and_strings_hold_none(text: bytes, piece: int) -> None:
    if len(text) // piece > 100_000:
        piece *= 1_000

    def read(most: int) -> bytes:
        async def chunks() -> AsyncIterator[bytes]:
            for at in range(0, len(text), piece):
                yield text[at : at + piece]

        return asyncio.run(strict_json.read_bounded(chunks(), None, 2**20, most))

    assert read(COUNTED[text]) == text
    with pytest.raises(Problem) as caught:
        read(COUNTED[text] - 1)
    assert caught.value.status == 413
