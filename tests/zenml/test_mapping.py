"""Between ZenML's words and cede's; without ZenML."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from cede.integrations.zenml import mapping
from cede.integrations.zenml.mapping import Unsupported
from cede.model.lifecycle import RequestStatus

Json = dict[str, Any]

COUNTED: dict[str, tuple[list[Json], Json]] = {
    "a GPU count is a key": ([{"kind": "gpu", "quantity": 2}], {"gpu": 2}),
    "whole processors are thousandths": (
        [{"kind": "cpu", "quantity": 4, "unit": "CPU"}],
        {"mcpu": 4000},
    ),
    "thousandths stay what they are": (
        [{"kind": "cpu", "quantity": 1500, "unit": "mCPU"}],
        {"mcpu": 1500},
    ),
    "16 GiB are 17180 megabytes, rounded up": (
        [{"kind": "memory", "quantity": 16, "unit": "GiB"}],
        {"memory_mb": 17180},
    ),
    "512 MB are 512": ([{"kind": "memory", "quantity": 512, "unit": "MB"}], {"memory_mb": 512}),
    "one byte takes a megabyte": (
        [{"kind": "memory", "quantity": 1, "unit": "B"}],
        {"memory_mb": 1},
    ),
    "a custom key is itself": ([{"resource": "licence", "quantity": 3}], {"licence": 3}),
    "a custom kind is a key": ([{"kind": "tpu", "quantity": 1}], {"tpu": 1}),
    "a typed kind wins over the same key, whatever their order": (
        [{"kind": "gpu", "quantity": 2}, {"resource": "gpu", "quantity": 9}],
        {"gpu": 2},
    ),
    "typed processors win over mcpu": (
        [{"resource": "mcpu", "quantity": 9}, {"kind": "cpu", "quantity": 1, "unit": "CPU"}],
        {"mcpu": 1000},
    ),
    "the same key twice adds up": (
        [{"resource": "licence", "quantity": 1}, {"resource": "licence", "quantity": 2}],
        {"licence": 3},
    ),
    "nobody asks for more than one step slot": ([{"resource": "step_run", "quantity": 5}], {}),
}


@pytest.mark.parametrize("case", COUNTED)
def test_demands_become_amounts_with_one_step_slot(case: str) -> None:
    demands, amounts = COUNTED[case]
    assert mapping.amounts_of(demands) == {**amounts, "step_run": 1}


def test_no_gpus_win_over_a_key_of_that_name_too() -> None:
    """ZenML sends no demand for `gpu_count=0`, but the key."""
    demands = [{"resource": "gpu", "quantity": 2}, {"kind": "cpu", "quantity": 1, "unit": "CPU"}]
    assert mapping.amounts_of(demands, 0) == {"mcpu": 1000, "step_run": 1}
    assert mapping.amounts_of(demands, None)["gpu"] == 2


REFUSED: dict[str, tuple[Json, str]] = {
    "a class": ({"kind": "gpu", "quantity": 2, "class_name": "a100"}, '"gpu_a100": 2'),
    "a selector": ({"resource_selector": {"vendor": "x"}, "quantity": 1}, "resource_selector"),
    "an id": ({"resource_id": "1", "quantity": 1}, "resource_id"),
    "a unit of a custom key": ({"resource": "disk", "quantity": 1, "unit": "GB"}, "unit GB"),
    "a unit that no memory has": ({"kind": "memory", "quantity": 1, "unit": "pages"}, "memory"),
    "memory without a unit": ({"kind": "memory", "quantity": 1}, "unit None: memory is .*PiB"),
    "a unit of GPUs": ({"kind": "gpu", "quantity": 1, "unit": "GPU"}, "without a unit"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_be_ignored_is_refused_and_says_what_to_do(case: str) -> None:
    demand, said = REFUSED[case]
    with pytest.raises(Unsupported, match=said):
        mapping.amounts_of([demand])


def test_every_status_has_one_of_zenmls() -> None:
    assert set(mapping.STATUSES) == {str(each) for each in RequestStatus} | {"untracked"}
    same = ("allocated", "preempting", "preempted", "rejected", "cancelled", "released")
    for status in same:
        assert mapping.status_of({"status": status, "reason": None}) == status
    assert mapping.status_of({"status": "queued", "reason": None}) == "pending"
    assert mapping.status_of({"status": "untracked"}) == "no_matching_pool"


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_lost_lease_is_expired_whoever_lost_it(status: str) -> None:
    request = {"status": status, "reason": {"code": "lease_expired"}}
    assert mapping.status_of(request) == "expired"
    assert status in mapping.statuses_for("expired")


def test_lists_look_where_a_status_may_be() -> None:
    assert mapping.statuses_for("pending") == ("queued", "suspended")
    assert mapping.statuses_for("released") == ("released", "failed")
    assert mapping.statuses_for("no_matching_pool") == ()


def test_a_reason_is_the_sentence_and_what_would_change_it() -> None:
    reason = {"code": "x", "text": "gpu: 9 exceeds 8", "fix": "ask for at most 8"}
    assert mapping.reason_of({"reason": reason}) == "gpu: 9 exceeds 8; ask for at most 8"
    assert mapping.reason_of({"reason": {"text": "so", "fix": "nothing"}}) == "so"
    freed = {"text": "2 are being freed", "fix": "nothing: it starts once x stopped"}
    assert mapping.reason_of({"reason": freed}) == "2 are being freed; it starts once x stopped"
    assert mapping.reason_of({"reason": None}) is None


def test_a_victim_is_told_for_whom_and_by_which_rule() -> None:
    reason = {"code": "preempted", "pool": "gpus", "beneficiary": "r-2", "rule": "reclaim"}
    said = mapping.reason_of({"reason": {**reason, "text": "preempted", "fix": ""}})
    assert said is not None and "for request r-2 (reclaim)" in said and "gpus" in said
    assert mapping.beneficiary_of({"reason": reason}) == "r-2"


def test_only_a_victim_is_stopped_and_only_a_failure_fails() -> None:
    assert mapping.outcomes_for("completed") == ("done",)
    assert mapping.outcomes_for("retrying") == ("stopped", "failed")
    assert mapping.outcomes_for("failed") == ("stopped", "failed")
    assert mapping.outcomes_for("cancelled") == ("stopped", "done")


def test_a_refusal_has_the_same_id_for_the_same_step_run() -> None:
    one, other = UUID(int=1), UUID(int=2)
    assert mapping.refusal_id(one) == mapping.refusal_id(one) != mapping.refusal_id(other)


def held(state: str = "granted", *, keep: bool = False, status: str = "allocated") -> Json:
    return {
        "status": status,
        "on_silence": "keep" if keep else "stop",
        "allocation": {"state": state},
        "labels": {mapping.START_WITHIN: "3600"},
    }


RENEWED = {
    "a step that is starting": (held(), "running", 60.0, True),
    "not one that starts for longer than ZenML waits": (held(), "running", 3601.0, False),
    "not one whose heartbeats have begun": (held("running"), "running", 60.0, False),
    "not one whose launcher has not seen its grant": (held(), "queued", 60.0, False),
    "a step without heartbeats, however long it runs": (held(keep=True), "running", 1e6, True),
    "not one that must stop": (held("stopping", status="preempting"), "running", 1.0, False),
}


@pytest.mark.parametrize("case", RENEWED)
def test_the_upkeep_renews_what_nobody_else_does(case: str) -> None:
    request, step_status, since, renewed = RENEWED[case]
    assert mapping.needs_renewal(request, step_status, since) is renewed


def test_labels_leave_out_what_is_not_known() -> None:
    assert mapping.labels_of({"run": "r", "pipeline": None, "user": ""}) == {"run": "r"}


def test_what_a_request_asks_for_is_listed_without_its_slot() -> None:
    request = {"resources": {"gpu": 2, "step_run": 1}}
    assert mapping.demands_of(request) == [{"resource": "gpu", "quantity": 2}]
