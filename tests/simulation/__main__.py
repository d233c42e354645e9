"""`python -m tests.simulation`: runs of many seeds; exit 1 if anything is broken."""

from __future__ import annotations

import argparse
import logging
import sys
import time

import structlog

from tests.simulation.bugs import BUGS
from tests.simulation.run import simulate

SEEDS_PER_BUG = 40


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--events", type=int, default=100_000, help="at least so many events")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--trace", action="store_true", help="print every event of that one seed")
    parser.add_argument("--bugs", action="store_true", help="find each planted bug")
    parser.add_argument("--bug", help="run that one seed with this planted bug")
    options = parser.parse_args()
    logging.disable()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    if options.bug:
        return run_with_bug(options.bug, options.seed)
    if options.trace:
        outcome = simulate(options.seed, keep=True)
        print(*outcome.lines, *outcome.problems, sep="\n")
        return 1 if outcome.problems else 0
    if options.bugs:
        return find_bugs(options.seed)
    began, events, seed, broken = time.monotonic(), 0, options.seed, 0
    counts: dict[str, int] = {}
    while events < options.events:
        outcome = simulate(seed)
        events += outcome.events
        for name, count in outcome.counts.items():
            counts[name] = counts.get(name, 0) + count
        if outcome.problems:
            broken += 1
            print(f"seed {seed}: {len(outcome.problems)} broken, first: {outcome.problems[0]}")
        seed += 1
    took = time.monotonic() - began
    print(", ".join(f"{count} {name}" for name, count in sorted(counts.items())))
    runs = seed - options.seed
    print(f"{events} events in {runs} runs, {broken} broken, {took:.0f} s, {events / took:.0f}/s")
    return 1 if broken else 0


def run_with_bug(name: str, seed: int) -> int:
    bug = next(each for each in BUGS if each.__name__ == name)
    problems = simulate(seed, bug=bug, to_the_end=False).problems
    print(f"{len(problems)} broken: {problems[:1]}")
    return 1 if problems else 0


def find_bugs(first: int) -> int:
    """The first seed that finds each planted bug, and what it says."""
    missed = 0
    for bug in BUGS:
        for seed in range(first, first + SEEDS_PER_BUG):
            if problems := simulate(seed, bug=bug, to_the_end=False).problems:
                print(f"{bug.__name__}: seed {seed}: {problems[0]}", flush=True)
                break
        else:
            missed += 1
            print(f"{bug.__name__}: NOT FOUND in {SEEDS_PER_BUG} seeds", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
