"""A table fits its width and loses nothing."""

from __future__ import annotations

from cede.cli.table import render, text_width

ROWS = [["0190", "a text of several words", "z" * 30], ["0191", "短い", ""]]


def lines(width: int, **options: object) -> list[str]:
    return list(render(("id", "said", "long"), ROWS, width=width, whole=("id",), **options))


def test_a_table_that_fits_has_a_line_per_row() -> None:
    assert lines(80) == [
        "id    said                     long",
        "────  ───────────────────────  ──────────────────────────────",
        "0190  a text of several words  " + "z" * 30,
        "0191  短い",
    ]


def test_a_narrow_table_folds_its_texts_and_keeps_its_ids() -> None:
    for width in (40, 25, 18):
        found = lines(width)
        assert max(map(text_width, found)) <= width
        assert "".join(each[-30:] for each in found).count("z") == 30
        words = " ".join(found).split()
        assert {"0190", "0191", "several", "words"} <= set(words) or width < 25
    # Too narrow for anything: the lines are too long, and everything is there.
    assert "".join(lines(3)).count("z") == 30


def test_wide_characters_take_two_columns() -> None:
    found = list(render(("a", "b"), [["短い", "1"], ["ab", "2"]], width=80, rule="-"))
    assert found == ["a     b", "----  -", "短い  1", "ab    2"]


def test_a_header_is_bold_where_that_is_asked() -> None:
    assert lines(80, bold=True)[0].startswith("\x1b[1mid ")
