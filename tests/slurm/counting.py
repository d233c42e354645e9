"""Counts until a file named `enough` is there, saves its number when it is asked to, and notes
where it began, on which node, with which devices and as whom.

With a file named `slowly` there, it saves only once there is one named `now`; with one named
`crash`, it fails after it has saved.
"""

import os
import sys
import time
from pathlib import Path

import cede.checkpoint as checkpoint

home = Path(sys.argv[1])
task = os.environ["CEDE_TASK"]


def note(*words: object) -> None:
    with (home / f"notes.{task}").open("a") as out:
        out.write(" ".join(map(str, words)) + "\n")


def until_now() -> None:
    if (home / "slowly").exists():
        note("saving")
        while not (home / "now").exists():
            time.sleep(0.02)


resume = checkpoint.resume_from()
number = int((resume / "number").read_text()) if resume else 0
devices = os.environ.get("CUDA_VISIBLE_DEVICES", "none")
where = (os.environ["CEDE_NODE"], os.environ["CEDE_ATTEMPT"], devices, os.geteuid())
note("from", number, *where)
for _ in checkpoint.steps(None):
    number += 1
    time.sleep(0.01)
    if checkpoint.should_save():
        until_now()
        with checkpoint.saving() as directory:
            (directory / "number").write_text(str(number))
        note("saved", number)
        if (home / "crash").exists():
            sys.exit(1)
    if checkpoint.stopping():
        sys.exit(checkpoint.EXIT_SAVED)
    if (home / "enough").exists():
        note("ends", number)
        sys.exit(0)
