"""`make stall`: attack a server for a minute, leave it alone for another, and say what was seen."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.stall.run import attacked, percentile, site, told

RENEWAL_P99_MAX = 1.0
MEMORY_BACK = 1.10


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--quiet", type=float, default=60)
    options.add_argument("--waiting", type=int, default=5_000)
    options.add_argument("--tokens", type=int, default=10)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="cede-stall-") as folder, site(Path(folder)) as where:
        where.prepare(given.waiting, given.tokens)
        # Once around: what is loaded and cached by the first calls is no growth.
        for path in ("/pools/gpus/shares", "/requests?limit=500&explain=true"):
            where.call(where.attackers[0], "GET", path)
        before = where.resident()
        seen, answers, most = attacked(where, given.seconds)
        time.sleep(given.quiet)
        after = where.resident()
    p99 = percentile(seen.renewals, 0.99)
    figures = {
        "renewals": len(seen.renewals),
        "renewal p50, p99, max": f"{percentile(seen.renewals, 0.5):.3f} {p99:.3f} "
        f"{max(seen.renewals):.3f} s",
        "health p99": f"{percentile(seen.health, 0.99):.3f} s",
        "lost": seen.lost[:5],
        "memory before, most, after": f"{before // 1024} {most // 1024} {after // 1024} MB",
    }
    print(told(figures | dict(sorted(answers.items()))))
    kept = not seen.lost and p99 <= RENEWAL_P99_MAX and after <= before * MEMORY_BACK
    print("kept" if kept else "NOT kept")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
