"""What is printed, for people and for programs."""

from __future__ import annotations

import csv
import io
import json

import pytest
import yaml

from cede.cli.lists import Listing
from cede.cli.printing import cell, print_one

ROWS = [
    {"id": "0190-a", "name": "training", "capacity": {"gpu": 8}, "hidden": [1]},
    {"id": "0190-b", "name": "a,b", "capacity": {}, "hidden": None},
]


def print_rows(rows: list, columns: tuple[str, ...], output: str, **more: str) -> None:
    Listing(columns, output).print(rows, **more)


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_programs_get_everything(output: str, read: object, capsys: pytest.CaptureFixture) -> None:
    print_rows(ROWS, ("id",), output)
    assert read(capsys.readouterr().out) == ROWS


@pytest.mark.parametrize(("output", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_separated_values_survive_the_way_back(
    output: str, delimiter: str, capsys: pytest.CaptureFixture
) -> None:
    print_rows(ROWS, ("name", "capacity"), output)
    text = io.StringIO(capsys.readouterr().out)
    read = list(csv.DictReader(text, delimiter=delimiter))
    assert [each["name"] for each in read] == ["training", "a,b"]
    assert json.loads(read[0]["capacity"]) == {"gpu": 8}


def test_a_table_shows_the_chosen_columns(capsys: pytest.CaptureFixture) -> None:
    print_rows(ROWS, ("id", "name", "capacity"), "table")
    out = capsys.readouterr().out
    assert "gpu: 8" in out and "hidden" not in out


def test_ids_are_never_cut(capsys: pytest.CaptureFixture) -> None:
    long = "0" * 36
    print_rows([{"id": long, "name": "x" * 400}], ("name", "id"), "table")
    assert long in capsys.readouterr().out


def test_nothing_is_said_on_stderr_and_programs_get_an_empty_list(
    capsys: pytest.CaptureFixture,
) -> None:
    print_rows([], ("id",), "table", empty="no pools")
    assert capsys.readouterr() == ("", "no pools\n")
    print_rows([], ("id",), "json")
    assert capsys.readouterr().out == "[]\n"


def test_control_characters_and_markup_do_not_reach_the_terminal(
    capsys: pytest.CaptureFixture,
) -> None:
    assert "\x1b" not in cell("\x1b[31mred\nline")
    print_rows([{"id": "[bold]x[/bold]"}], ("id",), "table")
    assert "[bold]x[/bold]" in capsys.readouterr().out


def test_one_thing_is_its_fields(capsys: pytest.CaptureFixture) -> None:
    print_one({"id": "a", "preempted_count": 2, "free": True}, ("id", "preempted_count"), "table")
    assert capsys.readouterr().out.splitlines() == ["id               a", "preempted count  2"]
