"""The example: preempted at any step, it ends with the same weights to the last bit."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from cede.checkpoint import manifest, shelf
from cede.checkpoint.manifest import Saved as Checkpoint
from cede.talk.heard import Saved
from tests.checkpoint.hosting import PATIENCE, PROGRAMS, Host, wait_for

pytestmark = pytest.mark.system

TRAIN = Path(__file__).parents[2] / "examples" / "training" / "train.py"
STEPS = "200"
EVERY = 40


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    command = [sys.executable, TRAIN, "--steps", STEPS]
    folder = tmp_path_factory.mktemp("undisturbed")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return result(done.stdout)


def result(said: str) -> str:
    found = re.search(r"^weights [0-9a-f]{64}\nwrong by (\S+) on average$", said, re.MULTILINE)
    assert found is not None, said
    assert float(found[1]) < 0.4, "it has learned nothing"
    return found[0]


def train(host: Host, resume: Checkpoint | None, *, rests: bool = True) -> None:
    """With rests it does not end before whatever comes."""
    options = ("--steps", STEPS, "--every", str(EVERY), "--pause", "0.05")
    path, go = resume.path if resume else None, host.folder / "go"
    if not rests:
        go.touch()
    command = (sys.executable, PROGRAMS / "resting.py", go, TRAIN, *options)
    host.run(*command, resume=path, ready="anew" if path is None else "from")
    if resume is not None:
        assert f"resumed from {resume.id}" in host.said()


def test_preempted_three_times_it_comes_out_the_same(host: Host, undisturbed: str) -> None:
    saved: Checkpoint | None = None
    for _ in range(3):
        train(host, saved)
        host.conversation.hint(1, 30)
        answer = host.listen_for_answer(1).saved
        assert answer.step > (saved.step if saved else 0)
        saved = answer
        host.next_attempt()  # kill -9
    train(host, saved, rests=False)
    assert host.process is not None and host.process.wait(PATIENCE) == 0
    assert result(host.said()) == undisturbed


def test_killed_without_a_word_it_loses_one_interval_at_most(
    tmp_path: Path, undisturbed: str
) -> None:
    with closing(Host(tmp_path, "signal")) as host:
        train(host, None)
        saved = host.listen(Saved).saved
        wait_for(lambda: f"step {saved.step} " in host.said())
        host.next_attempt()
        reached = max(int(step) for step in re.findall(r"^step (\d+) ", host.said(), re.MULTILINE))
        newest = manifest.verify(host.checkpoints, shelf.good(host.checkpoints).ids[0])
        assert newest.step % EVERY == 0 and 0 <= newest.step - reached <= EVERY
        train(host, newest, rests=False)
        assert host.process is not None and host.process.wait(PATIENCE) == 0
        assert result(host.said()) == undisturbed
