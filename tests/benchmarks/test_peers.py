"""What the comparison with peers does whoever the peers are: skip, measure, compare, write."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.peers import page
from benchmarks.peers.__main__ import main
from benchmarks.peers.peer import SLOTS, WIDE, Peer, Preemption, Stage

PAGE = f"# Title\n\nbefore\n\n{page.BEGIN}\nold\n{page.END}\n\nafter\n"
SMALL = ["--jobs", "2", "--rounds", "2"]


class Pretended(Peer):
    name, alike, unlike = "quick", "this", "that"

    def __init__(self, rate: float = 10.0, variant: str = "") -> None:
        super().__init__()
        self.rate, self.variant = rate, variant
        self.asked: list[int] = []

    def version(self) -> str:
        return "1.2"

    def start(self, home: Path) -> None:
        self.home = home

    def jobs(self, number: int) -> float:
        self.asked.append(number)
        return self.rate

    def preempt(self) -> Preemption:
        return Preemption(0.5, 40, self.rate)


class NotHere(Pretended):
    name = "absent"

    def missing(self) -> str:
        return "no such | package"

    def start(self, home: Path) -> None:
        raise AssertionError("started although it is not here")


class Failing(Pretended):
    name = "failing"

    def start(self, home: Path) -> None:
        super().start(home)
        self.started.callback(home.joinpath("stopped").unlink)
        home.joinpath("stopped").touch()

    def one_by_one(self, number: int) -> float:
        raise RuntimeError("it broke")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def test_the_table_stands_between_the_marks_and_nothing_else_changes(file: Path) -> None:
    for _ in range(2):
        assert main([*SMALL, "--page", str(file)], {"quick": [Pretended]}) == 0
    text = file.read_text()
    assert text.startswith(f"# Title\n\nbefore\n\n{page.BEGIN}\nMeasured on ")
    assert text.endswith(f"|\n{page.END}\n\nafter\n") and "old" not in text
    assert text.count("| quick | 1.2 | 10.0 | has none | has none | 0.5 s; 40; 10.0 s |") == 1
    assert text.count("| quick | this | that |") == 1


@pytest.mark.parametrize("text", ["no marks", f"{page.END}\n{page.BEGIN}\n", page.BEGIN])
def test_a_page_without_its_marks_is_left_alone(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(ValueError, match="needs one line"):
        page.write(file, "made")
    assert file.read_text() == text


def test_what_is_not_here_is_skipped_aloud(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    peers = {"quick": [Pretended], "absent": [NotHere]}
    assert main([*SMALL, "--page", str(file)], peers) == 0
    said = "*** NOTICE: absent is SKIPPED: no such | package ***"
    assert said in capsys.readouterr().err
    assert "| absent |  | skipped: no such \\| package |  |  |  |" in file.read_text()
    assert "| quick | 1.2 | 10.0 |" in file.read_text()


def test_what_fails_is_stopped_and_said_and_the_others_are_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failing = Failing()
    assert main(SMALL, {"failing": [lambda: failing], "quick": [Pretended]}) == 1
    found = capsys.readouterr()
    assert "*** FAILED: failing: RuntimeError('it broke') ***" in found.err
    assert "| failing | 1.2 | 10.0 | failed | failed | failed |" in found.out
    assert "| quick | 1.2 | 10.0 (1.00 of failing) | has none" in found.out
    assert not failing.home.exists()


def test_the_best_variant_counts_for_each_figure(capsys: pytest.CaptureFixture[str]) -> None:
    slow, quick = Pretended(5.0, "slow"), Pretended(20.0, "quick")
    assert main(SMALL, {"base": [Pretended], "two": [lambda: slow, lambda: quick]}) == 0
    said = "| quick | 1.2 | 20.0 (2.00 of quick), quick | has none | has none "
    # Fewer seconds are better.
    assert f"{said}| 0.5 s; 40; 5.0 s, slow |" in capsys.readouterr().out
    assert slow.asked == [2, 2, 2]  # the first is to warm


def test_a_preemption_is_read_from_what_the_programs_wrote(tmp_path: Path) -> None:
    stage = Stage(tmp_path)

    def write(word: str, times: int, at: float) -> None:
        with stage.lines.open("a") as lines:
            lines.writelines(f"{word} {at + number / 100}\n" for number in range(times))

    def come() -> None:
        five = SLOTS // WIDE
        write("wide", five, 4e9)
        write("ended", five, 4e9 + 10)
        write("narrow", SLOTS, 4e9 + 12)

    found = stage.play(lambda: write("narrow", SLOTS, 1.0), come)
    assert found.stopped == SLOTS
    assert found.back == pytest.approx(2 + (SLOTS - SLOTS // WIDE) / 100)


def test_an_unknown_peer_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["nobody"], {"quick": [Pretended]})
    assert "no such peer: nobody; there are quick" in capsys.readouterr().err
