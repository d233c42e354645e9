"""Counts, and saves its number when it is asked to, unless a file named `silent` tells it not to,
which it notes. A file named `slow` makes it wait while it saves. Where it goes on from is all that
a later attempt says.
"""

import os
import sys
import time
from pathlib import Path

import cede.checkpoint as checkpoint

home = Path(sys.argv[1])


def note(word: str) -> None:
    with (home / "notes").open("a") as out:
        out.write(f"{word}\n")


resume = checkpoint.resume_from()
number = int((resume / "number").read_text()) if resume else 0
note(f"from {number}")
if os.environ["CEDE_ATTEMPT"] != "1":
    sys.exit(0)
is_silent = False
for _ in checkpoint.steps(None):
    number += 1
    time.sleep(0.01)
    is_asked = checkpoint.should_save()
    if is_asked and (home / "silent").exists():
        if not is_silent:
            note("silent")
        is_silent = True
    elif is_asked:
        with checkpoint.saving() as directory:
            (directory / "number").write_text(str(number))
            note("saves")
            while (home / "slow").exists():
                checkpoint.progress(0.5)
                time.sleep(0.01)
            # Before anybody can hear of it, and tell us to stop.
            note(f"saved {number}")
        note(f"finished {number}")
    if checkpoint.stopping():
        note(f"stops at {number}")
        sys.exit(checkpoint.EXIT_SAVED)
