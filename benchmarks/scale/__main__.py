"""`python -m benchmarks.scale`: a site in a database, a server on it, its agents and its callers.

Then the same with a long history. Prints what both cost, with the bounds that are known, and exits
with 1 if one is missed. `--page` writes the tables into docs/explanation/scale.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from benchmarks.peers.page import line, machine, write
from benchmarks.report import Figure
from benchmarks.scale import history
from benchmarks.scale.agents import Agents
from benchmarks.scale.filling import Keys, Site, fill
from benchmarks.scale.history import Database
from benchmarks.scale.measure import PERIOD, Serving, beside, serving, size_of
from tests.support import postgres

PARTS = ("site", "history")
PEOPLE = 32
DAY_SECONDS = 86_400
RATE = 10  # requests a second, for the growth of a day

Cells = dict[str, str]


def main() -> int:
    parser = argparse.ArgumentParser("python -m benchmarks.scale")
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--running", type=int, default=50_000)
    parser.add_argument("--waiting", type=int, default=200_000)
    parser.add_argument(
        "--seconds", type=float, default=60, help="for agents alone, for submissions"
    )
    parser.add_argument("--calls", type=int, default=1_000, help="of each kind")
    parser.add_argument("--on", choices=("sqlite", "postgresql", "both"), default="both")
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--page", type=Path, help="write the tables there")
    asked = parser.parse_args()
    site = Site(asked.nodes, asked.running, asked.waiting)
    kinds = ("sqlite", "postgresql") if asked.on == "both" else (asked.on,)
    good = True
    for part in PARTS if asked.only is None else (asked.only,):
        about = machine()
        columns: dict[str, Cells] = {}
        for kind in kinds:
            if part == "site":
                with _database(kind) as place:
                    figures, columns[kind] = measure(*place, site, asked.seconds, asked.calls)
            else:
                with _database(kind) as small, _database(kind) as large:
                    figures, columns[kind] = history.measure(small, large, seconds=asked.seconds)
            for figure in figures:
                print(f"{kind}: {figure}", flush=True)
                good &= figure.good
        about.append(history.about() if part == "history" else _about(site))
        made = text(about, columns)
        print(made)
        if asked.page is not None:
            write(asked.page, made, f"<!-- {part}: begin -->", f"<!-- {part}: end -->")
    return 0 if good else 1


def _about(site: Site) -> str:
    return f"{site.nodes:,} agents, {site.running:,} running, {site.waiting:,} waiting."


def text(about: list[str], columns: dict[str, Cells]) -> str:
    """What was measured: a column for each database."""
    names = list(next(iter(columns.values())))
    lines = [*about, "", line(["", *columns]), line(["---"] * (len(columns) + 1))]
    lines += [line([name, *(cells[name] for cells in columns.values())]) for name in names]
    return "\n".join(lines)


@contextmanager
def _database(kind: str) -> Iterator[Database]:
    """A fresh one, and a folder for the server's own files."""
    with tempfile.TemporaryDirectory(prefix="cede-scale-") as folder:
        if kind == "sqlite":
            yield Database(f"sqlite:///{folder}/cede.db", Path(folder))
            return
        with (
            postgres.running_server(postgres.find_binaries()) as server,
            postgres.fresh_database(server) as url,
        ):
            yield Database(url.render_as_string(hide_password=False), Path(folder))


def measure(
    url: str, data: Path, site: Site, seconds: float, calls: int
) -> tuple[list[Figure], Cells]:
    """The figures that have a bound, and all of them for the table."""
    keys: Keys = fill(url, site, PEOPLE)
    each = size_of(url) / site.alive
    with (
        serving(url, data, keys) as server,
        closing(Agents(server.service.place, keys.agents, PERIOD)) as agents,
    ):
        figures, cells = _held(server, site)
        heard = server.heard(agents, seconds)
        figures.append(
            Figure(
                f"heartbeats of {site.nodes:,} agents, each every 10 s",
                heard.server,
                most=0.5,
                unit=" cores",
                detail=f"{heard.rate:,.0f} a second, generator {heard.own:.2f} cores",
            )
        )
        cells["agents alone: cores of the server; of the generator"] = (
            f"{heard.server:.2f}; {heard.own:.2f}"
        )
        cells["heartbeat: late by, p50; p99"] = (
            f"{heard.within(0.5):.0f} ms; {heard.within(0.99):.0f} ms"
        )
        with beside(agents):
            cells |= _asked(server, calls)
        cells["memory after that"] = f"{server.memory:,.0f} MiB"
    cells["database, for each request"] = f"{each:,.0f} bytes"
    cells[f"growth of a day at {RATE} requests a second, until they are removed"] = (
        f"{each * RATE * DAY_SECONDS / 2**30:.1f} GiB"
    )
    return figures, cells


def _held(server: Serving, site: Site) -> tuple[list[Figure], Cells]:
    start, memory = server.start, server.memory
    restart = Figure(
        "a start, until it serves, over a bare loop that reads the same rows",
        start.processor / start.bare,
        most=4.0,
        detail=f"{start.processor:.1f} s over {start.bare:.1f} s of a processor",
    )
    figures = [restart]
    if site.running <= site.nodes:  # little beside the waiters
        figures.append(
            Figure(
                f"memory of a server with {site.waiting:,} waiters", memory, most=500, unit=" MiB"
            )
        )
    return figures, {
        "memory after the start": f"{memory:,.0f} MiB",
        "start: until it serves; of a processor; over a bare loop": (
            f"{start.seconds:.1f} s; {start.processor:.1f} s; {start.processor / start.bare:.1f}"
        ),
    }


def _asked(server: Serving, calls: int) -> Cells:
    """Callers beside the agents."""
    cells = {}
    for name, result in (
        ("submit", server.submit(calls)),
        ("list: first page of requests", server.get("/api/v1/requests", calls)),
        ("list: pools", server.get("/api/v1/pools", calls)),
    ):
        cells[f"{name}: p50; p99; server; generator"] = (
            f"{result.within(0.5):.1f} ms; {result.within(0.99):.0f} ms; "
            f"{result.cost:,.0f} us; {1e6 * result.own / result.calls:,.0f} us a call"
        )
    return cells


if __name__ == "__main__":
    sys.exit(main())
