"""The hint's signal reaches those that listen and ends nobody else."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cede.talk import signals
from cede.talk.conversation import Conversation
from cede.talk.heard import Saved
from tests.checkpoint.hosting import PROGRAMS, Host, wait_for

pytestmark = pytest.mark.system


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path, "signal")
    yield host
    host.close()


def test_a_shell_around_the_program_survives(host: Host) -> None:
    script = f"sleep 60 & {sys.executable} {PROGRAMS / 'loop.py'} obey; echo over"
    host.run("bash", "-c", script)
    assert host.process is not None
    before = set(signals.group(host.process.pid))
    assert len(before) == 3
    host.conversation.hint(1, 30)
    assert host.listen(Saved).number == 1
    assert set(signals.group(host.process.pid)) == before


def test_the_signal_is_sent_again_until_somebody_listens(host: Host) -> None:
    script = "echo ready; until [ -e go ]; do sleep 0.02; done; trap 'echo asked' USR1; "
    host.run("bash", "-c", script + "while :; do sleep 0.02; done")
    host.conversation.hint(1, 30)
    host.listen_for(0.2)
    (host.folder / "go").touch()

    def is_asked() -> bool:
        host.conversation.poll(0)
        return "asked" in host.said()

    wait_for(is_asked)
    host.listen_for(0.3)
    assert host.said().count("asked") == 1


def test_a_host_that_died_before_it_sent_sends_again(host: Host) -> None:
    host.run("bash", "-c", "trap 'echo asked' USR1; echo ready; while :; do sleep 0.02; done")

    def die(number: int) -> None:
        raise KeyboardInterrupt

    dying = Conversation(host.talk, host.checkpoints, "signal", die)
    dying.open()
    with pytest.raises(KeyboardInterrupt):
        dying.hint(1, 30)
    assert "asked" not in host.said()
    host.restart()
    wait_for(lambda: "asked" in host.said())
    host.restart()
    host.listen_for(0.2)
    assert host.said().count("asked") == 1


def test_nobody_is_reached_where_nobody_listens(host: Host) -> None:
    host.run("sleep", "60", ready="")
    assert host.process is not None
    assert list(signals.group(host.process.pid)) == [host.process.pid]
    assert not signals.send([host.process.pid, 2**22 + 1], signal.SIGUSR1)
    assert host.process.poll() is None
