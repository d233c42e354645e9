"""What coverage, invariants and differences name as their proof is there."""

from __future__ import annotations

import re

import pytest

from tests.docs import names
from tests.docs.names import ROOT

DOCS = ROOT / "docs"
# A page, and how many statements of its document it has at least.
COVERAGE = {
    "coverage.md": 45,
    "coverage-001.md": 45,
    "coverage-002.md": 45,
    "coverage-003.md": 40,
    "coverage-004.md": 20,
}


@pytest.mark.parametrize("page", [*COVERAGE, "invariants.md", "explanation/differences.md"])
def test_everything_named_is_there(page: str) -> None:
    assert names.missing((DOCS / page).read_text()) == []


@pytest.mark.parametrize("page", COVERAGE)
def test_every_statement_names_its_proof(page: str) -> None:
    rows = names.rows((DOCS / page).read_text(), r"00\d-\d+")
    assert len(rows) >= COVERAGE[page]
    for number, _statement, proof in rows:
        assert any(names.is_there(each) for each in names.named(proof)), number


def test_statements_are_numbered_without_gap() -> None:
    for page, document in zip(COVERAGE, ("000", "001", "002", "003", "004"), strict=True):
        numbers = [row[0] for row in names.rows((DOCS / page).read_text(), r"00\d-\d+")]
        assert numbers == [f"{document}-{n}" for n in range(1, len(numbers) + 1)]
        count = re.search(rf"\| {document} \| (\d+) \|", (DOCS / "coverage.md").read_text())
        assert count and int(count[1]) == len(numbers)


def test_a_bounded_statement_is_named_as_such() -> None:
    text = (DOCS / "coverage.md").read_text()
    bounded = [row[0] for row in names.rows(text, r"000-\d+") if "**Bounded**" in row[2]]
    assert bounded == re.findall(r"^- (000-\d+),", text, re.MULTILINE)


def test_every_invariant_in_force_has_its_proof() -> None:
    text = (DOCS / "invariants.md").read_text().split("## Not yet")[0]
    rows = names.rows(text, r"[SLCK]\d+( .+)?")
    assert len(rows) >= 60
    for row in rows:
        proof = row[-1]
        short = {"A!", "W!", "N!", "M!", "W"} & set(proof.replace(",", " ").split())
        assert short or any(names.is_there(each) for each in names.named(proof)), row[0]


def test_what_the_audit_is_said_to_notice_it_notices() -> None:
    text = (DOCS / "invariants.md").read_text()
    broken = (ROOT / "tests" / "engine" / "test_audit.py").read_text()
    said = [row[0].split()[0] for row in names.rows(text, r"S\d+ .+") if "A!" in row[-1]]
    assert len(said) >= 8
    assert [each for each in said if f'"{each} ' not in broken] == []


def test_every_id_is_in_force_or_not_yet() -> None:
    text = (DOCS / "invariants.md").read_text()
    found = set(re.findall(r"\b([SLCK]\d+)\b", text))
    last = {"S": 33, "L": 10, "C": 13, "K": 20}
    assert found == {f"{kind}{n}" for kind, most in last.items() for n in range(1, most + 1)}


@pytest.mark.parametrize(
    "name",
    [
        "tests/docs/test_names.py::test_that_is_not_there",
        "tests/nowhere.py::test_everything_named_is_there",
        "victims/a_story_nobody_told",
        "example 99",
    ],
)
def test_a_name_that_leads_nowhere_is_found(name: str) -> None:
    assert names.missing(f"see `{name}`") == [name]


def test_names_that_lead_somewhere_are_not_reported() -> None:
    assert names.missing("`cede/up`, `tests/docs/test_names.py`, `victims`, `example`") == []
    here = "`tests/docs/test_names.py::test_statements_are_numbered_without_gap`"
    assert names.missing(f"{here}, `documented/b_in_share_is_protected`, `example 07`") == []
