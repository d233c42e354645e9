"""`python -m tests.aged.probe URL`: what a start and a first page take: time, memory."""

from __future__ import annotations

import json
import resource
import sys
from time import perf_counter

from cede.server.writer import Writer
from cede.store import Store

PAGES = 50


def main(url: str) -> None:
    began = perf_counter()
    store = Store(url)
    store.migrate()
    store.take_over()
    writer = Writer(store, store.load())
    writer.start()
    started = perf_counter() - began
    store.list_requests(limit=101)  # connects and compiles
    began = perf_counter()
    for _ in range(PAGES):
        assert len(store.list_requests(limit=101).items) == 101
    listed = (perf_counter() - began) / PAGES
    writer.stop()
    store.close()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"restart": started, "list": listed, "memory": memory}))


if __name__ == "__main__":
    main(sys.argv[1])
