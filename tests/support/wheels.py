"""Wheels of this tree, built from a copy, so that nothing is left behind in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
NEEDED = ("src", "scripts", "native", "page", "pyproject.toml", "README.md", "LICENSE")


def built(folder: Path, **environ: str) -> Path:
    copy = folder / "cede"
    left_out = shutil.ignore_patterns(".git", ".venv*", "node_modules", "__pycache__", ".cede")
    for each in NEEDED:
        source = ROOT / each
        if source.is_dir():
            shutil.copytree(source, copy / each, ignore=left_out)
        else:
            copy.mkdir(exist_ok=True)
            shutil.copy(source, copy / each)
    # The page is built by the hook where Node is; here it is as the tree has it.
    (copy / "scripts" / "page").write_text("#!/bin/sh\nexit 0\n")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=copy, env={**os.environ, **environ}, check=True, capture_output=True)
    return next(folder.glob("*.whl"))
