"""Quotas of tenants: what counts, who is refused, who waits, and what an edit does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cede.engine.admin import edits, fleet, tenant_edits
from cede.engine.audit import audit
from cede.engine.decide import decide
from cede.engine.explain import why as explain
from cede.engine.ledger.tenants import publish_budgets, tenant_room
from cede.engine.lifecycle import commands
from cede.engine.state.state import State
from cede.engine.state.trial import what_if
from cede.model import usage
from cede.model.bounds import HOUR
from cede.model.errors import CedeError, Conflict, Invalid, NotFound, Refused
from cede.model.lifecycle import RequestStatus
from cede.model.reason import Code, Reason
from cede.model.request import Request
from cede.model.shape import Shape
from cede.model.subject import Subject
from cede.model.tenant import Tenant, parse_fields
from cede.model.terms import Terms
from cede.model.usage import Spell, budget_fraction, used
from cede.snapshot.reader import SnapshotError, load
from cede.snapshot.writer import dump

RED, BLUE = Subject("team", "red"), Subject("team", "blue")


@pytest.fixture(name="state")
def two_pools_of_a_test() -> State:
    return two_pools()


def two_pools() -> State:
    """Two pools with all of both for everybody, and a tenant without any bound."""
    state = State()
    for pool in ("p", "q"):
        edits.create_pool(state, id=pool, name=pool, capacity={"gpu": 8})
        for subject in (RED, BLUE):
            edits.attach_policy(
                state, id=f"{pool}/{subject.name}", pool_id=pool, subject=subject, limit={"gpu": 8}
            )
    tenant_edits.create_tenant(state, id="t", name="bio")
    return state


def submit(state: State, id: str, gpu: int = 1, tasks: int = 1, **more: Any) -> Request:
    """What became of it after a pass; an unsound state would be told."""
    tenant, pool = more.pop("tenant", "bio"), more.pop("pool", "p")
    mark = state.mark()
    try:
        commands.submit(
            state,
            commands.Submission(
                id=id,
                subject=more.pop("subject", RED),
                amounts={"gpu": gpu * tasks},
                shape=Shape({"gpu": gpu}, tasks) if tasks > 1 else None,
                terms=Terms(tenant=tenant),
                pool_id=pool,
                **more,
            ),
            state.now,
        )
    except Refused:
        state.undo(mark)
        raise
    decide(state, state.now)
    assert audit.check(state) == []
    return state.requests[id]


def refused(state: State, *args: Any, **more: Any) -> Reason:
    with pytest.raises(Refused) as caught:
        submit(state, *args, **more)
    return caught.value.reason


def quota(state: State, **more: object) -> None:
    tenant_edits.update_tenant(state, "t", **more)


# At the door ------------------------------------------------------------------------------------


def test_waiting_requests_count_as_well_as_running_ones(state: State) -> None:
    quota(state, max_concurrent=2)
    submit(state, "a", gpu=8)
    assert submit(state, "b", gpu=8).status is RequestStatus.QUEUED
    reason = refused(state, "c")
    assert reason.to_dict() == {
        "code": "tenant_concurrent",
        "tenant": "bio",
        "held": 2,
        "requested": 1,
        "bound": 2,
        "enough": 3,
    }
    assert reason.text == "tenant bio has 2 requests that have not ended, and may have 2 at once"
    assert reason.fix.endswith("cede tenant update bio --max-concurrent 3")
    commands.cancel(state, "b", 0, actor="somebody")
    assert submit(state, "d").status is RequestStatus.QUEUED


def test_nodes_in_use_and_those_asked_for_are_within_the_quota(state: State) -> None:
    quota(state, max_nodes=4)
    submit(state, "a", tasks=3)
    reason = refused(state, "b", tasks=2, pool="q")
    assert (reason.code, reason.detail["held"], reason.detail["requested"]) == (
        Code.TENANT_NODES,
        3,
        2,
    )
    assert reason.text == "tenant bio has 3 nodes in use and may have 4; 2 more do not fit"
    assert reason.fix.endswith("cede tenant update bio --max-nodes 5")
    assert submit(state, "c", pool="q").status is RequestStatus.ALLOCATED
    commands.release(state, "a", 0)
    assert submit(state, "d", tasks=3).status is RequestStatus.ALLOCATED


def test_others_and_names_that_no_tenant_has_are_not_concerned(state: State) -> None:
    quota(state, max_nodes=0, max_concurrent=0)
    for id, tenant in (("a", ""), ("b", "unknown")):
        assert submit(state, id, tenant=tenant).status is RequestStatus.ALLOCATED
    assert refused(state, "c").code is Code.TENANT_CONCURRENT


def test_untracked_work_has_no_quota(state: State) -> None:
    quota(state, max_concurrent=0)
    made = commands.submit(
        state,
        commands.Submission("u", Subject("team", "none"), {"gpu": 1}, terms=Terms(tenant="bio")),
        0,
    )
    assert isinstance(made, commands.Untracked)


def test_a_tenant_that_comes_later_finds_what_there_is(state: State) -> None:
    submit(state, "a", tasks=2, tenant="chem")
    tenant_edits.create_tenant(state, id="c", name="chem", max_nodes=2, max_concurrent=9)
    assert refused(state, "b", tenant="chem").detail["held"] == 2
    tenant_edits.delete_tenant(state, "c")
    assert submit(state, "b", tenant="chem").status is RequestStatus.ALLOCATED


def test_a_gang_uses_the_nodes_on_which_it_sits(state: State) -> None:
    edits.create_pool(state, id="n", name="n", nodes={"zone": "a"})
    edits.attach_policy(state, id="n/red", pool_id="n", subject=RED)
    for node in ("n1", "n2"):
        fleet.register(
            state, id=node, name=node, amounts={"gpu": 4}, devices={}, labels={"zone": "a"},
            fingerprint="", boot="b", heartbeat=10_000, created="", now=0,
        )  # fmt: skip
    quota(state, max_nodes=4)
    submit(state, "a", tasks=4, pool="n")
    assert state.tenancy.held == {"bio": 1}  # it fits on one node
    assert refused(state, "b", tasks=4, pool="n").detail["held"] == 1
    submit(state, "c", tasks=3, pool="n")
    assert state.tenancy.held == {"bio": 2}


# Starting ---------------------------------------------------------------------------------------


def waiter(state: State, id: str, **more: Any) -> Request:
    """Somebody who was submitted while there was room, and waits."""
    made = submit(state, id, **more)
    assert made.waiting
    return made


def test_a_waiter_whose_tenant_is_at_its_quota_has_no_room(state: State) -> None:
    quota(state, max_nodes=3)
    submit(state, "full", gpu=8, tenant="")
    first = waiter(state, "a", tasks=2)
    submit(state, "b", pool="q")
    assert tenant_room(state, first)
    submit(state, "c", pool="q")  # the quota has room for it: who waits holds nothing
    assert not tenant_room(state, first)
    commands.release(state, "b", 0)
    assert tenant_room(state, first)


def test_why_names_the_quota_before_the_pool(state: State) -> None:
    submit(state, "full", gpu=7, tenant="")
    submit(state, "a", gpu=1)
    waiter(state, "b", gpu=1)
    quota(state, max_nodes=1)
    assert not tenant_room(state, state.requests["b"])
    story = explain.why(state, "b", 0)
    assert story["reason"]["code"] == "tenant_nodes"
    assert story["pools"][0]["reason"]["held"] == 1
    quota(state, max_nodes=2)
    assert tenant_room(state, state.requests["b"])
    assert explain.why(state, "b", 0)["reason"]["code"] != "tenant_nodes"


def test_what_was_promised_counts_for_others_and_not_for_its_owner(state: State) -> None:
    edits.update_policy(state, "p/blue", reserved={"gpu": 4})
    submit(state, "r", gpu=8, tenant="")
    quota(state, max_nodes=2)
    owner = submit(state, "b", gpu=4, subject=BLUE)
    assert owner.earmark is not None and state.tenancy.promised == {"bio": 1}
    assert tenant_room(state, owner)
    assert tenant_room(state, waiter(state, "c"))
    assert not tenant_room(state, waiter(state, "d", tasks=2))


def test_a_lower_quota_stops_nobody_and_takes_promises_back(state: State) -> None:
    edits.update_policy(state, "p/blue", reserved={"gpu": 4})
    submit(state, "h", pool="q")
    for id in ("r1", "r2", "r3", "r4"):
        submit(state, id, gpu=2, tenant="")
    for id in ("b1", "b2"):
        assert submit(state, id, gpu=2, subject=BLUE).earmark is not None
    quota(state, max_nodes=2)
    assert state.requests["b1"].earmark is not None and state.requests["b2"].earmark is None
    quota(state, max_nodes=0)
    assert state.requests["b1"].earmark is None and state.tenancy.promised == {}
    assert state.requests["h"].status is RequestStatus.ALLOCATED
    assert state.requests["b1"].waiting
    assert audit.check(state) == []


def test_only_so_many_start_as_the_quota_has_nodes(state: State) -> None:
    submit(state, "full", gpu=8, tenant="")
    for id in ("a", "b", "c"):
        waiter(state, id)
    other = waiter(state, "d", tenant="")
    quota(state, max_nodes=2)
    commands.release(state, "full", 0)
    decide(state, 0)
    assert [state.requests[each].waiting for each in ("a", "b", "c")] == [False, False, True]
    assert not state.requests[other.id].waiting  # who is kept by a quota keeps nobody else
    assert explain.why(state, "c", 0)["reason"]["code"] == "tenant_nodes"
    commands.release(state, "a", 0)
    decide(state, 0)
    assert not state.requests["c"].waiting
    assert audit.check(state) == []


def test_nobody_is_stopped_for_a_waiter_without_room(state: State) -> None:
    edits.update_policy(state, "p/blue", reserved={"gpu": 4})
    edits.update_pool(state, "p", settings={"reclaim_min_run": 30})
    submit(state, "r", gpu=8, tenant="", lease=None)
    submit(state, "h", pool="q", lease=None)
    waiter(state, "b", gpu=4, subject=BLUE, lease=None)
    quota(state, max_nodes=1)
    decide(state, 31_000)  # it could take now, and may not
    assert state.requests["r"].status is RequestStatus.ALLOCATED
    assert state.requests["b"].earmark is None
    quota(state, max_nodes=2)
    decide(state, 31_000)
    assert state.requests["r"].status is RequestStatus.PREEMPTING
    assert audit.check(state) == []


def test_room_in_one_pool_is_looked_at_in_every_pool(state: State) -> None:
    quota(state, max_nodes=3)
    submit(state, "a", pool="q")
    submit(state, "full", gpu=8, tenant="")
    waiter(state, "w")
    state.dirty.clear()
    commands.release(state, "a", 0)
    assert "p" in state.dirty
    decide(state, 0)
    state.dirty.clear()
    quota(state, max_nodes=4)
    assert list(state.dirty) == ["p"]
    state.dirty.clear()
    tenant_edits.delete_tenant(state, "t")
    assert list(state.dirty) == ["p"]


def test_counts_are_undone_with_everything_else(state: State) -> None:
    quota(state, max_nodes=8, max_concurrent=8)
    submit(state, "a", tasks=2)
    state.drain()
    counts = state.tenancy
    before = (dict(counts.alive), dict(counts.held), dict(counts.named), dict(counts.waiters))
    mark = state.mark()
    submit(state, "b", gpu=8)
    submit(state, "c", tenant="chem")
    commands.release(state, "a", 0)
    quota(state, max_nodes=1)
    tenant_edits.create_tenant(state, id="c", name="chem")
    decide(state, 0)
    state.undo(mark)
    after = (dict(counts.alive), dict(counts.held), dict(counts.named), dict(counts.waiters))
    assert after == before
    assert audit.check(state) == []
    with what_if(state):
        tenant_edits.delete_tenant(state, "t")
        commands.cancel(state, "a", 0, actor="somebody")
    assert (dict(counts.alive), dict(counts.named)) == before[::2]


def _step(state: State, number: int, kind: int, a: int, b: int) -> None:
    """A few integers stand for a command, whatever the state is."""
    alive = [each.id for each in state.requests.values() if not each.ended]
    if kind <= 3:
        commands.submit(
            state,
            commands.Submission(
                id=f"r{number}",
                subject=(RED, BLUE)[a % 2],
                amounts={"gpu": (1 + a % 4) * (1 + b % 3)},
                shape=Shape({"gpu": 1 + a % 4}, 1 + b % 3) if b % 3 else None,
                terms=Terms(tenant=("bio", "chem", "")[b % 3]),
                pool_id=(None, "p", "q")[a % 3],
            ),
            state.now,
        )
    elif kind == 4:
        bounds: dict[str, Any] = {
            "max_nodes": (None, 0, 1, 3)[a % 4],
            "max_concurrent": (None, 4)[b % 2],
        }
        if "c" not in state.tenants:
            tenant_edits.create_tenant(state, id="c", name="chem", **bounds)
        elif a == b:
            tenant_edits.delete_tenant(state, "c")
        else:
            tenant_edits.update_tenant(state, ("t", "c")[b % 2], **bounds)
    elif alive and state.requests[alive[a % len(alive)]].status is RequestStatus.PREEMPTING:
        commands.release(state, alive[a % len(alive)], state.now, outcome="stopped")
    elif alive:
        commands.release(state, alive[a % len(alive)], state.now)


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9), st.integers(0, 9)), max_size=25))
def test_no_history_breaks_a_count_or_a_quota(many: list[tuple[int, int, int]]) -> None:
    state = two_pools()
    edits.update_policy(state, "p/blue", reserved={"gpu": 4})
    for number, each in enumerate(many):
        mark = state.mark()
        try:
            _step(state, number, *each)
        except CedeError:
            state.undo(mark)
        assert audit.check(state) == []
        decide(state, state.now)
        assert audit.check(state) == []
        state.dirty |= dict.fromkeys(state.ledgers)
        assert not decide(state, state.now).changed  # nobody was forgotten
        if number % 3 == 0:
            state.drain()


# Edits ------------------------------------------------------------------------------------------


def test_edits_tell_what_they_did_and_are_written(state: State) -> None:
    state.drain()
    quota(state, max_nodes=3, burst_allowance=1.5)
    quota(state, max_nodes=None)
    tenant_edits.create_tenant(state, id="c", name="chem", fair_share_target=1)
    tenant_edits.delete_tenant(state, "t")
    changes = state.drain()
    assert [(each.kind, each.data) for each in changes.events] == [
        ("tenant_updated", {"name": "bio"}),
        ("tenant_updated", {"name": "bio"}),
        ("tenant_created", {"name": "chem"}),
        ("tenant_deleted", {"name": "bio"}),
    ]
    assert [each.name for each in changes.tenants.inserted] == ["chem"]
    assert changes.tenants.deleted == ["t"] and not changes.empty
    assert list(state.tenants) == ["c"]


def test_names_are_unique_and_unknown_ones_are_refused(state: State) -> None:
    with pytest.raises(Conflict, match="bio exists already"):
        tenant_edits.create_tenant(state, id="u", name="bio")
    with pytest.raises(Invalid):
        tenant_edits.create_tenant(state, id="u", name="a/b")
    with pytest.raises(NotFound):
        tenant_edits.update_tenant(state, "nobody", max_nodes=1)


@pytest.mark.parametrize(
    "bounds",
    [
        {"max_nodes": -1},
        {"max_nodes": 1.5},
        {"max_concurrent": True},
        {"gpu_hours_budget": 0},
        {"node_hours_budget": "10"},
        {"node_hours_budget": float("nan")},
        {"fair_share_target": 1.1},
        {"burst_allowance": -1},
        {"max_node": 1},
    ],
)
def test_what_is_no_bound_is_refused_by_name(bounds: dict[str, object]) -> None:
    with pytest.raises(Invalid) as caught:
        parse_fields(bounds)
    assert caught.value.field == next(iter(bounds))


# Budgets ----------------------------------------------------------------------------------------

DAY = 24 * HOUR
GANG = Spell(2, {"gpu": 8}, 100 * DAY, 100 * DAY + 10 * HOUR)  # 10 hours on 2 nodes with 4 GPUs
# The reference's cases: budgets, what was held, and the part that is used 110 days on.
CASES: dict[str, tuple[dict[str, float], Spell, float]] = {
    "of GPU-hours": ({"gpu": 1000}, GANG, 0.08),
    "of node-hours": ({"node": 100}, GANG, 0.2),
    "both, more of the nodes": ({"gpu": 10_000, "node": 25}, GANG, 0.8),
    "both, more of the GPUs": ({"gpu": 100, "node": 10_000}, GANG, 0.8),
    "still running": ({"node": 1000}, Spell(1, {}, 110 * DAY - 5 * HOUR), 0.005),
    "one GPU on one node": ({"gpu": 1000}, Spell(1, {"gpu": 1}, 0, 10 * HOUR), 0.01),
    "outside the window": ({"gpu": 1000}, Spell(1, {"gpu": 1}, 10 * DAY, 10 * DAY + HOUR), 0.0),
}


@pytest.mark.parametrize(("budgets", "spell", "part"), CASES.values(), ids=CASES)
def test_the_part_of_a_budget_that_is_used(
    budgets: dict[str, float], spell: Spell, part: float
) -> None:
    tenant = Tenant(
        "t", "bio", gpu_hours_budget=budgets.get("gpu"), node_hours_budget=budgets.get("node")
    )
    if spell.begin == 0:  # long ago, by a window that is as long
        found = used([spell], 110 * DAY, window=110 * DAY)
    else:
        found = used([spell], 110 * DAY)
    assert budget_fraction(tenant, found) == pytest.approx(part)


def test_without_a_budget_nothing_is_used_of_it() -> None:
    assert budget_fraction(Tenant("t", "bio"), used([GANG], 101 * DAY)) is None
    assert usage.Usage().gpu_hours == 0


def test_published_budgets_replace_the_old_ones(state: State) -> None:
    publish_budgets(state, {"chem": 0.5, "bio": 1.2})
    assert list(state.budgets.items()) == [("bio", 1.2), ("chem", 0.5)]
    publish_budgets(state, {"bio": 0.0})
    assert state.budgets == {"bio": 0.0}


# Snapshots --------------------------------------------------------------------------------------


def test_a_snapshot_has_tenants_and_what_they_have_used(state: State) -> None:
    quota(state, max_nodes=4, gpu_hours_budget=10, fair_share_target=0.5)
    tenant_edits.create_tenant(state, id="c", name="chem", max_concurrent=0)
    publish_budgets(state, {"bio": 0.9})
    submit(state, "a", tasks=2)
    quota(state, max_nodes=1)  # it holds more, which is no mistake of the snapshot
    shown = dump(state, 0)
    bio = {"name": "bio", "max_nodes": 1, "gpu_hours_budget": 10.0, "fair_share_target": 0.5}
    assert shown["tenants"] == [
        {**bio, "budget_used": 0.9},
        {"name": "chem", "max_concurrent": 0},
    ]
    again = load(shown)
    assert dump(again, 0)["tenants"] == shown["tenants"]
    assert again.budgets == {"bio": 0.9} and again.tenancy.held == {"bio": 2}
    assert audit.check(again) == []


@pytest.mark.parametrize(
    ("entry", "path"),
    [
        ({"name": "bio", "max_nodes": -1}, "tenants[0].max_nodes"),
        ({"name": "bio", "max_node": 1}, "tenants[0].max_node"),
        ({"max_nodes": 1}, "tenants[0].name"),
        ({"name": "bio", "budget_used": "much"}, "tenants[0].budget_used"),
        (["bio"], "tenants[0]"),
    ],
)
def test_what_is_wrong_with_a_tenant_is_named_with_its_path(entry: object, path: str) -> None:
    with pytest.raises(SnapshotError) as caught:
        load({"tenants": [entry]})
    assert caught.value.path == path
