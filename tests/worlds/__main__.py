"""`python -m tests.worlds --states 1000000`: search worlds until so many states were visited."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time

from .checks import Broken
from .explore import Search
from .world import FAIR, NODES, TREES, draw

STATES_A_WORLD = 4_000
BATCH = 400


def search(seed: int) -> tuple[int, str]:
    try:
        return Search(draw(seed), STATES_A_WORLD).run(), ""
    except Broken as broken:
        return 0, str(broken)


def main() -> int:
    parser = argparse.ArgumentParser(prog="worlds", description=__doc__)
    parser.add_argument("--states", type=int, default=1_000_000, help="how many states to visit")
    parser.add_argument("--seed", type=int, help="search this one world only")
    parser.add_argument("--first", type=int, default=0, help="the first world's number")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        states, broken = search(arguments.seed)
        print(broken or f"world {arguments.seed}: {states} states, nothing broken")
        return 1 if broken else 0
    return report(arguments.first, arguments.states)


def report(first: int, wanted: int) -> int:
    started = time.monotonic()
    states = worlds = broken = 0
    with multiprocessing.Pool() as pool:
        while states < wanted and broken < 20:
            # As many worlds that are made of nodes, with trees, and with fair shares, as others.
            numbers = range(first, first + BATCH // 4)
            seeds = [each + kind for each in numbers for kind in (0, NODES, TREES, FAIR)]
            for visited, problem in pool.imap_unordered(search, seeds, 4):
                states, worlds = states + visited, worlds + 1
                if problem:
                    broken += 1
                    print(problem, flush=True)
            first += BATCH // 4
            if sys.stderr.isatty():
                print(f"\r{states:,} states in {worlds:,} worlds", end="", file=sys.stderr)
    took = time.monotonic() - started
    print(f"{states:,} states in {worlds:,} worlds, {broken} broken, {took:.0f} s")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
