"""What the work prints is kept whole up to its bound, and never holds anything up."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from cede.launch.launcher import sweep
from cede.launch.logs import STREAMS, Log, read_log
from cede.launch.order import RECORD, NoOrder, Order, read_output
from cede.launch.places import Place
from tests.launch.conftest import Make
from tests.launch.support import until

MOST = 4096


@pytest.mark.system
def test_both_streams_are_bounded_and_rotated(make: Make) -> None:
    script = "for i in $(seq 3000); do echo line $i; echo error $i >&2; done"
    attempt = make("sh", "-c", script, log_bytes=MOST)
    attempt.launch().close()
    assert attempt.ended()["code"] == 0
    for stream, word in (("stdout", "line"), ("stderr", "error")):
        files = [attempt.directory / f"{stream}.log{end}" for end in (".1", "")]
        assert files[0].stat().st_size == MOST
        assert files[1].stat().st_size <= MOST
        kept = "".join(each.read_text() for each in files).splitlines()[1:]
        assert kept[-1] == f"{word} 3000"
        first = int(kept[0].split()[1])
        assert kept == [f"{word} {number}" for number in range(first, 3001)]


@pytest.mark.system
def test_what_was_printed_last_is_not_lost(make: Make) -> None:
    attempt = make("sh", "-c", "head -c 60000 /dev/zero | tr '\\0' x; echo; echo last words")
    attempt.launch().close()
    attempt.ended()
    assert attempt.output() == "x" * 60000 + "\nlast words\n"


@pytest.mark.system
def test_a_disk_that_refuses_loses_lines_and_not_the_work(make: Make) -> None:
    attempt = make("sh", "-c", "seq 9999; exit 6", log_bytes=MOST)
    # Nothing can be renamed over a directory, so every rotation fails.
    (attempt.directory / "stdout.log.1").mkdir()
    (attempt.directory / "stdout.log.1" / "in the way").touch()
    attempt.launch().close()
    assert attempt.ended()["code"] == 6
    assert attempt.output().startswith("1\n2\n3\n")


def test_a_rotation_that_failed_is_done_again(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        log = Log(place, "stdout", MOST)
        log.write(b"a" * MOST)
        (tmp_path / "stdout.base").mkdir()  # nothing can be renamed over a directory
        log.write(b"lost")
        (tmp_path / "stdout.base").rmdir()
        log.write(b"kept")
        assert read_log(place, "stdout", MOST, 100) == (MOST, b"kept")


def written(place: Place, *pieces: bytes) -> bytes:
    log = Log(place, "stdout", MOST)
    for each in pieces:
        log.write(each)
    return b"".join(pieces)


def test_a_reader_gets_every_byte_that_is_kept_by_its_position(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        text = written(place, *(f"{number:07}\n".encode() for number in range(1500)))
        oldest = len(text) // MOST * MOST - MOST
        assert read_log(place, "stdout", 0, 10**6) == (oldest, text[oldest:])
        assert read_log(place, "stdout", oldest + 5, 10) == (oldest + 5, text[oldest + 5 :][:10])
        edge = oldest + MOST - 4
        assert read_log(place, "stdout", edge, 8) == (edge, text[edge : edge + 8])
        late = len(text) - 3
        assert read_log(place, "stdout", late, 100) == (late, text[late:])
        assert read_log(place, "stdout", len(text), 100) == (len(text), b"")


def test_nothing_printed_is_nothing_read(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        assert read_log(place, "stdout", 0, 100) == (0, b"")
        written(place)
        assert read_log(place, "stdout", 0, 100) == (0, b"")
        written(place, b"hello")
        assert read_log(place, "stdout", 0, 100) == (0, b"hello")


@pytest.mark.system
def test_a_reader_in_the_middle_of_rotations_never_reads_wrong(make: Make) -> None:
    """Every line of eight bytes says its own position."""
    script = "i=0; while :; do printf '%07d\\n' $i; i=$((i + 1)); done"
    attempt = make("sh", "-c", script, log_bytes=MOST)
    with attempt.launch() as kept, Place(attempt.directory) as place:
        until(lambda: read_log(place, "stdout", 0, 1)[0] > 0, "the first rotation")
        position = 0
        while position < 20 * MOST:
            position, data = read_log(place, "stdout", position, 800)
            whole = data[-position % 8 :]
            first = (position + -position % 8) // 8
            for number, start in enumerate(range(0, len(whole) - 7, 8)):
                assert whole[start : start + 8] == f"{first + number:07}\n".encode()
            position += len(data)
        kept.kill()
        attempt.ended()


def both(directory: Path, stream: str = "both", most: int = 10**6, **which: Any) -> str:
    """All that a reader gets who asks for the first piece in some way and then for the rest."""
    whole = b""
    with Place(directory) as place:
        found = read_output(place, stream, 0, most, over=True, **which)
        while True:
            whole += found.data
            if found.end:
                return whole.decode()
            position = found.start + len(found.data)
            found = read_output(place, stream, position, most, over=True)
            assert found.start == position and found.data


@pytest.mark.system
@pytest.mark.parametrize("rounds", [1, 3, 1000])
def test_both_streams_are_read_in_the_order_in_which_they_were_written(
    make: Make, rounds: int, tmp_path: Path
) -> None:
    """The supervisor sees all of it at once, as on a machine too busy to wake it between."""
    ready, go, done = (tmp_path / name for name in ("ready", "go", "done"))
    script = (
        f": > {ready}; while ! test -e {go}; do sleep 0.01; done; "
        f"for i in $(seq {rounds}); do echo out $i; echo err $i >&2; done; : > {done}"
    )
    attempt = make("sh", "-c", script)
    attempt.launch().close()
    supervisor = attempt.running()["keeper"]
    until(ready.exists, "the start")
    os.kill(supervisor, signal.SIGSTOP)
    go.touch()
    until(done.exists, "the last line")
    os.kill(supervisor, signal.SIGCONT)
    attempt.ended()
    expected = [f"{word} {n}" for n in range(1, rounds + 1) for word in ("out", "err")]
    assert both(attempt.directory).splitlines() == expected


@pytest.mark.system
def test_a_killed_supervisor_loses_nothing_that_it_had_read(make: Make, tmp_path: Path) -> None:
    script = "echo first; echo second >&2; echo third; exec sleep 600"
    attempt = make("sh", "-c", script)
    attempt.launch().close()
    until(lambda: "third" in attempt.output(), "the last line")
    os.kill(attempt.running()["keeper"], signal.SIGKILL)
    attempt.supervisor_gone()
    sweep(attempt.directory)
    assert both(attempt.directory) == "first\nsecond\nthird\n"


class Printing:
    """A supervisor's logs and their order, by a clock of the test's own."""

    def __init__(self, place: Place, most: int = MOST) -> None:
        self.order = Order(place, most)
        self.logs = {stream: Log(place, stream, most) for stream in STREAMS}

    def __call__(self, stream: str, text: str, at: float, *, noted: bool = True) -> None:
        self.logs[stream].write(text.encode())
        positions = {each: log.position for each, log in self.logs.items()}
        if noted:
            self.order.note([(stream, len(text))], positions, at)


def test_what_no_record_covers_comes_last(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        prints = Printing(place)
        prints("stdout", "a\n", 1)
        prints("stderr", "b\n", 2)
        prints("stdout", "c\n", 3, noted=False)
        assert read_output(place, "both", 0, 100, over=False) == (0, b"a\nb\n", False)
        assert both(tmp_path) == "a\nb\nc\n"
        prints("stdout", "d\n", 4)  # its record covers what was left
        assert both(tmp_path) == "a\nb\nc\nd\n"


def test_what_was_printed_since_a_time_is_found(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        prints = Printing(place)
        for second in range(10, 100):
            prints(STREAMS[second % 2], f"{second}\n", second)
        lines = [str(n) for n in range(10, 100)]
        for since in (0, 10, 11, 42.5, 99, 100):
            later = [each for each in lines if int(each) >= since]
            assert both(tmp_path, since=since).split() == later
            assert both(tmp_path, "stdout", since=since).split() == [
                each for each in later if not int(each) % 2
            ]
        # A clock that was set back does not hide anything.
        prints("stdout", "late\n", 5)
        assert both(tmp_path, since=99).split() == ["99", "late"]


@pytest.mark.parametrize("stream", ["stdout", "both"])
def test_the_last_lines_are_found(tmp_path: Path, stream: str) -> None:
    with Place(tmp_path) as place:
        prints = Printing(place, 1 << 20)
        assert both(tmp_path, stream, tail=3) == ""
        lines = [f"{n} {'x' * (n % 300)}" for n in range(1000)]
        for number, line in enumerate(lines):
            to = "stderr" if stream == "both" and number % 3 == 0 else "stdout"
            prints(to, line + "\n", number)
        for tail in (0, 1, 2, 999, 1000, 5000):
            assert both(tmp_path, stream, tail=tail).splitlines() == lines[1000 - min(tail, 1000) :]
        prints("stdout", "no end", 1001)
        assert both(tmp_path, stream, tail=2) == lines[-1] + "\nno end"
        assert both(tmp_path, stream, tail=9, since=1001) == "no end"


@pytest.mark.slow
def test_after_rotations_both_are_read_from_where_both_are_whole(tmp_path: Path) -> None:
    """Small pieces of each stream and a flood of one."""
    chance = random.Random(5)
    with Place(tmp_path) as place:
        prints, whole = Printing(place), ""
        for number in range(3000):
            stream = STREAMS[chance.random() < 0.2]
            text = f"{stream} {number}\n" * chance.choice((1, 1, 5))
            prints(stream, text, number)
            whole += text
            if not number % 100:
                kept = both(tmp_path, most=chance.choice((7, 100, 4096)))
                assert whole.endswith(kept) and len(kept) >= min(len(whole), MOST // 2)
        sizes = {each.name: each.stat().st_size for each in tmp_path.glob("*.log*")}
        assert len(sizes) == 6 and max(sizes.values()) <= MOST


def test_a_byte_at_a_time_does_not_fill_the_disk_with_records(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        prints = Printing(place)
        for number in range(4000):
            prints("stdout", "x", number / 1000)
        assert (tmp_path / "order.log").stat().st_size == 4 * RECORD.size
        assert both(tmp_path) == "x" * 4000


def test_a_full_disk_leaves_no_half_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Place(tmp_path) as place:
        prints = Printing(place)
        prints("stdout", "a\n", 1)
        whole = os.pwrite
        monkeypatch.setattr(os, "pwrite", lambda fd, data, at: whole(fd, data[:9], at))
        prints("stderr", "b\n", 2)
        monkeypatch.undo()
        assert (tmp_path / "order.log").stat().st_size == RECORD.size
        assert both(tmp_path) == "a\nb\n"
        prints("stderr", "c\n", 3)
        assert both(tmp_path) == "a\nb\nc\n"


def test_logs_of_a_supervisor_that_wrote_no_order_say_so(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        assert read_output(place, "both", 0, 9, over=False) == (0, b"", False)  # not begun
        written(place, b"hello")
        for which in ({"stream": "both"}, {"stream": "stdout", "since": 1.0}):
            with pytest.raises(NoOrder):
                read_output(place, position=0, most=9, over=True, **which)
        assert both(tmp_path, "stdout", tail=1) == "hello"
