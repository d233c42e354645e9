"""What the work prints is kept whole up to its bound, and never holds anything up."""

from __future__ import annotations

from pathlib import Path

import pytest

from cede.launch.logs import Log, read_log
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
