"""A worker of the queue in PostgreSQL: `python -m benchmarks.peers.queue_worker DSN SLOTS`.

It claims as many jobs as it has free slots, starts their programs, and writes down how they ended.
One thread; woken by NOTIFY and by the ends of its programs.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

import psycopg

CLAIM = """
UPDATE jobs SET state = 'running', started = clock_timestamp() WHERE id IN (
    SELECT id FROM jobs WHERE state = 'waiting' ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED
) RETURNING id, argv
"""
END = """
UPDATE jobs SET state = 'ended', ended = clock_timestamp(), code = done.code
FROM unnest(%s::bigint[], %s::int[]) AS done (id, code) WHERE jobs.id = done.id
"""


def main() -> None:
    dsn, slots = sys.argv[1], int(sys.argv[2])
    ended, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    running: dict[int, subprocess.Popen[bytes]] = {}
    with (
        psycopg.connect(dsn, autocommit=True) as work,
        psycopg.connect(dsn, autocommit=True) as news,
    ):
        news.execute("LISTEN jobs")
        while True:
            done = [(job, child) for job, child in running.items() if child.poll() is not None]
            if done:
                for job, _ in done:
                    del running[job]
                work.execute(END, ([job for job, _ in done], [each.returncode for _, each in done]))
            if len(running) < slots:
                for job, argv in work.execute(CLAIM, (slots - len(running),)).fetchall():
                    running[job] = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
            ready, _, _ = select.select([ended, news.fileno()], [], [], 1.0)
            if ended in ready:
                os.read(ended, 4096)
            if news.fileno() in ready:
                list(news.notifies(timeout=0))


if __name__ == "__main__":
    main()
