"""What was taken up is on disk before it is acted on, and damage is never overlooked."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from cede.agent.journal import Journal, JournalDamaged, JournalFull
from cede.agent.values import Do, Entry, Key, Kind, Order, Over, Removed, Report, Taken

KEY = Key("r1.1", 0)
ENTRIES: tuple[Entry, ...] = (
    Taken(
        Order(KEY, 1, "r1", Do.RUN, frozenset({"gpu:0", "gpu:1"}), body={"work": {"argv": ["é"]}})
    ),
    Over(Report(KEY, 1, Kind.ENDED, 137, cause="killed", text="SIGKILL")),
    Taken(Order(Key("r2.3", 4), 3, "r2", Do.RUN, keeps_in_silence=True)),
    Removed(KEY),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def written(path: Path) -> bytes:
    journal = Journal(path)
    for each in ENTRIES:
        journal.append(each)
    journal.close()
    return path.read_bytes()


def read(path: Path) -> tuple[Entry, ...]:
    journal = Journal(path)
    journal.close()
    return journal.entries


def test_what_was_written_is_read_again(path: Path) -> None:
    written(path)
    assert read(path) == ENTRIES


def test_a_line_torn_at_any_byte_is_as_if_it_was_never_written(path: Path) -> None:
    whole = written(path)
    last = whole.rindex(b"\n", 0, -1) + 1
    for cut in range(last, len(whole)):
        path.write_bytes(whole[:cut] + b"\0" * (cut % 3))
        journal = Journal(path)
        assert journal.entries == ENTRIES[:-1]
        journal.append(ENTRIES[-1])
        journal.close()
        assert path.read_bytes() == whole


def test_any_changed_byte_is_found_and_named(path: Path) -> None:
    whole = written(path)
    for at in range(0, len(whole) - 1, 3):
        if whole[at] != ord("\n"):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises(JournalDamaged, match="line"):
                Journal(path)


def test_rewriting_keeps_what_it_is_given_and_goes_on(path: Path) -> None:
    written(path)
    journal = Journal(path)
    journal.rewrite(ENTRIES[2:3])
    journal.append(ENTRIES[3])
    journal.close()
    assert read(path) == ENTRIES[2:]


def test_a_rewriting_is_due_when_the_journal_has_doubled(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(path)
    journal.append(*ENTRIES)
    assert not journal.has_grown  # it is short
    monkeypatch.setattr("cede.agent.journal.COMPACT_BYTES", 100)
    assert journal.has_grown
    journal.rewrite(ENTRIES)  # all of them are still needed: another rewriting would save nothing
    assert not journal.has_grown
    journal.append(*ENTRIES)
    assert not journal.has_grown
    journal.append(ENTRIES[-1])
    assert journal.has_grown
    journal.close()


def test_a_full_disk_keeps_what_was_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(path)
    journal.append(ENTRIES[0])
    real = os.pwrite

    def half(file: int, data: bytes, at: int) -> int:
        if len(data) > 20:
            return real(file, data[:20], at)
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "pwrite", half)
    with pytest.raises(JournalFull):
        journal.append(ENTRIES[1])
    monkeypatch.undo()
    journal.append(ENTRIES[2])
    journal.close()
    assert read(path) == (ENTRIES[0], ENTRIES[2])
