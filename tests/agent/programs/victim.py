"""A victim: when it is asked to save itself in its first attempt it does what its argument says. In
a later one it says where it goes on from, and is done. What it notes has the time of one clock.
"""

import os
import signal
import sys
import time
from pathlib import Path

import cede.checkpoint as checkpoint

how, home = sys.argv[1], Path(sys.argv[2])


def note(word: str) -> None:
    with (home / "notes").open("a") as out:
        out.write(f"{time.monotonic()} {word}\n")


def on_term(*_: object) -> None:
    note("term")
    if how == "polite":
        sys.exit(0)
    if how != "stubborn":
        sys.exit(1)


def save() -> None:
    with checkpoint.saving() as directory:
        (directory / "number").write_text("42")
    note("saved")


def slow() -> None:
    """Answers, and saves once the test has seen that it got more time."""
    while not (home / "go").exists():
        checkpoint.progress(0.1, estimate=1)
        time.sleep(0.01)
    save()


def defer_and_save() -> None:
    if not (home / "asked").exists():
        (home / "asked").touch()
        checkpoint.defer(0.3, "in the middle of something")
    else:
        save()


def defer_for_ever() -> None:
    checkpoint.defer(60, "never a good moment")


def leave() -> None:
    note("leaves")
    sys.exit(0)


def go_on() -> None:
    """Has not saved itself when the hint is withdrawn."""
    note("asked")
    while checkpoint.should_save():
        time.sleep(0.01)
    note("goes on")
    sys.exit(0)


DOES = {
    "saves": save,
    "slow": slow,
    "late": defer_and_save,
    "defers": defer_for_ever,
    "leaves": leave,
    "goes on": go_on,
}

signal.signal(signal.SIGTERM, on_term)
resume = checkpoint.resume_from() if os.environ.get("CEDE_CHECKPOINT_DIR") else None
note(f"from {(resume / 'number').read_text()}" if resume else "anew")
if os.environ["CEDE_ATTEMPT"] != "1":
    sys.exit(0)
for _ in checkpoint.steps(None) if how in DOES else iter(int, 1):
    if how in DOES and checkpoint.should_save():
        DOES[how]()
    time.sleep(0.01)
