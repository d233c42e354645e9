"""A table of jobs in PostgreSQL that workers claim with `FOR UPDATE SKIP LOCKED`: what many write
themselves before they look for a scheduler.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg

from benchmarks.peers.peer import SLOTS, Lacks, Peer, rate, run
from tests.support import postgres

CONNECTIONS = 32
TABLE = """
CREATE TABLE jobs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    argv text[] NOT NULL,
    state text NOT NULL DEFAULT 'waiting',
    created timestamptz NOT NULL DEFAULT clock_timestamp(),
    started timestamptz,
    ended timestamptz,
    code int
);
CREATE INDEX waiting ON jobs (id) WHERE state = 'waiting';
"""
SUBMIT = "INSERT INTO jobs (argv) SELECT '{{true}}' FROM generate_series(1, {}); NOTIFY jobs"
GRANT = """
INSERT INTO jobs (argv) VALUES ('{true}');
UPDATE jobs SET state = 'running', started = clock_timestamp() WHERE id = (
    SELECT id FROM jobs WHERE state = 'waiting' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
) RETURNING id;
"""


class PostgresQueue(Peer):
    name = "PostgreSQL, SKIP LOCKED"
    alike = (
        "40 slots in one worker, programs started as processes of their own; a submission, a "
        "claim and an end are each on disk before they are answered (fsync on)"
    )
    unlike = (
        "a table and some 60 lines: no shares, no limits, no placement, no lease of a worker that "
        "died, no containment, output thrown away; a grant is two transactions from `pgbench`"
    )

    def missing(self) -> str:
        try:
            self._programs = postgres.find_binaries()
        except postgres.Unavailable as error:
            return str(error)
        return ""

    def version(self) -> str:
        return run(self._programs / "postgres", "--version").split()[2]

    def start(self, home: Path) -> None:
        self._home = home
        url = self.started.enter_context(postgres.running_server(self._programs))
        self._dsn = url.set(drivername="postgresql").render_as_string(hide_password=False)
        self._link = self.started.enter_context(psycopg.connect(self._dsn, autocommit=True))
        self._link.execute(TABLE)
        worker = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.peers.queue_worker", self._dsn, str(SLOTS)]
        )
        self.started.callback(worker.wait)
        self.started.callback(worker.terminate)

    def jobs(self, number: int) -> float:
        return self._jobs(number, lambda: self._psql(SUBMIT.format(number)))

    def one_by_one(self, number: int) -> float:
        def submit() -> None:
            for _ in range(number):
                self._psql(SUBMIT.format(1))

        return self._jobs(number, submit)

    def _jobs(self, number: int, submit: Callable[[], None]) -> float:
        self._link.execute("TRUNCATE jobs")
        found = rate(number, submit, lambda: self._count("state = 'ended'") == number)
        assert self._count("code = 0") == number, "not every job ended well"
        return found

    def _count(self, which: str) -> int:
        row = self._link.execute(f"SELECT count(*) FROM jobs WHERE {which}".encode()).fetchone()
        assert row is not None
        return int(row[0])

    def _psql(self, statement: str) -> None:
        run(self._programs / "psql", "-q", "-X", "-c", statement, self._dsn)

    def grants(self, number: int) -> float:
        program = self._programs / "pgbench"
        if not program.exists():
            raise Lacks("not measured: no pgbench")
        script = self._home / "grant.sql"
        script.write_text(GRANT)
        # Nobody listens here, so that the worker starts none of these.
        name = "grants"
        self._link.execute(f"CREATE DATABASE {name}".encode())
        dsn = f"{self._dsn.rpartition('/')[0]}/{name}"
        run(self._programs / "psql", "-q", "-X", "-c", TABLE, dsn)
        try:
            said = run(
                *(program, "-n", "-M", "prepared", "-c", CONNECTIONS, "-j", os.cpu_count() or 1),
                *("-t", max(1, number // CONNECTIONS), "-f", script, dsn),
            )
        finally:
            self._link.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
        found = re.search(r"tps = ([\d.]+)", said)
        assert found and "failed transactions: 0 " in said, said
        return float(found[1])
