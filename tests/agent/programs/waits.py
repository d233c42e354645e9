"""A victim that saves itself only when the test lets it. In its later attempts it says where it
goes on from, and is done.
"""

import os
import signal
import sys
import time
from pathlib import Path

import cede.checkpoint as checkpoint

how, name, home = sys.argv[1], sys.argv[2], Path(sys.argv[3])


def note(word: str) -> None:
    with (home / name).open("a") as out:
        out.write(f"{os.environ['CEDE_ATTEMPT']} {os.getpid()} {word}\n")


resumed = checkpoint.resume_from()
note(f"from {(resumed / 'number').read_text()}" if resumed else "anew")
if resumed:
    sys.exit(0)
for _ in checkpoint.steps(None):
    if checkpoint.should_save():
        note("asked")
        while not (home / "save").exists():
            time.sleep(0.05)
        # Whoever hears of the checkpoint may stop us at once: not before it is noted.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        with checkpoint.saving() as directory:
            (directory / "number").write_text(name)
        note("saved")
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    if how == "leaves" and checkpoint.stopping():
        sys.exit(checkpoint.EXIT_SAVED)
    time.sleep(0.05)
