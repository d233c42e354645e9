"""Makes what a wheel holds beside the modules: the page, and the compiled command `cede`.

Where the command cannot be compiled, `cede` only starts `cede-python`, which is the Python one, and
which the compiled one starts for what it does not do itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import platform_tags

# An installer would write its interpreter into the first line of a Python script, and not every one
# knows how to if there is a blank in the path.
UNCOMPILED = """\
#!/bin/sh
exec "$(dirname -- "$(readlink -f -- "$0")")/cede-python" "$@"
"""


class BuildHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        self._folder = tempfile.mkdtemp()
        self._add_command(build_data)
        if version != "editable":
            self._build_page()

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _add_command(self, build_data: dict[str, Any]) -> None:
        command = Path(self._folder, "cede")
        build_data["shared_scripts"][str(command)] = "cede"
        if why := self._compile(command):
            self.app.display_warning(f"`cede` is not compiled, and `cede submit` slower: {why}")
            command.write_text(UNCOMPILED)
            command.chmod(0o755)
        else:
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{_platform()}"

    def _compile(self, output: Path) -> str:
        """Compile the command; return why that was not done."""
        if os.environ.get("CEDE_PURE"):
            return "CEDE_PURE is set"
        if sys.platform != "linux":
            return "this is not Linux"
        script = Path(self.root, "native", "compile.py")
        done = subprocess.run([sys.executable, script, output], check=False)
        return "no C compiler did it" if done.returncode else ""

    def _build_page(self) -> None:
        """Run scripts/page; an editable install leaves that to set-up, and a failure is told."""
        if subprocess.run([Path(self.root) / "scripts" / "page"], check=False).returncode:
            self.app.display_warning("the page was not built: the wheel has the plain one only")


def _platform() -> str:
    """Return the tag of machines with the C library of this one or a later one."""
    tags = list(platform_tags())
    return next((each for each in tags if not each.startswith("linux_")), tags[0])
