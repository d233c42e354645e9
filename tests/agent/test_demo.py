"""`make demo` shows what it says, and leaves nothing behind, also when it is interrupted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.cluster import alive
from tests.client.serving import BIN, WAIT_SECONDS

pytestmark = pytest.mark.system

DEMO = Path(__file__).parents[2] / "examples" / "demo" / "demo.py"


def pause() -> float:
    """So long a rest after each of its 160 steps that a training still runs when it is preempted:
    between its start and that are three commands, each of which takes some time to start here.
    """
    begun = time.monotonic()
    subprocess.run([BIN / "cede", "--version"], check=True, capture_output=True)
    return min(max(0.15, (time.monotonic() - begun) / 5), 0.6)


@pytest.fixture
def demo() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, DEMO, str(pause())],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    yield process
    if process.poll() is None:
        process.terminate()
    process.communicate(timeout=WAIT_SECONDS)


def home_of(line: str) -> Path:
    found = re.search(r"is in (\S+) as long", line)
    assert found is not None, line
    return Path(found[1])


def users_of(folder: Path) -> list[int]:
    """Who still works on something there: machines and supervisors by their command, work by its
    environment.
    """
    return [
        int(each.name)
        for each in Path("/proc").glob("[0-9]*")
        if any(str(folder).encode() in read(each / name) for name in ("cmdline", "environ"))
        and alive(int(each.name))
    ]


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended
        return b""


@pytest.mark.timeout(600)  # it types some twenty commands, one after the other
def test_it_shows_a_gang_and_a_preemption_and_cleans_up(demo: subprocess.Popen[str]) -> None:
    said, _ = demo.communicate(timeout=9 * WAIT_SECONDS)
    assert demo.returncode == 0, said
    for line in (
        r"task 1 of 2 is on \w+ and has the GPUs 0,1,2,3",
        r"training \d must make room \(reclaim\) and is asked to save itself",
        r"training \d has saved itself: checkpoint \S+, verified",
        r"training \d is suspended, and will go on from there",
        r"the blue gang is done",
        r"training \d: preempted 1 times; resumed from ",
        r"All three have the same weights to the last bit",
    ):
        assert re.search(line, said), (line, said)
    home = home_of(said.splitlines()[0])
    assert not home.exists() and not users_of(home)


@pytest.mark.slow
def test_interrupted_it_leaves_nothing_behind(demo: subprocess.Popen[str]) -> None:
    assert demo.stdout is not None
    home = home_of(demo.stdout.readline())
    seen = []
    for line in demo.stdout:
        seen.append(line)
        if "training 1 runs" in line:
            break
    assert users_of(home), seen
    os.killpg(demo.pid, signal.SIGINT)  # as a terminal does
    said, _ = demo.communicate(timeout=2 * WAIT_SECONDS)
    assert demo.returncode == 130, said
    assert "Everything that was started is gone" in said and "Traceback" not in said
    assert not home.exists() and not users_of(home)
