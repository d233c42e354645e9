"""Runs a program that rests after each step: `resting.py GO PROGRAM …`.

Once the file GO is there it hardly rests. So it is still running when a test on a busy machine gets
to stop it, and soon done when the test has seen enough.
"""

import runpy
import sys
import time
from pathlib import Path

_, go, *sys.argv = sys.argv
sleep = time.sleep
time.sleep = lambda seconds: sleep(min(seconds, 0.001) if Path(go).exists() else seconds)
runpy.run_path(sys.argv[0], run_name="__main__")
