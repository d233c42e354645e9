"""A server's inside as a process to be killed: store, writer, and a few commands, one line per
answer.

`python -m tests.server.crash_driver URL ANCHOR submit|release`; `CEDE_CRASH_POINT` says where to
die.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cede.server.writer import Writer
from cede.store import Store
from tests.server.helpers import PATIENCE, ask_for, give_back, key

SUBMISSIONS = 6


def main(url: str, anchor: str, what: str) -> None:
    store = Store(url, anchor=Path(anchor))
    store.migrate()
    store.take_over()
    writer = Writer(store, store.load())
    writer.start()
    if what == "submit":
        for number in range(SUBMISSIONS):
            future = writer.execute(ask_for(1), idempotency=key(f"key-{number}"))
            say(f"key-{number} {future.result(PATIENCE)}")
    else:
        future = writer.execute(give_back("holder"), idempotency=key("release"))
        say(f"release {future.result(PATIENCE)}")
    writer.stop()
    store.close()
    say("done")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
