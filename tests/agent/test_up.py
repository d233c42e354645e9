"""`cede up` alone is enough to submit work to this machine."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.agent.cluster import alive, read_when_there, sweep
from tests.client.serving import Serving, eventually

pytestmark = pytest.mark.system


def test_the_first_command_may_be_a_submission(tmp_path: Path) -> None:
    server = Serving(tmp_path / "data", options=("--heartbeat", "1", "--allow-root-jobs"))
    attempts = server.data / "agent" / "attempts"
    try:
        done = server.cede("submit", "--follow", "--", "sh", "-c", "echo hi from $CEDE_NODE")
        assert done.returncode == 0, done.stderr
        with server.client() as client:
            [name] = [each["name"] for each in client.nodes.list()]
        assert done.stdout.splitlines()[1:] == [f"hi from {name}"]
        pid_file = tmp_path / "pid"
        script = f"echo $$ > {pid_file}; while ! test -e {tmp_path}/go; do sleep 0.05; done"
        made = server.cede("submit", "--on-silence", "keep", "--", "sh", "-c", script)
        pid = int(read_when_there(pid_file))
        agent = int((server.data / "agent" / "lock").read_text())
        server.stop()
        server.hold_port()
        eventually(lambda: not alive(agent))
        assert alive(pid), "work outlives the server and its agent"
        server.start()
        (tmp_path / "go").touch()
        assert server.cede("wait", made.stdout.strip()).returncode == 0
        # An agent whose server was killed makes room for the next one's.
        server.kill()
        orphan = int((server.data / "agent" / "lock").read_text())
        assert alive(orphan)
        server.start()
        done = server.cede("submit", "--wait", "--", "true")
        assert done.returncode == 0, done.stderr
        eventually(lambda: not alive(orphan))  # it may have run this before it was told to go
    finally:
        server.stop()
        lock = server.data / "agent" / "lock"
        if lock.exists() and alive(int(lock.read_text())):
            os.kill(int(lock.read_text()), signal.SIGKILL)
        for spec in attempts.glob("*/spec.json"):
            sweep(spec.parent)
