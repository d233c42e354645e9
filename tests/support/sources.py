"""cede of a given source tree: the one under test, or a version that landed before it."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import cede

ROOT = Path(__file__).parents[2]


class NoHistory(Exception):
    """The commit is not here: this is a source archive or a shallow clone."""


@dataclass(frozen=True, slots=True)
class Source:
    """The folder that holds the package."""

    folder: Path

    def variables(self) -> dict[str, str]:
        """The environment with which every Python imports this tree.

        An agent hands the tree on to its supervisors itself, by where it was imported from.
        """
        rest = os.environ.get("PYTHONPATH")
        path = [str(self.folder), *([rest] if rest else [])]
        return {"PYTHONPATH": os.pathsep.join(path)}

    def imported(self) -> Path:
        """The folder from which a Python with these variables really imports cede."""
        asked = "import cede; print(cede.__file__)"
        environ = {**os.environ, **self.variables()}
        found = subprocess.check_output([sys.executable, "-c", asked], env=environ, text=True)
        return Path(found.strip()).parents[1]


# What this process imports, and so what is under test.
HERE = Source(Path(cede.__file__).resolve().parents[1])


def of_commit(commit: str, folder: Path) -> Source:
    """The tree of a commit, unpacked into an empty folder."""
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", commit, "src"]
    try:
        packed = subprocess.run(command, capture_output=True, check=True).stdout
    except FileNotFoundError:
        raise NoHistory("there is no git") from None
    except subprocess.CalledProcessError as error:
        raise NoHistory(error.stderr.decode(errors="replace").strip()) from None
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return Source(folder / "src")
