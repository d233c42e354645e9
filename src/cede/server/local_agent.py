"""The agent that `cede up` starts for this machine: a process of its own, on the server's data.

It ends when the server is told to end; its work goes on under its supervisors, and the next agent
adopts it. It is started again when it dies by itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import structlog

from cede.agent.isolation import LABEL, Isolation, isolation_here
from cede.server.config import Config
from cede.server.own_tls import own_tls

FOLDER = "agent"
# The folder where services keep their state, unless the service manager names another.
STATE = "/var/lib"
SQLITE = "sqlite:///"
# The labels by which its node belongs to the pool `local`.
LABELS = {"pool": "local"}
STOP_SECONDS = 10.0
# Pauses before an agent that died is started again.
PAUSE_FIRST, PAUSE_MAX = 1.0, 60.0

_log = structlog.get_logger("cede.local_agent")


class LocalAgent:
    def __init__(self, config: Config, url: str, amounts: Mapping[str, int], join: str) -> None:
        self._data = folder(config)
        self._before = config.data / FOLDER  # of a server that let work be root, or an older one
        command = [sys.executable, "-m", "cede.cli", "agent", "--server", url]
        command += ["--data", str(self._data)]
        for name, text in LABELS.items():
            command += ["--label", f"{name}={text}"]
        for key, amount in amounts.items():
            command += ["--amount", f"{key}={amount}"]
        for path in _secrets(config):
            command += ["--hide", str(path)]
        self._command = command + (["--allow-root-jobs"] if config.allow_root_jobs else [])
        self._environment = {"CEDE_JOIN": join}
        if config.tls:
            self._environment["SSL_CERT_FILE"] = str(own_tls(config).authority)
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="local agent", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)

    def _keep(self) -> None:
        for each in dict.fromkeys((self._data, self._before)):
            _end_orphan(each / "lock", self._stopping)
        pause = PAUSE_FIRST
        while not self._stopping.is_set():
            self._process = subprocess.Popen(
                self._command,
                env={**os.environ, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is the server's to pass on
            )
            code = self._process.wait()
            if not self._stopping.is_set():
                _log.warning("the agent of this machine ended", exit_code=code)
                self._stopping.wait(pause)
                pause = min(2 * pause, PAUSE_MAX)


def folder(config: Config) -> Path:
    """Return the agent's data folder. Where the agent starts work of other accounts, which must get
    into it, it is not in the server's own folder, which is closed to them.
    """
    if os.geteuid() != 0 or config.allow_root_jobs:
        return config.data / FOLDER
    digest = hashlib.sha256(str(config.data).encode()).hexdigest()
    return Path(os.environ.get("STATE_DIRECTORY") or STATE) / f"cede-agent-{digest[:12]}"


def has_joined(config: Config) -> bool:
    return (folder(config) / "agent.json").exists()


def isolation(config: Config) -> Isolation:
    """Return how the work of this agent is kept from the server's files."""
    return isolation_here({}, allow_root=config.allow_root_jobs)


def labels(config: Config) -> dict[str, str]:
    """Return the labels with which the agent will register."""
    return {**LABELS, LABEL: str(isolation(config))}


def _secrets(config: Config) -> list[Path]:
    """Return the server's files with secrets, which work of its own account must not see."""
    found = [config.data, *(each for each in (config.file, config.tls_key) if each is not None)]
    if config.database.startswith(SQLITE):
        file = config.database.removeprefix(SQLITE).partition("?")[0]
        found += [Path(f"{file}{end}").absolute() for end in ("", "-wal", "-shm")]
    return found


def _end_orphan(lock: Path, stopping: threading.Event) -> None:
    """End an agent whose server was killed: it may call an address where no server listens any
    more."""
    try:
        file = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        while not stopping.is_set():
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                # The holder of the lock wrote its process id, and holds the lock as long as it
                # lives.
                pid = os.pread(file, 32, 0)
                if pid.strip().isdigit():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGTERM)
                stopping.wait(0.2)
    finally:
        os.close(file)
