"""Every rule of the audit fires: a state is broken on purpose, and the audit names what broke.

A checker that never fired proves nothing. What is broken here cannot be broken through commands, so
entities and sums are changed behind the state's back.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from cede.engine.audit import audit
from cede.engine.rights.standing import IN_SHARE
from cede.engine.state.state import State
from cede.model.lifecycle import AllocationState, RequestStatus
from cede.model.request import Earmark
from cede.model.tenant import Tenant
from cede.model.terms import Terms
from tests.scenario import tell

STORY = """
    pool gpus 8
    team red  reserved 2 limit 8 priority 10
    team blue reserved 4 limit 4 priority 10
    red submits f of 2 fixed  -> running f
    red submits r1..r3 of 2   -> running r1 r2 r3
    blue submits b of 2       -> stopping r3, earmark b
    red submits w of 2        -> waiting w
"""


def _allocation(name: str, **changes: object) -> Callable[[State], None]:
    def act(state: State) -> None:
        state._replace_allocation(  # the state's own door, without its checks
            state.allocations[name],
            replace(state.allocations[name], **changes),  # type: ignore[arg-type]
        )

    return act


def _request(name: str, **changes: object) -> Callable[[State], None]:
    def act(state: State) -> None:
        state._replace_request(
            state.requests[name],
            replace(state.requests[name], **changes),  # type: ignore[arg-type]
        )

    return act


def _second_allocation(state: State) -> None:
    copy = replace(state.allocations["r1.1"], id="r1.2", index=99, amounts={})
    state._replace_allocation(None, copy)


def _orphan(state: State) -> None:
    state.requests["x"] = replace(state.requests["r1"], id="x")
    state._replace_allocation(
        None, replace(state.allocations["r1.1"], id="x.1", request_id="x", amounts={})
    )
    del state.requests["x"]


def _pool(**changes: object) -> Callable[[State], None]:
    def act(state: State) -> None:
        state._edit("pools", "gpus", state.pools["gpus"], replace(state.pools["gpus"], **changes))  # type: ignore[arg-type]

    return act


def _policy(name: str, **changes: object) -> Callable[[State], None]:
    def act(state: State) -> None:
        old = state.policies[name]
        state._edit("policies", name, old, replace(old, **changes))  # type: ignore[arg-type]

    return act


def _negative_reserve(state: State) -> None:
    state.policies["gpus/blue"] = replace(state.policies["gpus/blue"], reserved={"gpu": -1})


def _sum(which: str) -> Callable[[State], None]:
    def act(state: State) -> None:
        getattr(state.ledgers["gpus"], which)["gpu"] += 1

    return act


def _takeable(state: State) -> None:
    for amounts in state.ledgers["gpus"].tiers.values():
        amounts["gpu"] = amounts.get("gpu", 0) + 1


def _rights(state: State) -> None:
    rights = state.ledgers["gpus"]._rights
    rights["f.1"] = IN_SHARE - rights["f.1"]


def _forgotten_holding(state: State) -> None:
    del state.ledgers["gpus"].holdings["f.1"]


def _left_its_queue(state: State) -> None:
    request = state.requests["w"]
    ledger = state.ledgers["gpus"]
    ledger.queues[ledger.queue_of("gpus/red", request)].remove(
        (request.submitted_at, request.index, request.id)
    )


def _in_a_queue_twice(state: State) -> None:
    request = state.requests["b"]
    age = (request.submitted_at, request.index, request.id)
    ledger = state.ledgers["gpus"]
    ledger.wait(ledger.queue_of("gpus/blue", request), age, {"gpu": 2})


def _array_of_two(state: State) -> None:
    for number, name in enumerate(("r1", "r2")):
        _request(name, part_of="r1", array="0-1%1", array_task=number)(state)


def _out_of_turn(state: State) -> None:
    state.requests["w"] = replace(state.requests["w"], after=("r1",))


# What is done to the state, and what the audit must say.
FIRES: dict[str, tuple[Callable[[State], None], str]] = {
    "two live allocations": (_second_allocation, "S9 request r1 has 2 live allocations"),
    "an allocation of nobody": (_orphan, "S9 allocation x.1 is live, its request is not holding"),
    "a live allocation of a waiter": (
        _request("r1", status=RequestStatus.QUEUED), "its request is not holding"),
    "another attempt": (_allocation("r1.1", attempt=2), "S9 allocation r1.1 is not of attempt 1"),
    "half a demand": (_allocation("r1.1", amounts={"gpu": 1}), "S10 allocation r1.1 does not hold"),
    "a holder without capacity": (
        _allocation("r1.1", state=AllocationState.ENDED), "S9 request r1 is allocated and holds"),
    "a holder that owns an earmark": (
        _request("r1", earmark=Earmark("gpus", "gpus/red", 5)), "S28 request r1 is allocated"),
    "more tasks of an array than at once": (
        _array_of_two, "S33 array r1: 2 tasks hold of 1 at once"),
    "a holder before its dependency": (
        _request("r1", after=("w",)), "S33 request r1 holds before w has ended"),
    "a waiter in a queue before its turn": (
        _out_of_turn, "S21 pool gpus: request w is not in its queue"),
    "reserved above the limit": (
        _policy("gpus/blue", limit={"gpu": 1}), "S4 policy blue reserves 4 gpu"),
    "a reserve of a key the pool lacks": (
        _policy("gpus/blue", reserved={"licence": 1}), "S4 policy blue reserves 1 licence"),
    "a negative reserve": (_negative_reserve, "S4 policy blue reserves -1 gpu"),
    "more reserved than there is": (
        _policy("gpus/red", reserved={"gpu": 6}), "S4 pool gpus has 10 gpu reserved of 8"),
    "more held than there is": (_pool(capacity={"gpu": 6}), "S1 pool gpus: 8 gpu held of 6"),
    "more promised than there is": (
        _allocation("r3.1", state=AllocationState.GRANTED), "S28 pool gpus: 10 gpu promised of 8"),
    "more held than the limit": (
        _policy("gpus/red", limit={"gpu": 4}), "S2 limit of policy red: 8 gpu held of 4"),
    "more non-preemptible than reserved": (
        _policy("gpus/red", reserved={"gpu": 1}), "S5 reserved of policy red: 2 gpu held of 1"),
    "a wrong sum of what is live": (_sum("live"), "S21 pool gpus: live is"),
    "a wrong sum of what is leaving": (_sum("leaving"), "S21 pool gpus: leaving is"),
    "a wrong sum of what may be taken": (_takeable, "S21 pool gpus: takeable is"),
    "wrong rights": (_rights, "S21 pool gpus: rights of f.1 are not"),
    "a holding the books forgot": (_forgotten_holding, "S21 pool gpus: rights of f.1"),
    "a waiter outside its queue": (_left_its_queue, "S21 pool gpus: request w is not in its queue"),
    "an owner that queues as well": (_in_a_queue_twice, "S21 pool gpus: request b is not in its"),
}  # fmt: skip


@pytest.mark.parametrize(("breaks", "said"), FIRES.values(), ids=FIRES)
def test_the_audit_names_what_broke(breaks: Callable[[State], None], said: str) -> None:
    state = tell(STORY).state
    assert audit.check(state) == []
    breaks(state)
    found = audit.check(state)
    assert any(said in each for each in found), found


NODES = """
    node n1..n3 4 gpu 4000 mcpu in gpus
    pool gpus nodes
    team red  reserved 4 limit 12 priority 10
    team blue reserved 8 limit 12 priority 10
    red runs g of 2 gpu 1000 mcpu tasks 2 per_node 1 -> running g, on g n1 n2
    red runs r of 4                                  -> running r, on r n3
    blue runs b of 4                                 -> stopping r, earmark b, promised b n3
"""


def _sits(task: int, **changes: object) -> Callable[[State], None]:
    def act(state: State) -> None:
        allocation = state.allocations["g.1"]
        members = list(allocation.members)
        members[task] = replace(members[task], **changes)  # type: ignore[arg-type]
        state._replace_allocation(allocation, replace(allocation, members=tuple(members)))

    return act


def _smaller_node(state: State) -> None:
    spot = state.inventories["gpus"].spots["n1"]
    state.nodes["n1"] = spot.node = replace(spot.node, amounts={"gpu": 1, "mcpu": 4000})


def _other_capacity(state: State) -> None:
    state.pools["gpus"] = replace(state.pools["gpus"], capacity={"gpu": 13, "mcpu": 12000})


def _wrong_room(state: State) -> None:
    spot = state.inventories["gpus"].spots["n1"]
    spot.free = tuple(each + 1 for each in spot.free)


def _claimed(name: str) -> Callable[[State], None]:
    def act(state: State) -> None:
        state.nodes[name] = replace(state.nodes[name], claimed_by="ann")

    return act


def _unlisted(state: State) -> None:
    inventory = state.inventories["gpus"]
    inventory.now.remove(inventory.spots["n1"])


def _ungrouped(state: State) -> None:
    listing = state.inventories["gpus"].now
    listing.by_group().remove(listing.nodes[0], state.nodes[listing.nodes[0][1]].group)


# The same for pools of nodes.
FIRES_ON_NODES: dict[str, tuple[Callable[[State], None], str]] = {
    "a capacity that the nodes do not have": (
        _other_capacity, "S21 pool gpus: its capacity is not what its nodes have"),
    "a gang that is not whole": (
        _allocation("g.1", members=()), "S10 allocation g.1 sits on 0 nodes, not on 2"),
    "a device of two members": (
        _sits(1, node_id="n1"), "S3 device gpu 0 of n1"),
    "a device of two allocations": (
        _sits(1, node_id="n3", devices={"gpu": ("2", "3")}), "S3 device gpu 2 of n3"),
    "a device twice in one member": (
        _sits(1, devices={"gpu": ("2", "2")}), "S3 device gpu 2 of n2"),
    "more on a node than it has": (_smaller_node, "S3 node n1: 2 gpu of 1"),
    "more promised on a node than it has": (
        _allocation("r.1", state=AllocationState.RUNNING), "S28 node n3: 8 gpu of 4"),
    "others on a claimed node": (
        _claimed("n1"), "S29 node n1 is claimed by ann, and g has it"),
    "a claimed node that is promised": (
        _claimed("n3"), "S29 node n3 is claimed by ann, and b has it"),
    "a wrong room": (_wrong_room, "S21 node n1: 3 gpu free, recounted 2"),
    "a node that is not listed": (_unlisted, "S21 node n1 is listed 1 times"),
    "a node that is missing in its group": (
        _ungrouped, "S21 pool gpus: what is free in its groups is not what its nodes have"),
}  # fmt: skip


@pytest.mark.parametrize(("breaks", "said"), FIRES_ON_NODES.values(), ids=FIRES_ON_NODES)
def test_the_audit_names_what_broke_on_nodes(breaks: Callable[[State], None], said: str) -> None:
    state = tell(NODES).state
    assert audit.check(state) == []
    breaks(state)
    found = audit.check(state)
    assert any(said in each for each in found), found


TREE = """
    pool gpus 8
    team north reserved 6 limit 6 priority 10
    team a under north reserved 2 priority 10
    a submits a1..a3 of 2 -> running a1 a2 a3
"""


def _policy_of_tree(name: str, **changes: object) -> Callable[[State], None]:
    def act(state: State) -> None:
        policy = state.policies[f"gpus/{name}"]
        state.policies[policy.id] = replace(policy, **changes)  # type: ignore[arg-type]

    return act


# The same for policies that form a tree.
FIRES_ON_TREES: dict[str, tuple[Callable[[State], None], str]] = {
    "more below a policy than its limit": (
        _policy_of_tree("north", limit={"gpu": 4}), "S2 limit of policy north: 6 gpu below"),
    "more reserved below a policy than for it": (
        _policy_of_tree("a", reserved={"gpu": 7}), "S4 policy north: 7 gpu reserved below it"),
    "a policy below itself": (
        _policy_of_tree("north", parent_id="gpus/a"), "S4 policy north has a parent that is not"),
}  # fmt: skip


@pytest.mark.parametrize(("breaks", "said"), FIRES_ON_TREES.values(), ids=FIRES_ON_TREES)
def test_the_audit_names_what_broke_on_trees(breaks: Callable[[State], None], said: str) -> None:
    state = tell(TREE).state
    assert audit.check(state) == []
    breaks(state)
    north = state.policies["gpus/north"]
    found = [*audit._configuration(state), *audit._policy(audit.Alive(state), north, {})]
    assert any(said in each for each in found), found


def _of_tenant() -> State:
    """Tenant bio holds two nodes, was promised one, and waits for one more."""
    state = tell(STORY).state
    for name in ("r1", "r2", "b", "w"):
        request = state.requests[name]
        state._replace_request(request, None)  # whose a request is never changes
        state._replace_request(None, replace(request, terms=Terms(tenant="bio")))
    for allocation in [state.allocations[each] for each in ("r1.1", "r2.1")]:
        state._replace_allocation(allocation, allocation)  # held by a tenant from now on
    state.put(Tenant("t", "bio", max_nodes=2))
    return state


def _count(which: str) -> Callable[[State], None]:
    def act(state: State) -> None:
        getattr(state.tenancy, which)["bio"] += 1

    return act


def _waiters(state: State) -> None:
    state.tenancy.waiters["bio"]["gpus"] += 1


def _quota(**changes: object) -> Callable[[State], None]:
    def act(state: State) -> None:
        state.put(replace(state.tenants["t"], **changes))  # type: ignore[arg-type]

    return act


def _unnamed(state: State) -> None:
    del state.tenancy.named["bio"]


# The same for tenants.
FIRES_ON_TENANTS: dict[str, tuple[Callable[[State], None], str]] = {
    "a wrong count of requests": (_count("alive"), "S21 tenants: alive is"),
    "a wrong count of nodes": (_count("held"), "S21 tenants: held is"),
    "a wrong count of promises": (_count("promised"), "S21 tenants: promised is"),
    "a wrong count of waiters": (_waiters, "S21 tenants: waiting is"),
    "a tenant that is not known": (_unnamed, "S21 tenant bio is not known by its name"),
    "more nodes than the quota": (_quota(max_nodes=1), "S2 tenant bio: 2 nodes of 1"),
}


@pytest.mark.parametrize(("breaks", "said"), FIRES_ON_TENANTS.values(), ids=FIRES_ON_TENANTS)
def test_the_audit_names_what_broke_of_tenants(breaks: Callable[[State], None], said: str) -> None:
    state = _of_tenant()
    assert audit.check(state) == []
    breaks(state)
    found = audit.check(state)
    assert any(said in each for each in found), found


def test_a_lowered_quota_is_no_breakage() -> None:
    state = _of_tenant()
    _quota(max_nodes=1, edited=state.index)(state)
    assert audit.check(state) == []


def test_a_policy_in_no_pool_is_found() -> None:
    """The rest of the audit cannot look at such a policy, so its rule is asked alone."""
    state = tell(STORY).state
    lost = replace(state.policies["gpus/red"], id="lost", name="lost", pool_id="nowhere")
    state.policies["lost"] = lost
    assert [*audit._configuration(state)] == ["S4 policy lost is in no pool"]


def test_every_rule_has_a_breakage() -> None:
    source = inspect.getsource(audit)
    rules = re.findall(r'yield f"(?:\{code\}|(S\d+))', source)
    tables = (FIRES, FIRES_ON_NODES, FIRES_ON_TREES, FIRES_ON_TENANTS)
    fires = [each for table in tables for each in table.values()]
    said = [said for _, said in fires]
    for number in {each for each in rules if each} | {"S2", "S5"}:
        assert any(each.startswith(f"{number} ") for each in said), number
    assert len(re.findall(r"\byield f", source)) <= len(fires)


def test_a_lowered_bound_is_no_breakage_until_something_is_granted() -> None:
    """The exception of S1, S2 and S5: running work stays when an operator lowers a bound."""
    tell("""
        pool gpus 8
        team red reserved 4 limit 8
        red submits f of 4 fixed     -> running f
        red submits r of 4           -> running r
        edit red reserved 1 limit 3
        edit pool gpus 3
    """)
