"""A full disk: writes are refused, what runs goes on, and space is all that is needed to recover.

The disk is a small file system in a mount namespace of its own.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.helpers import PATIENCE, until
from tests.server.test_run import START, Server

pytestmark = [pytest.mark.system, pytest.mark.slow]

SIZE = "24m"


class Disk:
    """A file system of its own, which only processes that enter its namespace see."""

    def __init__(self, place: Path) -> None:
        self.place = place
        mount = f"mount -t tmpfs -o size={SIZE} none {place} && echo mounted && exec sleep infinity"
        self.holder = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", mount], stdout=subprocess.PIPE, text=True
        )
        assert self.holder.stdout is not None
        self.mounted = self.holder.stdout.readline().strip() == "mounted"

    @property
    def root(self) -> Path:
        """The disk as this process can reach it."""
        return Path(f"/proc/{self.holder.pid}/root{self.place}")

    def fill(self) -> None:
        with (self.root / "filler").open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError as error:
                assert error.errno == errno.ENOSPC

    def free(self) -> None:
        (self.root / "filler").unlink()

    def close(self) -> None:
        self.holder.kill()
        self.holder.wait(PATIENCE)
        assert self.holder.stdout is not None
        self.holder.stdout.close()


class ServerOnDisk(Server):
    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        super().__init__(disk.root / "data")

    def command(self, data: Path, *flags: str) -> list[str]:
        inside = self.disk.place / "data"
        enter = ["nsenter", "--mount", f"--target={self.disk.holder.pid}"]
        return [*enter, sys.executable, "-c", START, "--data", str(inside), "--port", "0", *flags]

    def try_to_call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        try:
            return 200, self.call(method, path, body)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    if os.geteuid() != 0 or shutil.which("nsenter") is None:
        pytest.skip("A FULL DISK WAS NOT TESTED: mounting needs root, unshare and nsenter")
    place = tmp_path / "disk"
    place.mkdir()
    disk = Disk(place)
    try:
        if not disk.mounted:
            pytest.skip("A FULL DISK WAS NOT TESTED: no file system can be mounted here")
        yield disk
    finally:
        disk.close()


WORK = {"resources": {"mcpu": 1}, "lease": 600}


def refused(server: ServerOnDisk) -> Any:
    """Submit until there is no space for it."""

    def tried() -> Any:
        status, answer = server.try_to_call("POST", "/api/v1/requests", WORK)
        return answer if status != 200 else None

    return until(tried, "a refusal")


def assert_what_runs_goes_on(server: ServerOnDisk, id: str) -> None:
    problem = refused(server)
    assert (problem["status"], problem["type"]) == (507, "urn:cede:problem:disk_full"), problem
    assert server.try_to_call("GET", "/healthz")[1]["type"] == "urn:cede:problem:disk_full"
    assert server.call("GET", f"/api/v1/requests/{id}")["status"] == "allocated"
    renewed = server.call("POST", f"/api/v1/requests/{id}/renew", {"running": True})
    assert renewed["status"] == "allocated", renewed
    assert renewed["allocation"]["state"] == "running", renewed


def test_writes_are_refused_and_what_runs_goes_on_also_over_a_restart(disk: Disk) -> None:
    server = ServerOnDisk(disk)
    try:
        id = server.call("POST", "/api/v1/requests", WORK)["id"]
        disk.fill()
        assert_what_runs_goes_on(server, id)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait(PATIENCE)
        server.close()
        server = ServerOnDisk(disk)
        assert server.url
        disk.fill()  # the start used what was kept for it, and kept what it did not need
        assert (disk.root / "data" / "cede.db.reserve").stat().st_size > 0
        assert_what_runs_goes_on(server, id)
        disk.free()
        until(lambda: server.try_to_call("GET", "/healthz")[0] == 200, "recovery")
        assert server.call("POST", "/api/v1/requests", WORK)["status"] == "allocated"
        server.process.send_signal(signal.SIGTERM)
        assert server.end() == 0
    finally:
        server.close()
