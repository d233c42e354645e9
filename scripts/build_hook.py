"""Builds the page before a wheel is made, so that the wheel contains it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PageHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Run scripts/page; an editable install leaves that to set-up, and a failure is told."""
        if version == "editable":
            return
        if subprocess.run([Path(self.root) / "scripts" / "page"], check=False).returncode:
            self.app.display_warning("the page was not built: the wheel has the plain one only")
