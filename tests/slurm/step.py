"""Notes when it began and ended, on which node, with which devices and in which attempt."""

import os
import signal
import sys
import time

notes, seconds = sys.argv[1], float(sys.argv[2])


def note(word: str) -> None:
    told = (word, time.monotonic_ns(), os.environ["CEDE_ALLOCATION"], os.environ["CEDE_TASK"])
    where = (os.environ["CEDE_NODE"], os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    line = " ".join(map(str, (*told, *where))) + "\n"
    file = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(file, line.encode())
    os.close(file)


def told_to_stop(_: int, __: object) -> None:
    note("ends")
    sys.exit(0)


signal.signal(signal.SIGTERM, told_to_stop)
note("begins")
time.sleep(seconds)
note("ends")
