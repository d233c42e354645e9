"""Real tasks of a gang, each in its own process and at its own pace, save at one step."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cede.checkpoint import files
from cede.talk.heard import Saved
from tests.checkpoint.gangs import GangHost
from tests.checkpoint.hosting import wait_for

pytestmark = pytest.mark.system

# Task 1 notices everything later than task 0, and each counts for itself.
COUNTS = """
import os, time
import cede.checkpoint as checkpoint

resume = checkpoint.resume_from()
done = int((resume / "done").read_text()) if resume else 0
print("from", done, flush=True)
while True:
    time.sleep(0.004 * (1 + int(os.environ["CEDE_TASK"])))
    done += 1
    if checkpoint.step(done):
        with checkpoint.saving() as directory:
            (directory / "done").write_text(str(done))
        print("saved", done, checkpoint.stopping(), flush=True)
"""
LOOP = """
import os, time
import cede.checkpoint as checkpoint

print("ready", flush=True)
for step in checkpoint.steps(None, every=EVERY):
    time.sleep(0.004)
    if checkpoint.should_save():
        with checkpoint.saving() as directory:
            (directory / "done").write_text(str(step + 1))
        print("saved", step + 1, flush=True)
"""


@pytest.fixture(params=["signal", "shm", "grpc"])
def gang(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GangHost]:
    gang = GangHost(tmp_path, request.param)
    yield gang
    gang.close()


@pytest.fixture
def signal_gang(tmp_path: Path) -> Iterator[GangHost]:
    gang = GangHost(tmp_path, "signal")
    yield gang
    gang.close()


def test_they_save_at_one_step_and_go_on_from_it(gang: GangHost) -> None:
    gang.run(sys.executable, "-c", COUNTS)
    gang.listen(lambda: all("from 0" in host.said() for host in gang.hosts))
    gang.hint(1)
    gang.listen(lambda: gang.agreed > 0 and gang.have_answered())
    (id,) = set.intersection(*gang.ids(1))
    assert id == f"{gang.agreed:06d}-1"
    for host in gang.hosts:
        wait_for(lambda host=host: f"saved {gang.agreed} False" in host.said())
    agreed = gang.agreed
    gang.next_attempt()
    gang.run(sys.executable, "-c", COUNTS, resume=id, attempt=2)
    gang.listen(lambda: all(f"from {agreed}\n" in host.said() for host in gang.hosts))
    gang.hint(1)
    gang.listen(lambda: gang.agreed > agreed and gang.have_answered())
    assert set.intersection(*gang.ids(1)) == {f"{gang.agreed:06d}-2"}


def test_a_step_that_moves_on_is_saved_at_once_more(signal_gang: GangHost) -> None:
    gang = signal_gang
    gang.run(sys.executable, "-c", LOOP.replace("EVERY", "None"))
    gang.listen(lambda: all("ready" in host.said() for host in gang.hosts))
    gang.hint(1)
    gang.listen(lambda: gang.agreed > 0 and gang.have_answered())
    first = gang.agreed
    gang.floor = first + 500  # a third task has passed it, and looks further ahead
    gang.listen(lambda: gang.agreed > first and gang.have_answered())
    assert f"{first:06d}-1" in set.intersection(*gang.ids(1))


def test_an_interval_before_the_agreed_step_does_not_answer(signal_gang: GangHost) -> None:
    gang = signal_gang
    gang.run(sys.executable, "-c", LOOP.replace("EVERY", "10"))
    gang.listen(lambda: all("saved 10\n" in host.said() for host in gang.hosts))
    gang.hint(1)
    gang.listen(lambda: gang.agreed > 0 and gang.have_saved())
    id = f"{gang.agreed:06d}-1"
    for host in gang.hosts:
        wait_for(lambda host=host: id in (host.talk / "answer.json").read_text())


def test_without_an_agreed_step_it_saves_before_the_deadline(signal_gang: GangHost) -> None:
    gang = signal_gang
    gang.run(sys.executable, "-c", COUNTS)
    gang.hint(1, seconds=4.0)
    gang.listen(lambda: all(gang.ids(1)), relays=False)


def test_under_an_agent_that_agrees_on_nothing_it_saves_at_once(signal_gang: GangHost) -> None:
    """The hint of an older version has no word of it."""
    gang = signal_gang
    gang.run(sys.executable, "-c", COUNTS)
    gang.listen(lambda: all("from 0" in host.said() for host in gang.hosts))
    for host in gang.hosts:
        hint = {"number": 1, "deadline": 1e9, "withdrawn": False, "goes_on": False}
        (host.folder / "hint").write_text(json.dumps(hint))
        (host.folder / "hint").rename(host.talk / files.HINT)
    gang.listen(lambda: all(gang.saved), relays=False)
    assert all(isinstance(saved[0], Saved) for saved in gang.saved)
