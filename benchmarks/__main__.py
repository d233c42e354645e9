"""`python -m benchmarks [name …]`: print every ratio; exit 1 if a bound is missed."""

from __future__ import annotations

import sys

from benchmarks import (
    commands,
    engine,
    heartbeats,
    jobs,
    nodes,
    placing,
    reads,
    service,
    shares,
    starts,
    victims,
    waking,
)

FIGURES = [
    *engine.FIGURES,
    *nodes.FIGURES,
    *shares.FIGURES,
    *victims.FIGURES,
    *placing.FIGURES,
    *service.FIGURES,
    *reads.FIGURES,
    *heartbeats.FIGURES,
    *commands.FIGURES,
    *jobs.FIGURES,
    *waking.FIGURES,
    *starts.FIGURES,
]


def main() -> int:
    wanted = set(sys.argv[1:])
    names = [measure.__name__ for measure in FIGURES]
    if unknown := sorted(wanted.difference(names)):
        known = ", ".join(names)
        print(f"no such figure: {', '.join(unknown)}; there are {known}", file=sys.stderr)
        return 2
    good = True
    for measure in FIGURES:
        if not wanted or measure.__name__ in wanted:
            found = measure()
            for figure in found if isinstance(found, list) else [found]:
                print(figure, flush=True)
                good &= figure.good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
