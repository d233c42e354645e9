"""Every reason reads as a sentence with its numbers in it."""

from __future__ import annotations

import re
from itertools import chain
from typing import Any

import pytest

from cede.model.reason import SENTENCES, Code, Reason
from tests.scenario import tell
from tests.stories import FILES, reasons_in

_STARVES: dict[str, Any] = {
    "pool": "gpus",
    "free": 0,
    "bound": 4,
    "key": "gpu",
    "missing": 1,
    "policy": "blue",
    "stage": "preemptive",
}
# Codes that no story ends in, each with details as its maker gives them.
ELSEWHERE: dict[Code, dict[str, Any]] = {
    Code.NO_POLICY: {"subject": "team:x", "name": "x", "type": "team", "pool": "any pool"},
    Code.UNTRACKED: {"subject": "team:x"},
    Code.NEXT: {"pool": "gpus"},
    Code.NOT_EXHAUSTIVE: {"pool": "gpus", "key": "gpu", "missing": 2},
    Code.RESTORED: {"pool": "gpus", "unknown": "nodes have not said what runs on them: n1"},
    Code.BEYOND_SHARE: _STARVES
    | {"requested": 1, "would": 8, "share": 7.5, "remedy": "ask for at most 0 gpu"},
    Code.NOT_FAIRER: _STARVES | {"holder": "red", "left": 0.5, "level": 0.5},
    Code.NO_FAIR_SHARE: _STARVES,
    Code.USAGE_THRESHOLD: _STARVES | {"holder": "red", "held": 4, "threshold": "4 gpu"},
    Code.HELD_OUTSIDE: {"pool": "slurm-gpus", "nodes": "n1 (outside job 812 of ann)"},
    Code.CLUSTER_BUSY: {"node": "n2", "why": "Slurm job 813 waits: Resources"},
    Code.CLUSTER_ENDED: {"node": "n1", "why": "Slurm job 814: TIMEOUT"},
    Code.TENANT_CONCURRENT: {"tenant": "bio", "held": 2, "requested": 1, "bound": 2, "enough": 3},
    Code.TENANT_NODES: {"tenant": "bio", "held": 3, "requested": 2, "bound": 4, "enough": 5},
}


@pytest.fixture(scope="module")
def emitted() -> dict[Code, list[Reason]]:
    """Every reason that any story's engine gave, by code."""
    found: dict[Code, list[Reason]] = {}
    for given in chain.from_iterable(map(reasons_in, FILES)):
        reason = Reason.from_dict(given)
        found.setdefault(reason.code, []).append(reason)
    return found


def test_every_code_has_its_sentence_and_its_fix() -> None:
    assert set(SENTENCES) == set(Code)
    for text, fix in SENTENCES.values():
        assert text and fix


def test_stories_give_every_reason_there_is(emitted: dict[Code, list[Reason]]) -> None:
    assert sorted(set(Code) - set(emitted)) == sorted(ELSEWHERE)


def test_what_the_engine_gives_leaves_no_blank(emitted: dict[Code, list[Reason]]) -> None:
    reasons = [each for several in emitted.values() for each in several]
    reasons += [Reason(code, detail) for code, detail in ELSEWHERE.items()]
    assert len(reasons) > 100
    for reason in reasons:
        assert not re.search(r"\?|\{|None", reason.text + reason.fix), (reason, reason.text)


def test_reasons_survive_being_written_down(emitted: dict[Code, list[Reason]]) -> None:
    for reason in (each for several in emitted.values() for each in several):
        again = Reason.from_dict(reason.to_public())
        assert again == reason
        assert (again.text, again.fix) == (reason.text, reason.fix)


def test_a_missing_number_is_shown_as_missing_and_not_as_an_error() -> None:
    assert "?" in Reason(Code.OWN_LIMIT).text


def test_a_rejection_by_several_pools_names_each() -> None:
    story = tell("""
        pool a 2
        team red in a limit 2
        pool b 4
        team red in b limit 3
        red submits r of 4 -> rejected r (no_eligible_pool)
    """)
    reason = story.request("r").reason
    assert reason is not None
    assert "capacity 2 of pool a" in reason.text and "limit 3 of red in pool b" in reason.text


def test_who_is_preempted_for_good_is_told_for_whom(emitted: dict[Code, list[Reason]]) -> None:
    texts = [each.text for each in emitted[Code.PREEMPTED]]
    assert all(each.endswith("; it has no retries, so that ended it") for each in texts)
    assert all(each.startswith("stopped in pool ") for each in texts)
    assert any(" for b, which is inside its reserve" in each for each in texts)
