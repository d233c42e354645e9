"""Tables for people: the only module that lays out rows.

Columns stand side by side as far as the terminal is wide; those that do not fit stand below their
row, indented, so that nothing is lost at 40 columns. Without a terminal a row is one line, whatever
its length: people filter it with other programs. Letters and a bold head only; no colour carries
meaning.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unicodedata import combining, east_asian_width

from cede.cli.printing import cell

Row = Mapping[str, Any]

_WIDTH_UNKNOWN = 80
_GAP = "  "
_INDENT = "    "
# A longer column of text is cut before a column is moved below its row.
_CUT = 16
# Never cut: it is there to be copied.
_WHOLE = ("id",)
# Sentences: whole beside the others, or below.
_SENTENCES = ("reason", "detail", "what")


def print_table(rows: Sequence[Row], columns: Sequence[str], *, wide: bool = False) -> None:
    on_terminal = sys.stdout.isatty()
    width = terminal_width() if on_terminal and not wide else None
    fancy = (sys.stdout.encoding or "").lower().startswith("utf")
    head, *lines = layout(rows, columns, width, cut="…" if fancy else "~")
    print(bold(head))
    for line in lines:
        print(line)


def terminal_width() -> int:
    """Return the width as shutil does, without its import of every kind of archive."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or _WIDTH_UNKNOWN
    except OSError:
        return _WIDTH_UNKNOWN


def bold(text: str) -> str:
    """Make text bold on a terminal that can, unless NO_COLOR says otherwise."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb"
    return text if plain or not sys.stdout.isatty() else f"\x1b[1m{text}\x1b[0m"


def layout(
    rows: Sequence[Row], columns: Sequence[str], width: int | None, *, cut: str = "…"
) -> list[str]:
    """Return the head and the rows as lines of at most `width` columns; None is as long as it
    takes."""
    texts = [{each: cell(row.get(each)) for each in columns} for row in rows]
    # A column that is empty in every row takes space from the others.
    named = [each for each in columns if each in _WHOLE or any(row[each] for row in texts)]
    widths = {each: max(_width(each), *(_width(row[each]) for row in texts)) for each in named}
    beside = _beside(named, widths, width)
    right = {each for each in beside if all(_is_number(row.get(each)) for row in rows)}
    below = [each for each in named if each not in beside]

    def line(cells: Callable[[str], str]) -> str:
        padded = [_pad(cells(each), widths[each], each in right, cut) for each in beside]
        return _GAP.join(padded).rstrip()

    lines = [line(str)]  # names as --columns takes them
    for row in texts:
        lines.append(line(row.__getitem__))
        lines += _indented(row, below, width)
    return lines


def _beside(columns: Sequence[str], widths: dict[str, int], width: int | None) -> list[str]:
    """Return the columns that stand side by side; lowers their widths where that is enough."""
    shown = list(columns)
    while width is not None and len(shown) > 1:
        if _total(shown, widths) <= width:
            break
        sentences = [each for each in shown if each in _SENTENCES]
        if not sentences:
            lower = {each: min(widths[each], _least(each)) for each in shown}
            if (over := _total(shown, widths) - width) > 0 and _total(shown, lower) <= width:
                _cut_longest(shown, widths, lower, over)
                break
        shown.remove(sentences[-1] if sentences else shown[-1])
    return shown


def _cut_longest(
    shown: Sequence[str], widths: dict[str, int], lower: dict[str, int], over: int
) -> None:
    """Shorten the widest columns by `over` letters in all."""
    for _ in range(over):
        longest = max(
            (each for each in shown if widths[each] > lower[each]), key=widths.__getitem__
        )
        widths[longest] -= 1


def _least(column: str) -> int:
    """Return how narrow a column may become."""
    return sys.maxsize if column in _WHOLE else max(_CUT, len(column))


def _total(columns: Sequence[str], widths: Mapping[str, int]) -> int:
    return sum(widths[each] for each in columns) + len(_GAP) * (len(columns) - 1)


def _indented(row: Mapping[str, str], columns: Sequence[str], width: int | None) -> list[str]:
    """Lay out the columns below a row: short values on one line, sentences on their own."""
    if not columns:
        return []
    from textwrap import wrap  # slow to import, and most rows fit

    short = [f"{each} {row[each]}" for each in columns if each not in _SENTENCES and row[each]]
    texts = [", ".join(short), *(row[each] for each in columns if each in _SENTENCES)]
    return [
        line
        for text in texts
        if text
        for line in wrap(
            text, width or sys.maxsize, initial_indent=_INDENT, subsequent_indent=_INDENT
        )
    ]


def _pad(text: str, width: int, right: bool, cut: str) -> str:
    if _width(text) > width:
        while _width(text) > width - 1:
            text = text[:-1]
        text += cut
    space = " " * (width - _width(text))
    return space + text if right else text + space


def _width(text: str) -> int:
    """Count columns of a terminal: some letters take two, marks none."""
    return sum(
        0 if combining(each) else 2 if east_asian_width(each) in "WF" else 1 for each in text
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
