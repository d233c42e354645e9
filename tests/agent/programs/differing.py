"""A gang that agrees on nothing, without the library: each task saves under an id of its own, but
the first time all take the same. Then it leaves. Where each attempt goes on from is all that it
notes. While there is a file `hold`, tasks but the first only note that they were asked, and go on
if that is withdrawn.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path

record = Path(sys.argv[1])
attempt, task = int(os.environ["CEDE_ATTEMPT"]), int(os.environ["CEDE_TASK"])
shelf, talk = Path(os.environ["CEDE_CHECKPOINT_DIR"]), Path(os.environ["CEDE_TALK_DIR"])
id = "000010-x" if attempt == 1 else f"0000{20 + attempt}-x{task}"


def is_asked() -> bool:
    try:
        return not json.loads((talk / "hint.json").read_text())["withdrawn"]
    except FileNotFoundError:
        return False


def save() -> None:
    content = b"a state"
    (shelf / id).mkdir()
    (shelf / id / "state").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    files = [{"path": "state", "size": len(content), "sha256": digest}]
    whole = {"id": id, "step": 20, "labels": {}, "files": files}
    (shelf / f"{id}.partial").write_text(json.dumps(whole))
    (shelf / f"{id}.partial").rename(shelf / f"{id}.manifest.json")


def note(*words: object) -> None:
    with (record / str(task)).open("a") as out:
        out.write(" ".join(map(str, words)) + "\n")


def is_held() -> bool:
    return task > 0 and (record / "hold").exists()


resume = Path(os.environ.get("CEDE_RESUME_FROM", "-")).name
note("start", attempt, resume, 0, os.environ["CEDE_NODE"])
while not is_asked() or is_held():
    if is_asked() and not (record / f"asked.{attempt}.{task}").exists():
        (record / f"asked.{attempt}.{task}").touch()
        note("asked", attempt, 0)
    if (record / "go").exists():
        sys.exit(0)
    time.sleep(0.01)
save()
sys.exit(75)
