"""What an application does to its own directories harms nobody else."""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cede.checkpoint import words
from cede.talk.heard import Answered, Progress, Reach, SaveFailed
from tests.checkpoint.hosting import Host

ANSWERS: dict[str, bytes | Callable[[Path], object]] = {
    "nothing": b"",
    "not JSON": b"{",
    "a list": b"[]",
    "deep": b"[" * 10_000,
    "large": b'{"number": 1, "why": "' + b"x" * 20_000 + b'"}',
    "a number as text": b'{"number": "1"}',
    "a number that is none": b'{"number": true}',
    "another number": b'{"number": 2}',
    "a large number": b'{"number": 1' + b"0" * 5000 + b"}",
    "a FIFO": os.mkfifo,
    "a folder": os.mkdir,
    "a link": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.fixture
def quiet(tmp_path: Path) -> Iterator[Host]:
    """A host whose application only sleeps: what it might have written, the test writes."""
    host = Host(tmp_path, "signal")
    host.run("sleep", "60", ready="")
    yield host
    host.close()


@pytest.mark.parametrize("case", ANSWERS)
def test_an_answer_that_is_none_is_not_heard(case: str, quiet: Host) -> None:
    quiet.conversation.hint(1, 30)
    answer = ANSWERS[case]
    path = quiet.talk / "answer.json"
    path.write_bytes(answer) if isinstance(answer, bytes) else answer(path)
    assert quiet.conversation.poll(0) == []


STEPS = {
    **{name: made for name, made in ANSWERS.items() if name not in ("large", "a large number")},
    "large": b'{"number": 1, "step": 5, "why": "' + b"x" * 2000 + b'"}',
    "no step": b'{"number": 1}',
    "half a step": b'{"number": 1, "step": 1.5}',
    "a step that is none": b'{"number": 1, "step": true}',
    "a step back": b'{"number": 1, "step": -1}',
    "a step too far": b'{"number": 1, "step": 9007199254740992}',
    "of another hint": b'{"number": 2, "step": 5}',
}


@pytest.mark.parametrize("case", STEPS)
def test_a_step_that_is_none_is_not_heard(case: str, quiet: Host) -> None:
    quiet.conversation.hint(1, 30)
    step, path = STEPS[case], quiet.talk / "reach.json"
    path.write_bytes(step) if isinstance(step, bytes) else step(path)
    assert quiet.conversation.poll(0) == []


def test_a_step_is_heard_once_and_again_when_it_changes(quiet: Host) -> None:
    path = quiet.talk / "reach.json"
    path.write_text('{"number": 1, "step": 5}')
    assert quiet.conversation.poll(0) == [], "nothing was asked"
    quiet.conversation.hint(1, 30)
    assert quiet.conversation.poll(0) == [Reach(1, 5)]
    assert quiet.conversation.poll(0) == []
    path.write_text('{"number": 1, "step": 9, "more": []}')
    assert quiet.conversation.poll(0) == [Reach(1, 9)]
    quiet.restart()
    assert quiet.conversation.poll(0) == [Reach(1, 9)], "a new host has not heard of it"
    quiet.conversation.go_on()
    path.write_text('{"number": 1, "step": 12}')
    assert quiet.conversation.poll(0) == []


def test_what_is_agreed_stands_in_a_file_until_the_next_attempt(quiet: Host) -> None:
    path = quiet.talk / "agreed.json"
    quiet.conversation.hint(1, 30)
    quiet.conversation.agree(1, 40)
    assert json.loads(path.read_text()) == {"number": 1, "step": 40}
    written = path.stat().st_ino
    quiet.conversation.agree(1, 40)
    assert path.stat().st_ino == written, "said twice is said once"
    quiet.conversation.agree(1, 80)
    assert json.loads(path.read_text()) == {"number": 1, "step": 80}
    (quiet.talk / "reach.json").write_text('{"number": 1, "step": 5}')
    quiet.restart()
    assert path.exists()
    quiet.next_attempt()
    assert not path.exists() and not (quiet.talk / "reach.json").exists()


def test_a_step_that_cannot_be_told_stops_no_host(quiet: Host) -> None:
    (quiet.talk / "agreed.json").mkdir()
    quiet.conversation.hint(1, 30)
    quiet.conversation.agree(1, 40)
    assert quiet.conversation.poll(0) == []


def test_an_answer_with_wrong_parts_is_heard_without_them(quiet: Host) -> None:
    quiet.conversation.hint(1, 30)
    (quiet.talk / "answer.json").write_text(
        '{"number": 1, "status": "mad", "progress": NaN, "estimate": -1, "deferral": [], "why": 3}'
    )
    assert quiet.conversation.poll(0) == [Answered(1)]
    (quiet.talk / "answer.json").write_text('{"number": 1, "progress": 7, "estimate": 1e300}')
    assert quiet.conversation.poll(1) == [Progress(1, 1.0, words.SECONDS_MAX)]


def test_a_hint_that_cannot_be_given_is_a_failed_save(quiet: Host) -> None:
    (quiet.talk / "hint.json").mkdir()
    quiet.conversation.hint(1, 30)
    (failed,) = quiet.conversation.poll(0)
    assert isinstance(failed, SaveFailed) and "cannot be asked" in failed.reason


def test_a_flag_that_cannot_be_replaced_stops_no_host(tmp_path: Path) -> None:
    host = Host(tmp_path, "shm")
    host.run("true", ready="")
    (host.talk / "flag").unlink()
    (host.talk / "flag" / "trap").mkdir(parents=True)
    host.restart()
    assert isinstance(host.listen(SaveFailed), SaveFailed)
    host.close()


def test_without_its_directory_there_are_no_checkpoints(quiet: Host) -> None:
    shutil.rmtree(quiet.checkpoints)
    quiet.conversation.hint(1, 30)
    assert quiet.conversation.poll(0) == []


def test_a_socket_of_somebody_else_is_not_called(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "other"))
        other.listen()
        other.settimeout(0.6)
        host = Host(tmp_path, "grpc")
        (host.talk / "app.sock").symlink_to("../other")
        host.conversation.hint(1, 30)
        with pytest.raises(TimeoutError):
            other.accept()
        host.close()


def test_a_flood_of_answers_is_read_slowly(tmp_path: Path) -> None:
    from cede.checkpoint.grpc_line import GrpcLine

    host = Host(tmp_path, "grpc")
    line = GrpcLine(host.talk)
    host.conversation.hint(1, 30)
    is_over = threading.Event()

    def flood() -> None:
        count = 0
        while not is_over.is_set():
            count += 1
            line.tell(words.Answer(1, words.Status.SAVING, count % 1000 / 1000))

    thread = threading.Thread(target=flood)
    thread.start()
    start = time.monotonic()
    host.run("true", ready="")
    host.listen(Progress)
    host.listen_for(0.5)
    most = (time.monotonic() - start) * 100 + 10
    is_over.set()
    thread.join()
    host.close()
    assert len([each for each in host.heard if isinstance(each, Progress)]) < most
