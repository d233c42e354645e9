"""A gang that agrees on nothing, without the library: each task saves under an id of its own, but
the first time all take the same. Where each attempt goes on from is all that it notes.
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


with (record / str(task)).open("a") as out:
    resume = Path(os.environ.get("CEDE_RESUME_FROM", "-")).name
    out.write(f"start {attempt} {resume} 0 {os.environ['CEDE_NODE']}\n")
while not is_asked():
    if (record / "go").exists():
        sys.exit(0)
    time.sleep(0.01)
save()
sys.exit(75)
