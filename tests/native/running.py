"""Starts the compiled command in an environment of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.client.serving import WAIT_SECONDS
from tests.native.servers import Listening

TOKEN = "cede_secret"
UNTOUCHED = 77  # what the stub in the place of Python ends with
Text = str | bytes


@dataclass(frozen=True)
class Native:
    path: Path

    def run(
        self, line: Sequence[Text], env: Mapping[str, str], **options: object
    ) -> subprocess.CompletedProcess[bytes]:
        started = self.path.parent / "started"
        started.unlink(missing_ok=True)
        return subprocess.run(
            [self.path, *line],
            env={**env, "ASAN_OPTIONS": "detect_leaks=0"},
            timeout=WAIT_SECONDS,
            **{"capture_output": True, **options},  # type: ignore[call-overload]
        )

    def started(self) -> tuple[str, list[bytes]] | None:
        """The key and the arguments with which the stub was started; None if it was not."""
        try:
            said = (self.path.parent / "started").read_bytes().split(b"\0")[:-1]
        except FileNotFoundError:
            return None
        return said[0].decode(), said[1:]


def environment(listener: Listening, home: Path, **extra: str) -> dict[str, str]:
    """Little but the server: nothing of the user's own."""
    own = {"CEDE_SERVER": listener.url, "CEDE_TOKEN": TOKEN, "HOME": str(home)}
    return {"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"], **own, **extra}


def is_untouched(native: Native, line: Sequence[Text], env: Mapping[str, str]) -> bool:
    """Whether Python gets this command line as it is, before anything was sent."""
    done = native.run(line, env)
    words = [each.encode() if isinstance(each, str) else each for each in line]
    if native.started() is None:
        return False
    assert native.started() == (env.get("CEDE_IDEMPOTENCY_KEY", ""), words)
    assert (done.returncode, done.stdout, done.stderr) == (UNTOUCHED, b"", b"")
    return True
