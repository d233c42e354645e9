"""Saves, or cleans, again and again in a child that is killed at its n-th system call on files.

After each death it looks at what is left, as the next attempt would. Prints the number of points.
"""

import os
import shutil
import signal
import sys
from pathlib import Path

from cede.checkpoint import manifest, shelf

CALLS = ("open", "write", "fsync", "rename", "unlink", "rmdir", "mkdir", "read", "stat", "scandir")
what, directory = sys.argv[1], Path(sys.argv[2])


def die_at(point: int) -> None:
    """From now on the n-th call ends us: even points before it is made, odd ones after."""
    left = [point // 2]

    def wrap(name: str) -> None:
        real = getattr(os, name)

        def call(*arguments: object, **keywords: object) -> object:
            left[0] -= 1
            if left[0] == -1 and point % 2 == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return real(*arguments, **keywords)
            finally:
                if left[0] == -1:
                    os.kill(os.getpid(), signal.SIGKILL)

        setattr(os, name, call)

    for name in CALLS:
        wrap(name)


def put(id: str) -> None:
    folder = directory / id
    (folder / "deep").mkdir(parents=True)
    for name in ("a", "deep/b"):
        descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT)
        os.write(descriptor, id.encode())
        os.close(descriptor)
    manifest.write(directory, id, int(id[0]))


def begin() -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    put("1-1")
    if what != "save":
        put("2-1")
        (directory / "0-1" / "half").mkdir(parents=True)


def work() -> None:
    if what == "save":
        put("2-1")
    elif what == "clean":
        shelf.clean(directory, "2-1", idle=True)
    else:  # in the wrong order
        shutil.rmtree(directory / "1-1")
        (directory / "1-1.manifest.json").unlink()


def is_good(id: str) -> bool:
    try:
        return manifest.verify(directory, id).id == id
    except manifest.NotACheckpoint:
        return False


def look() -> None:
    """The kept one is good; whatever has a manifest is good; a cleaning leaves nothing else."""
    kept = "1-1" if what == "save" else "2-1"
    assert is_good(kept), f"lost {kept}"
    for id in shelf.newest(directory):
        assert is_good(id), f"{id} has a manifest and is none"
    newest = shelf.newest(directory)[0]
    shelf.clean(directory, newest, idle=True)
    assert sorted(path.name for path in directory.iterdir()) == [newest, f"{newest}.manifest.json"]
    if newest == "1-1":
        put("2-1")  # the same id can be had again
        assert is_good("2-1")


point = 0
ends = set()
while True:
    begin()
    child = os.fork()
    if child == 0:
        die_at(point)
        work()
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL), status
    ends.add(is_good("2-1"))
    look()
    if status == 0:
        break
    point += 1
assert ends == ({True, False} if what == "save" else {True})
print(point)
