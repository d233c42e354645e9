"""A program that counts, and when asked to save does what its argument says."""

import os
import sys
import time
from pathlib import Path

import cede.checkpoint as checkpoint

how = sys.argv[1]
LATE = {"late": 0.2, "much later": 60}  # seconds for which it asks first
rename = os.rename


def rename_and_wait(*arguments: object, **keywords: object) -> None:
    """A hint comes right after the manifest, before we know that it is there."""
    rename(*arguments, **keywords)
    if str(arguments[1]).endswith(".manifest.json"):
        Path("renamed").touch()
        while checkpoint._get()._line.hint() is None:
            time.sleep(0.005)


if how == "unlucky":
    os.rename = rename_and_wait
interval = int(sys.argv[2]) if len(sys.argv) > 2 else None
resume = checkpoint.resume_from()
number = int((resume / "number").read_text()) if resume else 0
tries = 0
checkpoint.should_save()  # opens the line
print(f"ready at {number}", flush=True)


def wait_for(name: str) -> None:
    while not Path(name).exists():
        checkpoint.progress(0.25, estimate=3.0)
        time.sleep(0.01)


def save() -> None:
    global tries
    tries += 1
    if how in LATE and tries == 1:
        checkpoint.defer(LATE[how], "in the \x1b[31mmiddle\n of\u202e something " + "x" * 10_000)
        return
    with checkpoint.saving() as directory:
        (directory / "number").write_text(str(number))
        if how == "slow":
            wait_for("go")
        if how == "clumsy" and tries == 1:
            raise OSError("no space left")


for _ in checkpoint.steps(None, every=interval):
    number += 1
    time.sleep(0.02 if how == "slow" else 0.005)  # what it prints must not fill a pipe
    if how != "silent" and checkpoint.should_save():
        try:
            save()
        except OSError as error:
            print(error, flush=True)
    if checkpoint.stopping():
        print("stopping", flush=True)
    elif how == "slow":
        print("not stopping", flush=True)
