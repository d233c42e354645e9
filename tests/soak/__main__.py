"""`python -m tests.soak`: stop programs and kill what stops them, then check what they recorded."""

from __future__ import annotations

import argparse
import secrets
import sys
from pathlib import Path

from tests.soak.run import Plan, soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--stops", type=int, default=300, help="how many stops there are")
    parser.add_argument("--kills", type=int, default=200, help="how many kills, meanwhile")
    parser.add_argument("--agents", type=int, default=4)
    parser.add_argument("--postgres", action="store_true", help="two servers on PostgreSQL")
    parser.add_argument("--seconds-limit", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, help="draw the same again; else another one")
    parser.add_argument("--home", type=Path, help="where everything is, and stays")
    given = parser.parse_args()
    seed = secrets.randbelow(1_000_000) if given.seed is None else given.seed
    print(f"soak: {given.stops} stops, {given.kills} kills, seed {seed}", flush=True)
    plan = Plan(
        stops=given.stops,
        kills=given.kills,
        agents=given.agents,
        seed=seed,
        seconds=given.seconds_limit,
        postgres=given.postgres,
        home=given.home,
    )
    result = soak(plan)
    print(result.story())
    if result.account.problems:
        print(f"records and logs are in {result.home}")
    return 1 if result.account.problems else 0


if __name__ == "__main__":
    sys.exit(main())
