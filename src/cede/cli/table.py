"""A table of texts in so many columns of a terminal.

Columns that are too wide are narrowed, the widest first, and their texts continue on further lines.
It is written here because a library that draws tables takes longer to import than most commands
take to answer.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from unicodedata import combining, east_asian_width

GAP = "  "
# A column is not made narrower than this while another one is wider.
NARROWEST = 4


def render(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int,
    whole: Container[str] = (),
    rule: str = "─",
    bold: bool = False,
) -> Iterator[str]:
    """The lines of the table; columns in `whole` are never narrowed."""
    widths = [
        max(text_width(name), *(text_width(row[at]) for row in rows)) if rows else text_width(name)
        for at, name in enumerate(columns)
    ]
    _narrow(widths, [at for at, name in enumerate(columns) if name not in whole], width)
    for line in _lines(columns, widths):
        yield f"\x1b[1m{line}\x1b[0m" if bold else line
    yield GAP.join(rule * each for each in widths)
    for row in rows:
        yield from _lines(row, widths)


def _narrow(widths: list[int], narrowed: list[int], width: int) -> None:
    over = sum(widths) + len(GAP) * (len(widths) - 1) - width
    while over > 0 and narrowed:
        widest = max(narrowed, key=lambda at: widths[at])
        if widths[widest] <= NARROWEST:
            return  # the lines are too long then, and nothing is lost
        widths[widest] -= 1
        over -= 1


def _lines(texts: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    cells = [_folded(text, width) for text, width in zip(texts, widths, strict=True)]
    for number in range(max(len(each) for each in cells)):
        pieces = [each[number] if number < len(each) else "" for each in cells]
        padded = (
            piece + " " * (width - text_width(piece))
            for piece, width in zip(pieces, widths, strict=True)
        )
        yield GAP.join(padded).rstrip()


def _folded(text: str, width: int) -> list[str]:
    """The text in pieces of at most this width, cut at spaces where there are any."""
    pieces = []
    while text_width(text) > width:
        end = _fitting(text, width)
        space = text.rfind(" ", 1, end + 1)
        cut = space if space > 0 else end
        pieces.append(text[:cut].rstrip())
        text = text[cut:].lstrip()
    return [*pieces, text]


def _fitting(text: str, width: int) -> int:
    """How many characters of the text fit, at least one."""
    used = 0
    for at, char in enumerate(text):
        used += _char_width(char)
        if used > width:
            return max(at, 1)
    return len(text)


def text_width(text: str) -> int:
    """Columns of a terminal that the text takes."""
    return len(text) if text.isascii() else sum(map(_char_width, text))


def _char_width(char: str) -> int:
    if combining(char):
        return 0
    return 2 if east_asian_width(char) in "WF" else 1
