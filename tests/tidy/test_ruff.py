"""The rules that pyproject.toml switches on in ruff fire where they hold, and nowhere else.

That every file keeps them is `make check`. This shows that each can fail: a pattern of files that
is too wide, or a name that is misspelt, would be silent.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT

STORE = "src/cede/store/journal.py"
CLI = "src/cede/cli/main.py"
LATER = "TO" + "DO"

# The rule, a file it holds for, and a line there that breaks it.
FIRES = {
    "time.time": ("TID251", STORE, "import time\nx = time.time()"),
    "time under another name": ("TID251", STORE, "from time import monotonic as m\nx = m()"),
    "datetime.now": ("TID251", STORE, "import datetime as d\nd.datetime.now()"),
    "a clock passed on, not called": ("TID251", STORE, "import time\nclock = time.monotonic"),
    "dice without a seed": ("S311", STORE, "import random\nrandom.choice([1])"),
    "a die imported by name": ("S311", STORE, "from random import choice\nchoice([1])"),
    "a shell": ("S602", "tests/test_a.py", "import subprocess\nsubprocess.run('ls', shell=True)"),
    "a shell behind a function of ours": ("S604", STORE, "run('ls', shell=True)"),
    "os.system": ("S605", "tests/test_a.py", "from os import system\nsystem('ls')"),
    "os.popen": ("S605", STORE, "import os\nos.popen('ls')"),
    "print in the server": ("T201", "src/cede/server/app.py", "print(1)"),
    "bare except": ("E722", STORE, "try:\n    a()\nexcept:\n    pass"),
    "an f-string as a statement": ("S608", STORE, "text(f'SELECT {a} FROM b')"),
    "a sum of strings as a statement": ("S608", STORE, "text('DELETE FROM ' + a)"),
    "a promise without an issue": ("TD003", STORE, f"# {LATER}: write this"),
    "a function of many branches": (
        "C901", STORE, "def f(a):\n" + "    if a:\n        a += 1\n" * 14),
}  # fmt: skip

# The rule, a file, and a line there that must pass.
SILENT = {
    "the clock module": ("TID251", "src/cede/server/clock.py", "import time\ntime.time()"),
    "a command's clock": ("TID251", CLI, "import time\ntime.monotonic()"),
    "time.sleep": ("TID251", STORE, "import time\ntime.sleep(1)"),
    "a benchmark": ("TID251", "benchmarks/run.py", "import time\ntime.time()"),
    "a client's jitter": ("S311", "src/cede/client/retry.py", "import random\nrandom.random()"),
    "a command that prints": ("T201", CLI, "print(1)"),
    "no shell": ("S602", STORE, "import subprocess\nsubprocess.run(['ls'], shell=False)"),
    "bound parameters": ("S608", STORE, "text('SELECT :a FROM b')"),
    "a promise with an issue": ("TD003", STORE, f"# {LATER} #12: write this"),
}


def found(path: str, source: str) -> str:
    """What ruff says of this source in this file, as the project has set it up."""
    ruff = Path(sys.executable).with_name("ruff")
    ran = subprocess.run(
        [ruff, "check", "--no-cache", "--output-format=concise", "--stdin-filename", path, "-"],
        cwd=ROOT,
        input=source,
        capture_output=True,
        text=True,
    )
    assert not ran.stderr, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("case", FIRES)
def test_a_rule_fires_on(case: str) -> None:
    rule, path, source = FIRES[case]
    assert f": {rule} " in found(path, source)


@pytest.mark.parametrize("case", SILENT)
def test_a_rule_is_silent_about(case: str) -> None:
    rule, path, source = SILENT[case]
    assert f": {rule} " not in found(path, source)
