"""The tree of a pool as a table: one line an element, one bar a line.

A bar is the whole pool. It shows what is used, what is wanted beyond that, and where the fair share
ends, in letters that need no colour. A line never wraps: on 80 columns bars are shorter, and long
names are cut.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import click

from cede.cli.printing import cell

Json = dict[str, Any]

WIDTH_WITHOUT_TERMINAL = 100
_SATISFIED = 1e9  # of an element that is due nothing
_BAR = 20  # cells; fewer where the line is short
_BAR_MIN = 8
_NAME_MIN = 10


class Letters(NamedTuple):
    """The letters that bars are made of."""

    used: str
    wanted: str
    share: str
    more: str
    endless: str
    cut: str


FANCY = Letters("█", "░", "│", "»", "∞", "…")
PLAIN = Letters("#", "-", "|", ">", "inf", "~")


def print_shares(answer: Json) -> None:
    encoding = (sys.stdout.encoding or "").lower()
    width = shutil.get_terminal_size((WIDTH_WITHOUT_TERMINAL, 24)).columns
    for line in table(answer, width, FANCY if encoding.startswith("utf") else PLAIN):
        click.echo(line)


def table(answer: Json, width: int, letters: Letters) -> list[str]:
    """Return every pool with its tree, each line at most `width` wide."""
    lines: list[str] = []
    for pool in answer["pools"]:
        rows = [each for each in answer["elements"] if each["pool"] == pool["name"]]
        lines += [
            *([""] if lines else []),
            *_title(pool),
            *_tree(pool, rows, answer, letters, width),
        ]
    return [*lines, *_legend(letters)] if answer["elements"] else lines


def _title(pool: Json) -> list[str]:
    lines = [f"pool {pool['name']}: {cell(pool['capacity']) or 'nothing'}"]
    if not pool["in_force"]:
        lines.append("it decides by what is reserved; fair shares would be these")
    return lines


def _legend(letters: Letters) -> list[str]:
    return [
        "",
        f"{letters.used} used  {letters.wanted} wanted  {letters.share} fair share: "
        "of the whole pool, in its dominant key",
        "guar: guarantee; sat: used of its fair share; starving!: aggressively",
        "groups: non-preemptible/aggressively preemptible/preemptible allocations",
    ]


def _tree(
    pool: Json, rows: Sequence[Json], answer: Json, letters: Letters, width: int
) -> list[str]:
    if not rows:
        return ["nobody has a policy in it"]
    names = ["  " * each["depth"] + cell(each["name"]) for each in rows]
    keys = [each["dominant"] for each in rows] if len(pool["capacity"]) > 1 else []
    columns = [
        *([("key", keys, False)] if keys else []),
        ("guar", [_guarantee(each) for each in rows], True),
        ("weight", [_weight(each) for each in rows], True),
        ("sat", [_satisfied(each, letters) for each in rows], True),
        ("status", [_status(each, answer["now"]) for each in rows], False),
        ("groups", [_groups(each) for each in rows], True),
    ]
    beside = sum(_width(title, cells) + 2 for title, cells, _ in columns)
    longest = _width("element", names)
    cells = max(_BAR_MIN, min(_BAR, width - beside - min(longest, 2 * _NAME_MIN) - 4))
    longest = min(longest, max(_NAME_MIN, width - beside - cells - 4))
    bars = [_bar_of(each, cells, letters) for each in rows]
    head, tail = columns[:-3], columns[-3:]
    shown = [
        ("element", [_cut(each, longest, letters) for each in names], False),
        *head,
        ("used of fair share"[:cells], bars, False),
        *tail,
    ]
    padded = [_column(*each) for each in shown]
    return ["  ".join(line).rstrip()[:width] for line in zip(*padded, strict=True)]


def _column(title: str, cells: Sequence[str], right: bool) -> list[str]:
    width = _width(title, cells)
    return [each.rjust(width) if right else each.ljust(width) for each in (title, *cells)]


def _width(title: str, cells: Iterable[str]) -> int:
    return max(map(len, (title, *cells)))


def _cut(text: str, width: int, letters: Letters) -> str:
    return text if len(text) <= width else text[: width - 1] + letters.cut


def _bar_of(row: Json, cells: int, letters: Letters) -> str:
    key = row["dominant"]
    parts = (row[name].get(key, 0) for name in ("usage_share", "fair_share", "demand_share"))
    return bar(*parts, cells=cells, letters=letters)


def bar(used: float, fair: float, wanted: float, *, cells: int, letters: Letters) -> str:
    """Draw `cells` letters for the whole pool, the mark of the share between them, and one more
    at the end if more is wanted than there is. Any use or demand at all takes at least one
    letter.
    """
    full = _cells(used, cells)
    body = letters.used * full + letters.wanted * (_cells(wanted, cells) - full)
    body = body.ljust(cells)
    at = min(round(fair * cells), cells)
    more = letters.more if wanted > 1 + 1e-9 else " "
    return f"{body[:at]}{letters.share}{body[at:]}{more}"


def _cells(part: float, cells: int) -> int:
    return min(cells, max(round(part * cells), 1 if part > 0 else 0))


def _guarantee(row: Json) -> str:
    return cell(row["guarantee"].get(row["dominant"]) or "")


def _weight(row: Json) -> str:
    return f"{row['weight']:g}" + (" fifo" if row["mode"] == "fifo" else "")


def _satisfied(row: Json, letters: Letters) -> str:
    ratio = row["satisfaction"]
    return letters.endless if ratio >= _SATISFIED else f"{ratio:.2f}"


def _status(row: Json, now: float) -> str:
    """Return the status, and for how long it has lasted."""
    if row["starvation"] != "non_starving":
        word = "starving" if row["starvation"] == "starving" else "starving!"
        return f"{word} {_lasted(now - row['starving_since'])}"
    if row["status"] == "normal":
        return "normal"
    return f"below {_lasted(now - (now if row['below_since'] is None else row['below_since']))}"


def _lasted(seconds: float) -> str:
    for unit, name in ((3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{int(seconds // unit)} {name}"
    return f"{int(seconds)} s"


def _groups(row: Json) -> str:
    sizes = [
        len(row["groups"][name])
        for name in ("non_preemptible", "aggressively_preemptible", "preemptible")
    ]
    return "/".join(map(str, sizes)) if any(sizes) else ""
