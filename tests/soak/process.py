"""A process of a soak, which may be killed at any time and is signalled only while it lives."""

from __future__ import annotations

import os
import subprocess


class Process:
    process: subprocess.Popen[bytes] | None = None

    def has_ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def signal(self, number: int) -> None:
        if not self.has_ended():
            assert self.process is not None
            os.kill(self.process.pid, number)
