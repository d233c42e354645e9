"""`python -m tests.regret --pools 1000`: random pools of every kind, run to rest."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections import Counter
from functools import partial

from .measure import Regret, measure
from .pools import KINDS


def main() -> int:
    parser = argparse.ArgumentParser(prog="regret", description=__doc__)
    parser.add_argument("--pools", type=int, default=1_000, help="how many pools of each kind")
    parser.add_argument("--first", type=int, default=0, help="the first pool's number")
    parser.add_argument("--kind", choices=KINDS, action="append", help="pools of this kind only")
    parser.add_argument("--names", action="store_true", help="say which pools regret what")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.pools)
    total: Counter[str] = Counter()
    for kind in arguments.kind or KINDS:
        with multiprocessing.Pool() as pool:
            found = pool.map(partial(measure, kind), seeds, 16)
        for seed, each in zip(seeds, found, strict=True):
            if arguments.names and not each.none:
                print(f"{kind} {seed}: {each}")
        count = _count(found)
        total += count
        print(f"{kind}: {_said(count)}", flush=True)
    print(f"in all: {_said(total)}")
    return 1 if any(total[name] for name in _REGRETS) else 0


_REGRETS = ("for nothing", "in one pass", "left out", "loops")


def _count(found: list[Regret]) -> Counter[str]:
    return Counter(
        {
            "pools": len(found),
            "victims": sum(each.victims for each in found),
            "for nothing": sum(len(each.for_nothing) for each in found),
            "in one pass": sum(len(each.in_one_pass) for each in found),
            "left out": sum(len(each.left_out) for each in found),
            "loops": sum(each.loops for each in found),
        }
    )


def _said(count: Counter[str]) -> str:
    return (
        f"{count['pools']:,} pools, {count['victims']:,} victims: {count['for nothing']} stopped "
        f"for nothing, {count['in one pass']} granted and stopped in one pass, {count['left out']} "
        f"promised and left out, {count['loops']} loops"
    )


if __name__ == "__main__":
    sys.exit(main())
