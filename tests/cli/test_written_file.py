"""Bad snapshot files are refused with the line that is wrong."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from cede.cli.written_file import WrittenFile

GOOD = """\
now: 0
pools:
  - name: a
    capacity: {gpu: 8}
running:
  - id: r1
    pool: a
  - id: r2
    pool: b
"""


def read(tmp_path: Path, text: str | bytes) -> WrittenFile:
    path = tmp_path / "state.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return WrittenFile.read(str(path))


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("running[1].pool", 9),
        ("pools[0].capacity.gpu", 4),
        ("running[7].pool", 5),
        ("running[1].nothing", 8),
        ("elsewhere", 1),
    ],
)
def test_a_path_has_a_line(tmp_path: Path, path: str, line: int) -> None:
    assert read(tmp_path, GOOD).line_of(path) == line


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", ":3: the key 'a' is there twice"),
        ('{"a": 1,\n "b": {"c": 1,\n  "c": 2}}', ":3: the key 'c' is there twice"),
        ("a: 1\nb: [1,\n", ":3:"),
        ('{"a": 1,\n "b" 2}', ":2:"),
        ("- 1\n", ":1: a snapshot is a map"),
        ("", ":1: a snapshot is a map"),
        (b"a: 1\nb: \xff\n", ":2: not UTF-8"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, text: str | bytes, said: str) -> None:
    with pytest.raises(click.ClickException) as caught:
        read(tmp_path, text)
    assert said in caught.value.message


def test_json_is_read_as_json(tmp_path: Path) -> None:
    assert read(tmp_path, '{"now": 0, "pools": []}').data == {"now": 0, "pools": []}


def test_a_missing_file_is_one_line() -> None:
    with pytest.raises(click.ClickException, match="No such file"):
        WrittenFile.read("/nowhere/at/all.yaml")
