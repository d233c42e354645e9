"""`python -m tests.storm`: hurt servers, agents and links for an hour, then compare accounts."""

from __future__ import annotations

import argparse
import secrets
import sys
from pathlib import Path

from tests.storm.run import Plan, storm


def main() -> int:
    parser = argparse.ArgumentParser(prog="storm", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long things are hurt")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two faults")
    parser.add_argument("--postgres", action="store_true", help="two servers on PostgreSQL")
    parser.add_argument("--seed", type=int, help="draw the same again; else another one")
    parser.add_argument("--home", type=Path, help="where everything is, and stays")
    given = parser.parse_args()
    seed = secrets.randbelow(1_000_000) if given.seed is None else given.seed
    print(f"storm: {given.minutes:g} minutes, seed {seed}", flush=True)
    plan = Plan(
        seconds=given.minutes * 60,
        every=given.every,
        seed=seed,
        postgres=given.postgres,
        home=given.home,
    )
    result = storm(plan)
    print(result.story())
    if result.account.problems:
        print(f"records and logs are in {result.home}")
    return 1 if result.account.problems else 0


if __name__ == "__main__":
    sys.exit(main())
