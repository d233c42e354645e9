"""Tenants are kept, and usage is summed from allocations, on both databases."""

from __future__ import annotations

from typing import Any

import pytest

from cede.model.allocation import Allocation, Member
from cede.model.bounds import BUDGET_WINDOW, DAY, HOUR
from cede.model.errors import NotFound
from cede.model.lifecycle import AllocationState, RequestStatus
from cede.model.reason import Code, Reason
from cede.model.request import Request
from cede.model.shape import Shape
from cede.model.terms import Terms
from cede.model.usage import Usage
from cede.store import Store, usage
from cede.store.json_text import decode
from cede.store.usage import By
from tests.store.samples import BLUE, allocation, batch, changes, policy, pool, request, tenant
from tests.store.samples import started as start

NOW = 200 * 24 * HOUR
ENDED = AllocationState.ENDED


def held(
    id: str, index: int, begin: int, end: int | None, tenant: str = "", **more: Any
) -> tuple[Request, Allocation]:
    """A request of so many tasks, and its allocation from `begin` to `end`."""
    tasks, gpu, members = more.pop("tasks", 1), more.pop("gpu", 4), more.pop("members", ())
    status = RequestStatus.ALLOCATED if end is None else RequestStatus.RELEASED
    asked = more.pop("asked", {})
    amounts = {"gpu": gpu * tasks}
    state = AllocationState.RUNNING if end is None else ENDED
    return (
        request(
            id,
            index,
            amounts=amounts,
            shape=Shape({"gpu": gpu}, tasks) if tasks > 1 else None,
            terms=Terms(tenant=tenant),
            **{"status": status, **asked},
        ),
        allocation(
            id, amounts=amounts, allocated_at=begin, ended_at=end, state=state, members=members,
            **more,
        ),
    )  # fmt: skip


def keep(store: Store, *pairs: tuple[Request, Allocation], tenants: tuple[Any, ...] = ()) -> None:
    entities = [pool(), policy(), policy("policy-2", BLUE), *tenants]
    for pair in pairs:
        entities += pair
    store.commit(batch(0, changes(entities), index=100))


def told(store: Store, by: By, **more: Any) -> dict[str | None, tuple[float, ...]]:
    """By whom: node-hours, GPU-hours, requests, preempted."""
    return {
        each.id: (each.usage.node_hours, each.usage.gpu_hours, each.requests, each.preempted)
        for each in store.usage(by, NOW, **more)
    }


def test_a_tenant_comes_back_exactly_and_can_be_changed(database_url: str) -> None:
    full = tenant(
        max_nodes=8,
        max_concurrent=2**53 - 1,
        gpu_hours_budget=1e3,
        node_hours_budget=0.1,
        fair_share_target=0.25,
        burst_allowance=1.5,
        created="2026-01-01T00:00:00.000Z",
        edited=7,
    )
    store, _ = start(database_url)
    store.commit(batch(0, changes([full, tenant("tenant-2", "chem")])))
    store.commit(batch(1, changes(updated=[tenant("tenant-2", "chem", max_nodes=0)])))
    store.close()
    again, loaded = start(database_url)
    kept = {"tenant-1": full, "tenant-2": tenant("tenant-2", "chem", max_nodes=0)}
    assert loaded.state.tenants == kept
    assert loaded.state.tenancy.named["chem"].max_nodes == 0
    assert [each.tenant for each in again.list_tenants(NOW).items] == [*kept.values()]
    gone = changes()
    gone.tenants.deleted.append("tenant-1")
    again.commit(batch(2, gone))
    with pytest.raises(NotFound):
        again.get_tenant("bio", NOW)
    assert again.get_tenant("tenant-2", NOW).tenant.name == "chem"
    again.close()


def test_tenants_come_in_pages_by_name(store: Store) -> None:
    names = [f"t{n}" for n in range(5)]
    store.commit(batch(0, changes([tenant(f"id-{name}", name) for name in reversed(names)])))
    first = store.list_tenants(NOW, limit=3)
    rest = store.list_tenants(NOW, limit=3, cursor=first.next)
    assert [each.tenant.name for each in (*first.items, *rest.items)] == names
    assert rest.next is None


def test_what_is_alive_of_a_tenant_is_counted(store: Store) -> None:
    keep(
        store,
        held("a", 1, 0, None, "bio", tasks=3),
        held("b", 2, 0, 5, "bio", tasks=2),
        held("c", 3, 0, None, "chem"),
        tenants=(tenant(),),
    )
    waiting = request("d", 4, terms=Terms(tenant="bio"))
    store.commit(batch(100, changes([waiting])))
    view = store.get_tenant("bio", NOW)
    assert (view.nodes, view.requests, view.budget_used) == (3, 2, None)


def test_hours_are_nodes_and_amounts_times_held_time(store: Store) -> None:
    keep(
        store,
        held("a", 1, NOW - 10 * HOUR, NOW - 5 * HOUR, "bio", tasks=2),
        held("b", 2, NOW - 3 * HOUR, None, "bio", gpu=1),
        held("c", 3, NOW - 2 * HOUR, None, gpu=8, policy_id="policy-2"),
    )
    assert told(store, By.POOL) == {"pool-1": (15, 59, 3, 0)}
    assert told(store, By.POLICY) == {"policy-1": (13, 43, 2, 0), "policy-2": (2, 16, 1, 0)}
    assert told(store, By.TENANT) == {"bio": (13, 43, 2, 0), None: (2, 16, 1, 0)}
    assert told(store, By.TENANT, subjects=(BLUE,)) == {None: (2, 16, 1, 0)}


def test_a_period_counts_only_what_was_held_inside(store: Store) -> None:
    keep(
        store,
        held("before", 1, NOW - 10 * HOUR, NOW - 5 * HOUR),
        held("across", 2, NOW - 6 * HOUR, NOW - 2 * HOUR),
        held("still", 3, NOW - 9 * HOUR, None),
    )
    assert told(store, By.POOL, since=NOW - 4 * HOUR) == {"pool-1": (6, 24, 2, 0)}
    # What ended, or began, after the instant that is asked about.
    found = store.usage(By.POOL, NOW - 6 * HOUR - 1)[0]
    assert (found.requests, found.usage.node_hours) == (2, pytest.approx(7))


def test_tasks_on_one_node_are_one_node(store: Store) -> None:
    sitting = tuple(Member(task, f"node-{task // 2}") for task in range(4))
    keep(store, held("a", 1, NOW - HOUR, NOW, tasks=4, members=sitting))
    assert told(store, By.POOL) == {"pool-1": (2, 16, 1, 0)}


def test_only_those_who_were_stopped_are_preempted(store: Store) -> None:
    keep(
        store,
        held(
            "back", 1, 0, HOUR, taken_for="x", asked={"attempt": 2, "status": RequestStatus.QUEUED}
        ),
        held("gone", 2, 0, HOUR, taken_for="x", asked={"status": RequestStatus.PREEMPTED}),
        held("done", 3, 0, HOUR, taken_for="x"),  # it ended by itself before it was stopped
        held("on its way", 4, 0, None, taken_for="x"),
        held("free", 5, 0, HOUR),
        held(
            *("claimed", 6, 0, HOUR),
            reason=Reason(Code.SENSITIVE_CLAIM, {"claimant": "ann"}),
            asked={"status": RequestStatus.PREEMPTED},
        ),
    )
    assert told(store, By.POOL)["pool-1"][2:] == (6, 3)


def test_what_was_used_outlasts_a_restart_and_a_deleted_request(database_url: str) -> None:
    store, _ = start(database_url)
    keep(store, held("a", 1, NOW - 2 * HOUR, NOW, "bio"), tenants=(tenant(node_hours_budget=4),))
    store.commit(batch(100, deleted_requests=["a"]))
    store.close()
    again, _ = start(database_url)
    assert told(again, By.TENANT) == {"bio": (2, 8, 1, 0)}
    assert again.budgets_used(NOW) == {"bio": 0.5}
    kept = again.get_allocation("a", 1)
    assert kept is not None and kept.reason is None
    again.close()


def test_a_budget_counts_what_began_inside_its_window(store: Store) -> None:
    old = NOW - BUDGET_WINDOW - 1
    keep(
        store,
        held("too old", 1, old, NOW, "bio"),
        held("first", 2, old + 1, old + 1 + 10 * HOUR, "bio", tasks=2),
        held("running", 3, NOW - 5 * HOUR, None, "chem", gpu=1),
        held("no tenant", 4, NOW - 5 * HOUR, None),
        held("unknown", 5, NOW - 5 * HOUR, None, "nobody"),
        tenants=(
            tenant(gpu_hours_budget=1000, node_hours_budget=25),
            tenant("tenant-2", "chem", gpu_hours_budget=1000),
            tenant("tenant-3", "new", node_hours_budget=1),
            tenant("tenant-4", "free"),
        ),
    )
    assert store.budgets_used(NOW) == {"bio": 0.8, "chem": 0.005, "new": 0.0}
    assert {each.tenant.name: each.budget_used for each in store.list_tenants(NOW).items} == {
        "bio": 0.8,
        "chem": 0.005,
        "free": None,
        "new": 0.0,
    }


def test_a_report_by_label_reads_a_line_for_each_value_of_that_label(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other labels differ in every request: a million of them took 10 s, all of it in Python."""
    labels = [{"run": str(n), "project": "ab"[n % 2]} for n in range(20)]
    keep(store, *(held(f"r{n}", n + 1, 0, HOUR, asked={"labels": labels[n]}) for n in range(20)))
    decoded: list[str] = []
    monkeypatch.setattr(usage, "decode", lambda text: decoded.append(text) or decode(text))
    assert {each.id: each.requests for each in store.usage(By.LABEL, NOW)} == {"a": 10, "b": 10}
    assert len(decoded) == 2, "the amounts of each line"
    one = 'odd "key"'
    assert [each.id for each in store.usage(By.LABEL, NOW, label=one)] == [None]


def test_what_ended_as_it_began_has_started_on_that_day(store: Store) -> None:
    """At the first instant of a period too: its removal must change no report."""
    keep(store, held("r0", 1, DAY, DAY))
    (found,) = store.usage(By.POOL, 3 * DAY, since=DAY)
    assert (found.starts, found.requests, found.usage, found.pools) == (1, 0, Usage(), {})
