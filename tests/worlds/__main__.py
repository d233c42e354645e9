"""`python -m tests.worlds --states 1000000`: search worlds until so many states were visited."""

from __future__ import annotations

import argparse
import multiprocessing
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from functools import partial

from .checks import Broken
from .draw import KINDS, draw
from .explore import Search
from .why_checks import STEPS, Said, check_walk

STATES_A_WORLD = 4_000
# A short search sees several worlds too: of what is wanted, one has at most this part.
WORLDS_LEAST = 20
WORLDS_AT_ONCE = 20  # of every kind
BROKEN_MOST = 20  # after so many broken worlds a search ends


def search(seed: int, most: int = STATES_A_WORLD) -> tuple[int, int, str]:
    try:
        return seed, Search(draw(seed), most).run(), ""
    except Broken as broken:
        return seed, 0, str(broken)


def kind_of(seed: int) -> str:
    return max((base, kind) for kind, base in KINDS.items() if base <= seed)[1]


def main() -> int:
    parser = argparse.ArgumentParser(prog="worlds", description=__doc__)
    parser.add_argument("--states", type=int, default=1_000_000, help="how many states to visit")
    parser.add_argument("--seed", type=int, help="search this one world only")
    parser.add_argument("--first", type=int, default=0, help="the first world's number")
    parser.add_argument(
        "--kind", choices=KINDS, action="append", help="search worlds of this kind only"
    )
    parser.add_argument(
        "--why", type=int, metavar="WALKS", help="try what `why` says on so many walks of each kind"
    )
    arguments = parser.parse_args()
    if arguments.seed is not None:
        _, states, broken = search(arguments.seed)
        print(broken or f"world {arguments.seed}: {states} states, nothing broken")
        return 1 if broken else 0
    kinds = arguments.kind or list(KINDS)
    if arguments.why is not None:
        return report_why(arguments.first, arguments.why, kinds)
    return report(arguments.first, arguments.states, kinds)


def report_why(first: int, walks: int, kinds: list[str]) -> int:
    """Walk through worlds and try every remedy and every promise that their waiters are told."""
    found = 0
    for kind in kinds:
        said, broken = Said(), 0
        for seed in range(first, first + walks):
            try:
                check_walk(kind, seed, STEPS, said)
            except Broken as problem:
                broken += 1
                print(f"{kind} {seed}: {problem}", flush=True)
        found += broken
        print(f"{kind}: {walks} walks, {broken} broken; {said}", flush=True)
    return 1 if found else 0


def report(first: int, wanted: int, kinds: list[str]) -> int:
    """Search worlds of each kind until it has its part of the states that are wanted."""
    started = time.monotonic()
    states: Counter[str] = Counter()
    worlds: Counter[str] = Counter()
    broken = 0
    one = partial(search, most=min(STATES_A_WORLD, max(wanted // WORLDS_LEAST, 1)))
    open_kinds, part = list(kinds), -(-wanted // len(kinds))
    with suppress(KeyboardInterrupt), multiprocessing.Pool(initializer=_leave_to_parent) as pool:
        while open_kinds and broken < BROKEN_MOST:
            numbers = range(first, first + WORLDS_AT_ONCE)
            seeds = [each + KINDS[kind] for each in numbers for kind in open_kinds]
            for seed, visited, problem in pool.imap_unordered(one, seeds, 4):
                states[kind_of(seed)] += visited
                worlds[kind_of(seed)] += 1
                if problem:
                    broken += 1
                    print(problem, flush=True)
            first += WORLDS_AT_ONCE
            for kind in [each for each in open_kinds if states[each] >= part]:
                open_kinds.remove(kind)
                print(f"{kind}: {states[kind]:,} states in {worlds[kind]:,} worlds", flush=True)
            if sys.stderr.isatty():
                print(
                    f"\r{states.total():,} states in {worlds.total():,} worlds",
                    end="",
                    file=sys.stderr,
                )
    took = time.monotonic() - started
    for kind in open_kinds:
        print(f"{kind}: {states[kind]:,} states in {worlds[kind]:,} worlds, interrupted")
    print(f"{states.total():,} states in {worlds.total():,} worlds, {broken} broken, {took:.0f} s")
    if open_kinds and not broken:
        return 130  # interrupted
    return 1 if broken else 0


def _leave_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main())
