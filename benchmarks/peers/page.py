"""The table of docs/performance.md, between two marks that say who writes it."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

BEGIN, END = "<!-- bench-peers: begin -->", "<!-- bench-peers: end -->"
BUSY = 0.5  # of the processors in use before the run: the machine was not idle


@dataclass
class Row:
    """What was found of one peer: a cell for each column, in words if there is no figure."""

    name: str
    version: str = ""
    cells: dict[str, str] = field(default_factory=dict)
    alike: str = ""
    unlike: str = ""
    skipped: str = ""


def text(rows: Sequence[Row], columns: Sequence[str], about: Sequence[str]) -> str:
    lines = [*about, "", line(["", "version", *columns]), line(["---"] * (len(columns) + 2))]
    for row in rows:
        cells = [row.cells.get(each, "") for each in columns]
        if row.skipped:
            cells = [f"skipped: {row.skipped}", *[""] * (len(columns) - 1)]
        lines.append(line([row.name, row.version, *cells]))
    lines += ["", line(["", "alike", "not alike"]), line(["---"] * 3)]
    lines += [line([row.name, row.alike, row.unlike]) for row in rows]
    return "\n".join(lines)


def line(cells: Sequence[str]) -> str:
    """A row of a table."""
    return "| " + " | ".join(each.replace("|", "\\|").replace("\n", " ") for each in cells) + " |"


def write(path: Path, made: str, begin: str = BEGIN, end: str = END) -> None:
    """Put it between the marks; everything else stays."""
    page = path.read_text()
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise ValueError(f"{path}: needs one line {begin} and, after it, one line {end}")
    before, after = page.split(begin)[0], page.split(end)[1]
    path.write_text(f"{before}{begin}\n{made}\n{end}{after}")


def machine() -> list[str]:
    """Which machine, when, and whether it had anything else to do."""
    processors = os.cpu_count() or 1
    model = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = os.getloadavg()[0]
    state = "it was not idle" if load > BUSY * processors else "it was idle"
    return [
        f"Measured on {datetime.now(UTC):%Y-%m-%d}: {processors} processors "
        f"({model[1] if model else platform.machine()}), {memory:.0f} GiB, Linux "
        f"{platform.release()}, Python {platform.python_version()}. Load before the run "
        f"{load:.1f}: {state}."
    ]
