"""`python -m benchmarks.peers [peer …]`: measure cede and its peers one after the other.

With --page, the table is written into that page. Exit code 1 if a measurement failed; a peer that
is not here is skipped, and both the output and the table say so.
"""

from __future__ import annotations

import argparse
import math
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.peers import page, slurm
from benchmarks.peers.hyperqueue import HyperQueue
from benchmarks.peers.on_ray import Ray
from benchmarks.peers.ours import Cede
from benchmarks.peers.peer import SLOTS, Lacks, Peer, Preemption
from benchmarks.peers.postgres_queue import PostgresQueue
from benchmarks.peers.task_spooler import TaskSpooler

Peers = Mapping[str, list[Callable[[], Peer]]]
# By the names under which they are asked for; of several variants of one, the best counts.
PEERS: Peers = {
    "cede": [Cede],
    "slurm": [partial(slurm.Slurm, tuning) for tuning in slurm.TUNINGS],
    "hyperqueue": [HyperQueue],
    "ray": [Ray],
    "task-spooler": [TaskSpooler],
    "postgres": [PostgresQueue],
}
COLUMNS = {
    "jobs": "programs/s, one array",
    "one_by_one": "programs/s, one by one",
    "grants": "durable grants/s",
    "preempt": "40 preempted by 5: last start; stopped; all back",
}


def main(arguments: Sequence[str] | None = None, peers: Peers = PEERS) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.peers")
    parser.add_argument("peers", nargs="*", help=f"of {', '.join(peers)}; all unless given")
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--grants", type=int, default=3200)
    parser.add_argument("--rounds", type=int, default=3, help="of which the best counts")
    parser.add_argument("--page", type=Path, help="the page whose table is written")
    given = parser.parse_args(arguments)
    if unknown := sorted(set(given.peers) - set(peers)):
        parser.error(f"no such peer: {', '.join(unknown)}; there are {', '.join(peers)}")
    about = page.machine()
    about[0] += f" {given.jobs} programs and {given.grants:,} grants; rounds: {given.rounds}."
    sizes = {"jobs": given.jobs, "one_by_one": given.jobs, "grants": given.grants}
    rows, good = [], True
    for name in given.peers or peers:
        found = [_measured(make(), sizes, given.rounds) for make in peers[name]]
        good &= not any("failed" in each.figures.values() for each in found)
        rows.append(found)
    made = page.text(_compared(rows), list(COLUMNS.values()), about)
    print(made)
    if given.page:
        page.write(given.page, made)
    return 0 if good else 1


@dataclass
class Found:
    """What one peer, in one variant, has shown: by measurement a figure, or why there is none."""

    peer: Peer
    version: str = ""
    skipped: str = ""
    figures: dict[str, float | Preemption | str] = field(default_factory=dict)


def _measured(peer: Peer, sizes: dict[str, int], rounds: int) -> Found:
    found = Found(peer, skipped=peer.missing())
    title = f"{peer.name} {peer.variant}".strip()
    if found.skipped:
        _tell(f"*** NOTICE: {title} is SKIPPED: {found.skipped} ***")
        return found
    found.figures = dict.fromkeys(COLUMNS, "failed")
    home = Path(tempfile.mkdtemp(prefix="cede-peer-"))
    home.chmod(0o755)
    try:
        peer.start(home)
        found.version = peer.version()
        for name in COLUMNS:
            try:
                found.figures[name] = _one(peer, name, sizes.get(name, 0), rounds)
            except Lacks as lack:
                found.figures[name] = str(lack)
            _tell(f"{title}: {name}: {found.figures[name]}")
    except Exception as error:  # whatever it is, the others are measured all the same
        _tell(f"*** FAILED: {title}: {error!r} ***")
    finally:
        peer.stop()
        shutil.rmtree(home, ignore_errors=True)
    return found


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _one(peer: Peer, name: str, size: int, rounds: int) -> float | Preemption:
    if name == "preempt":
        return peer.preempt()
    measure: Callable[[int], float] = getattr(peer, name)
    if name == "jobs":
        measure(min(size, SLOTS))  # warm
    return max(measure(size) for _ in range(rounds))


def _compared(rows: list[list[Found]]) -> list[page.Row]:
    """A row for each peer, with the best of its variants, and rates over those of the first."""
    made = []
    for variants in rows:
        first = variants[0]
        row = page.Row(first.peer.name, first.version, {}, first.peer.alike, first.peer.unlike)
        row.skipped = first.skipped
        for name, title in COLUMNS.items():
            if first.skipped:
                break
            best = max(variants, key=lambda each: _goodness(each.figures[name]))
            figure, base = best.figures[name], rows[0][0].figures.get(name)
            row.cells[title] = _said(figure)
            if variants is not rows[0] and isinstance(figure, float) and isinstance(base, float):
                row.cells[title] += f" ({figure / base:.2f} of {rows[0][0].peer.name})"
            if best.peer.variant and not isinstance(figure, str):
                row.cells[title] += f", {best.peer.variant}"
        made.append(row)
    return made


def _goodness(figure: float | Preemption | str) -> float:
    if isinstance(figure, str):
        return -math.inf
    return -(figure.started + figure.back) if isinstance(figure, Preemption) else figure


def _said(figure: float | Preemption | str) -> str:
    if isinstance(figure, Preemption):
        return f"{figure.started:.1f} s; {figure.stopped}; {figure.back:.1f} s"
    return figure if isinstance(figure, str) else f"{figure:,.1f}"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C: nothing stays behind
    sys.exit(main())
