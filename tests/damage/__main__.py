"""`python -m tests.damage --files 1400 --seed 1`: exit 1 if any damage is missed."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.damage.trial import missed, run


def main() -> int:
    parser = argparse.ArgumentParser("tests.damage")
    parser.add_argument("--files", type=int, default=1_400)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        outcomes = run(Path(scratch), given.files, given.seed)
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:6}  {outcome}")
    return 1 if missed(outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
