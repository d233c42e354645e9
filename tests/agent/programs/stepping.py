"""Does steps, and saves only when it is asked to. Every step is recorded durably outside of cede.

    RECORD/TASK        lines: start ATTEMPT ID STEP NODE, step ATTEMPT N, asked ATTEMPT N,
                       saved ATTEMPT ID N, gone ATTEMPT ID, end ATTEMPT CODE
    LOCKS/NODE.DEVICE  held while this process has the device; LOCKS/WORK while it does the work
    LOCKS/overlap      lines: a lock that somebody else held, and by whom it was wanted

N is how many steps were done by then. Files in RECORD steer it: `hold` makes it wait before it
saves, `go` ends it.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import sys
import time
from pathlib import Path

import cede.checkpoint as checkpoint

LOOK = 0.005

parser = argparse.ArgumentParser()
parser.add_argument("record", type=Path)
parser.add_argument("locks", type=Path)
parser.add_argument("--steps", type=int, help="how many there are; else until there is `go`")
parser.add_argument("--pause", type=float, default=0.02, help="seconds that a step takes")
parser.add_argument("--drift", type=float, default=0.0, help="how much slower each later task is")
parser.add_argument("--together", action="store_true", help="no task is a step ahead of another")
parser.add_argument(
    "--leave", type=int, help="the exit code with which it leaves after it was asked and has saved"
)
given = parser.parse_args()

ATTEMPT, TASK, NODE = (os.environ[f"CEDE_{each}"] for each in ("ATTEMPT", "TASK", "NODE"))
OTHERS = [str(each) for each in range(int(os.environ["CEDE_TASKS"])) if str(each) != TASK]


def append(path: Path, *words: object) -> None:
    """One line, on the disk when this returns: whatever kills us, the record is true."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(descriptor, (" ".join(map(str, words)) + "\n").encode())
    os.fsync(descriptor)
    os.close(descriptor)


def note(word: str, *more: object) -> None:
    append(given.record / TASK, word, ATTEMPT, *more)


def leave(code: int) -> None:
    note("end", code)
    sys.exit(code)


def hold(name: str) -> int:
    """Hold a lock for as long as this process lives; a lock of somebody else's is the scandal."""
    descriptor = os.open(given.locks / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(descriptor, 200).decode()
        append(given.locks / "overlap", name, "held by", holder, "wanted by", *WHO)
        leave(3)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, " ".join(WHO).encode(), 0)
    return descriptor


def count_of(task: str) -> int:
    """How many steps a task has done in this attempt."""
    try:
        return int((given.record / f"at.{ATTEMPT}.{task}").read_text() or 0)
    except FileNotFoundError:
        return 0


def wait_for_others(done: int) -> None:
    """As in an all-reduce. Others that were asked to save may have left, and will not come."""
    while any(count_of(each) < done for each in OTHERS) and not checkpoint.should_save():
        time.sleep(LOOK)


def save(done: int) -> None:
    note("asked", done)
    while (given.record / "hold").exists():
        time.sleep(LOOK)
    with checkpoint.saving() as directory:
        (directory / "done").write_text(str(done))
    note("saved", directory.name, done)
    # A task of a gang leaves only if the library says so: others may need its next step.
    if given.leave is not None and (not OTHERS or checkpoint.stopping()):
        leave(given.leave)


WHO = (given.record.name, TASK, "attempt", ATTEMPT)
resume = checkpoint.resume_from()
begun = int((resume / "done").read_text()) if resume else 0
devices = [each for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if each]
locks = [hold(name) for name in (f"{NODE}.{each}" for each in devices)]
locks.append(hold(f"{given.record.name}.{TASK}"))
note("start", resume.name if resume else "-", begun, NODE)
if begun == given.steps:
    leave(0)
own = 0  # checkpoints of this attempt
for step in checkpoint.steps(None):
    assert step >= begun, f"step {step} is before {begun}"
    time.sleep(given.pause * (1 + given.drift * int(TASK)))
    note("step", step)
    # Once there are two newer ones of our own, it may go.
    if resume is not None and own < 2 and not (resume / "done").exists():
        note("gone", resume.name)
        resume = None
    if given.together:
        (given.record / f"at.{ATTEMPT}.{TASK}").write_text(str(step + 1))
        wait_for_others(step + 1)
    if checkpoint.should_save():
        save(step + 1)
        own += 1
    if step + 1 == given.steps or (given.record / "go").exists():
        leave(0)
