"""On what terms a request may wait and hold: its class, its protection, its own limit."""

from __future__ import annotations

from typing import Any

import pytest

from cede.engine.admin import edits
from cede.engine.audit import audit
from cede.engine.decide import decide
from cede.engine.explain import why as explain
from cede.engine.ledger.admit import terms_broken
from cede.engine.lifecycle import commands
from cede.engine.state.state import State
from cede.model.errors import Conflict, Invalid, Malformed, NotFound
from cede.model.lifecycle import RequestStatus
from cede.model.policy import Home, Kind
from cede.model.reason import Code
from cede.model.request import Request
from cede.model.subject import Subject
from cede.model.terms import CLASS, USUAL, parse_terms

RED = Subject("team", "red")


@pytest.fixture
def state() -> State:
    state = State()
    edits.create_pool(state, id="p", name="gpus", capacity={"gpu": 8})
    edits.attach_policy(state, id="red", pool_id="p", subject=RED)
    return state


def submit(state: State, id: str = "r", gpu: int = 2, **given: Any) -> Request:
    """What became of it; `class_` and the like are terms, others are fields of a submission."""
    terms = {"preemption_class": given.pop("class_", None)}
    terms |= {name: given.pop(name, None) for name in ("sensitive", "tenant", "limit", "settings")}
    submission = commands.Submission(
        id=id, subject=RED, amounts={"gpu": gpu}, terms=parse_terms(**terms), **given
    )
    commands.submit(state, submission, state.now)
    decide(state, state.now)
    assert audit.check(state) == []
    return state.requests[id]


def codes(request: Request) -> list[str]:
    assert request.reason is not None
    pools = request.reason.detail.get("pools", [request.reason.to_dict()])
    return [each["code"] for each in pools]


@pytest.mark.parametrize("value", ["5", 5.0, True, None, -1, 11, 10**400, [5]])
def test_a_class_is_exactly_an_integer_from_0_to_10(value: object) -> None:
    with pytest.raises(Malformed, match="integer from 0 to 10"):
        CLASS.parse(value, "class")


@pytest.mark.parametrize("value", [0, 4, 10])
def test_the_ends_are_classes(value: int) -> None:
    assert CLASS.parse(value, "class") == value


def test_who_says_nothing_shares_the_usual_terms() -> None:
    assert parse_terms(preemption_class=4, sensitive=False, tenant="", limit={}) is USUAL


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "class 9 by default": ({}, {"class_": 9}, []),
    "class 10 by default": ({}, {"class_": 10}, ["class_exceeded", "sensitive_not_allowed"]),
    "above its max_class": ({"max_class": 5}, {"class_": 6}, ["class_exceeded"]),
    "at its max_class": ({"max_class": 5}, {"class_": 5}, []),
    "the usual class above a low max_class": ({"max_class": 3}, {}, ["class_exceeded"]),
    "a low class below a low max_class": ({"max_class": 3}, {"class_": 3}, []),
    "sensitive by default": ({}, {"sensitive": True}, ["sensitive_not_allowed"]),
    "sensitive where it is allowed": ({"allow_sensitive": True}, {"sensitive": True}, []),
    "class 10 without being allowed": (
        {"max_class": 10},
        {"class_": 10},
        ["sensitive_not_allowed"],
    ),
    "class 10 where it is allowed": (
        {"max_class": 10, "allow_sensitive": True},
        {"class_": 10},
        [],
    ),
}


@pytest.mark.parametrize(("policy", "terms", "wanted"), REFUSED.values(), ids=REFUSED)
def test_what_a_policy_may_not_give_is_refused_at_the_door(
    state: State, policy: dict[str, Any], terms: dict[str, Any], wanted: list[str]
) -> None:
    edits.update_policy(state, "red", **policy)
    request = submit(state, **terms)
    if wanted:
        assert (request.status, codes(request)) == (RequestStatus.REJECTED, wanted)
    else:
        assert request.status is RequestStatus.ALLOCATED


def test_a_refusal_says_what_would_change_it(state: State) -> None:
    pool, policy = state.pools["p"], state.policies["red"]
    request = submit(state, class_=10)
    texts = [(each.text, each.fix) for each in terms_broken(pool, policy, request)]
    assert texts == [
        (
            "class 10 is above 9, the highest that red may use in pool gpus",
            "ask for class 9 or lower, or raise the policy's max_class",
        ),
        (
            "red may not run sensitive work in pool gpus, and class 10 is",
            "ask without it, or let the policy: allow_sensitive",
        ),
    ]


def test_a_policy_that_allows_less_pauses_waiters_that_need_more(state: State) -> None:
    submit(state, "holder", gpu=8)
    assert submit(state, class_=7).status is RequestStatus.QUEUED
    edits.update_policy(state, "red", max_class=6)
    request = state.requests["r"]
    assert request.status is RequestStatus.QUEUED
    reason = explain.waiting_reason(state, request)
    assert reason.code is Code.NO_LONGER_ELIGIBLE
    assert [each["code"] for each in reason.detail["pools"]] == ["class_exceeded"]


def test_more_than_its_own_limit_can_never_start(state: State) -> None:
    request = submit(state, gpu=4, limit={"gpu": 3, "mcpu": 0})
    assert request.status is RequestStatus.REJECTED and request.reason is not None
    assert request.reason.to_dict() == {
        "code": "request_limit",
        "key": "gpu",
        "requested": 4,
        "bound": 3,
    }
    assert "limit 3 of the request itself" in request.reason.text
    assert submit(state, "q", gpu=4, limit={"gpu": 4}).status is RequestStatus.ALLOCATED


def test_one_limit_is_one_reason_however_many_pools_there_are(state: State) -> None:
    edits.create_pool(state, id="q", name="more", capacity={"gpu": 8})
    edits.attach_policy(state, id="red-more", pool_id="q", subject=RED)
    request = submit(state, gpu=4, limit={"gpu": 3})
    assert request.reason is not None and request.reason.code is Code.REQUEST_LIMIT


def test_a_limit_of_a_key_that_its_pool_lacks_names_the_keys_there_are(state: State) -> None:
    with pytest.raises(Invalid, match=r"it has gpu: .* leave gpus out") as caught:
        submit(state, limit={"gpus": 4}, pool_id="p")
    assert caught.value.field == "limit.gpus"
    assert submit(state, "any", limit={"gpus": 4}).status is RequestStatus.ALLOCATED
    assert submit(state, "step", limit={"step_run": 4}, pool_id="p").status == "allocated"


# A limit that changes ---------------------------------------------------------------------------


def test_a_waiter_below_its_demand_waits_until_its_limit_is_raised(state: State) -> None:
    submit(state, "holder", gpu=8)
    submit(state, gpu=2)
    commands.set_limit(state, "r", {"gpu": 0}, 5_000)
    changed = [each for each in state.events if each.kind == "limit_changed"]
    assert [(each.request_id, each.at, each.data) for each in changed] == [
        ("r", 5_000, {"limit": {"gpu": 0}})
    ]
    commands.release(state, "holder", 6_000)
    decide(state, 6_000)
    waiter = state.requests["r"]
    assert waiter.status is RequestStatus.QUEUED
    assert explain.why(state, "r", 6_000)["reason"]["code"] == "request_limit"
    # An edit looks again at everybody who waits: this one has not become impossible.
    edits.update_pool(state, "p", capacity={"gpu": 7})
    assert state.requests["r"].status is RequestStatus.QUEUED
    commands.set_limit(state, "r", {}, 7_000)
    decide(state, 7_000)
    assert state.requests["r"].status is RequestStatus.ALLOCATED
    assert audit.check(state) == []


def test_raising_it_leaves_paused_what_became_impossible_meanwhile(state: State) -> None:
    submit(state, "holder", gpu=4)
    submit(state, gpu=6)
    commands.set_limit(state, "r", {"gpu": 0}, 0)
    edits.update_pool(state, "p", capacity={"gpu": 5})
    assert state.requests["r"].status is RequestStatus.QUEUED
    commands.set_limit(state, "r", {"gpu": 6}, 0)
    assert state.requests["r"].status is RequestStatus.QUEUED
    assert explain.waiting_reason(state, state.requests["r"]).code is Code.NO_LONGER_ELIGIBLE
    edits.update_pool(state, "p", capacity={"gpu": 10})
    decide(state, 0)
    assert state.requests["r"].status is RequestStatus.ALLOCATED


def test_a_lowered_limit_gives_a_promise_back(state: State) -> None:
    edits.update_policy(state, "red", reserved={"gpu": 8})
    edits.attach_policy(state, id="blue", pool_id="p", subject=Subject("team", "blue"))
    blue = commands.Submission(id="b", subject=Subject("team", "blue"), amounts={"gpu": 8})
    commands.submit(state, blue, 0)
    decide(state, 0)
    assert submit(state, gpu=8).earmark is not None
    commands.set_limit(state, "r", {"gpu": 4}, 0)
    assert state.requests["r"].earmark is None
    decide(state, 0)
    assert audit.check(state) == []


def test_a_holder_keeps_what_it_holds(state: State) -> None:
    submit(state, gpu=4)
    commands.set_limit(state, "r", {"gpu": 2}, 0)
    decide(state, 0)
    request = state.requests["r"]
    assert request.status is RequestStatus.ALLOCATED and request.terms.limit == {"gpu": 2}


def test_independent_tasks_have_one_limit_together(state: State) -> None:
    submit(state, "a", gpu=1, part_of="a")
    submit(state, "b", gpu=1, part_of="a")
    submit(state, "other", gpu=1)
    for named in ("a", "b"):  # any of them stands for all
        limit = {"gpu": 3 if named == "a" else 2}
        changed = commands.set_limit(state, named, limit, 0)
        assert [each.id for each in changed] == ["a", "b"]
        assert [state.requests[each].terms.limit for each in ("a", "b")] == [limit] * 2
    commands.release(state, "a", 0)
    state.drain()
    commands.set_limit(state, "a", {"gpu": 1}, 0)  # the first is gone, the task group is not
    assert state.requests["b"].terms.limit == {"gpu": 1}
    assert state.requests["other"].terms.limit == {}


def test_the_same_limit_again_is_no_event(state: State) -> None:
    submit(state, limit={"gpu": 4})
    before = state.index
    commands.set_limit(state, "r", {"gpu": 4}, 0)
    assert state.index == before


def test_what_has_ended_or_never_was_has_no_limit_to_change(state: State) -> None:
    submit(state)
    commands.release(state, "r", 0)
    with pytest.raises(Conflict, match="already ended"):
        commands.set_limit(state, "r", {"gpu": 1}, 0)
    with pytest.raises(NotFound):
        commands.set_limit(state, "nobody", {"gpu": 1}, 0)


@pytest.mark.parametrize("limit", [{"gpu": -1}, {"gpu": 1.5}, {"gpu": "1"}, {"g pu": 1}, 5, None])
def test_a_limit_is_amounts(state: State, limit: object) -> None:
    submit(state)
    with pytest.raises(Invalid):
        commands.set_limit(state, "r", limit, 0)


def test_what_a_policy_says_can_be_changed_and_taken_back(state: State) -> None:
    edits.update_policy(
        state,
        "red",
        type="service",
        home={"rack": "r1"},
        weight=2,
        mode="fifo",
        return_grace=1.5,
        settings={"fair_share_starvation_timeout": 60},
    )
    policy = state.policies["red"]
    assert (policy.kind, policy.home) == (Kind.SERVICE, Home({"rack": "r1"}))
    assert (policy.weight, policy.mode, policy.return_grace) == (2.0, "fifo", 1_500)
    assert policy.settings == {"fair_share_starvation_timeout": 60_000}
    edits.update_policy(state, "red", home=[], settings={})
    assert (state.policies["red"].home, state.policies["red"].settings) == (None, {})
