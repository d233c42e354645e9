"""Runs a program that rests after each step: `resting.py GO PROGRAM …`.

Once the file GO is there it hardly rests. Before that it does not come to its end: after so many
rests it takes another step only when it is asked to save itself. So it is still running whenever a
test on a busy machine gets to stop it, and soon done when the test has seen enough.
"""

import runpy
import sys
import time
from pathlib import Path

import cede.checkpoint as checkpoint

RESTS = 40

go = Path(sys.argv[1])
sys.argv = sys.argv[2:]
sleep = time.sleep
rests = 0


def rest(seconds: float) -> None:
    global rests
    rests += 1
    sleep(min(seconds, 0.001) if go.exists() else seconds)
    while rests > RESTS and not go.exists() and not checkpoint.should_save():
        sleep(0.01)


time.sleep = rest
runpy.run_path(sys.argv[0], run_name="__main__")
