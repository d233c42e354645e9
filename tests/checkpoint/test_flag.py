"""The mapped page: C programs can take part, half an answer is none, a cut file is no trap."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cede.checkpoint import flag
from cede.checkpoint.words import Answer, Hint, Status
from cede.talk.heard import Answered, Deferral, Progress
from tests.checkpoint.hosting import PATIENCE, PROGRAMS, Host, wait_for


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path, "shm")
    yield host
    host.close()


@pytest.fixture
def program(tmp_path: Path) -> Path:
    if (compiler := shutil.which("gcc") or shutil.which("cc")) is None:
        pytest.skip("NO C COMPILER: that a C program can take part in the protocol was not tested")
    made = tmp_path / "program"
    source = str(PROGRAMS / "flag.c")
    subprocess.run([compiler, "-O1", "-Wall", "-Werror", "-o", str(made), source], check=True)
    return made


@pytest.mark.system
def test_a_c_program_takes_part(host: Host, program: Path) -> None:
    host.run(program, host.talk / "flag")
    host.conversation.hint(7, 30)
    assert host.listen(Deferral) == Deferral(7, 1, 7.0, "in C")
    assert host.heard[0] == Answered(7)
    assert Progress(7, None, 12.5) in host.heard
    host.conversation.go_on()
    wait_for(lambda: "withdrawn 7" in host.said())


@pytest.mark.system
def test_no_reader_sees_half_an_answer(host: Host, program: Path) -> None:
    host.run(program, host.talk / "flag", "writes")
    host.conversation.hint(1, 30)
    host.listen(Progress)
    good = torn = 0
    descriptor = os.open(host.talk / "flag", os.O_RDONLY)
    end = time.monotonic() + PATIENCE
    while (good < 300 or torn == 0) and time.monotonic() < end:
        page = os.pread(descriptor, flag.SIZE, 0)
        answer = flag.unpack_answer(page)
        if answer is None:
            torn += 1
            continue
        good += 1
        if answer.status is Status.SAVING and answer.fraction is not None:
            assert answer.estimate == answer.fraction
            assert set(answer.why) == {"ab"[int(answer.fraction)]}
    os.close(descriptor)
    assert good >= 300
    assert torn > 0, "nothing was ever torn, so this test has shown nothing"


def test_a_flag_that_is_cut_or_replaced_kills_nobody(host: Host) -> None:
    host.run("sleep", "60", ready="")
    os.truncate(host.talk / "flag", 0)
    host.conversation.hint(1, 30)
    assert host.listen_for(0.1) == []
    (host.talk / "flag").unlink()
    os.mkfifo(host.talk / "flag")
    host.restart()
    assert (host.talk / "flag").is_file()
    assert host.listen_for(0.1) == []


def test_a_flag_with_a_second_name_is_not_written_to(host: Host, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(flag.blank())
    (host.talk / "flag").unlink()
    os.link(other, host.talk / "flag")
    host.restart()
    host.conversation.hint(1, 30)
    assert other.read_bytes() == flag.blank()
    assert flag.unpack_hint((host.talk / "flag").read_bytes()) is not None


def test_what_is_packed_is_unpacked(tmp_path: Path) -> None:
    hint = Hint(3, 12.5)
    answer = Answer(3, Status.DEFERRED, 0.5, None, 2, 60.0, "wörk")
    page = bytearray(flag.blank())
    assert flag.unpack_hint(bytes(page)) is None and flag.unpack_answer(bytes(page)) is None
    for at, block in (
        (flag.HINT_AT, flag.pack_hint(hint)),
        (flag.ANSWER_AT, flag.pack_answer(answer, 9)),
    ):
        page[at : at + len(block)] = block
    assert flag.unpack_hint(bytes(page)) == hint
    assert flag.unpack_answer(bytes(page)) == answer
    page[flag.ANSWER_AT + 20] ^= 1
    assert flag.unpack_answer(bytes(page)) is None
