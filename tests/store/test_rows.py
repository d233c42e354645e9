"""What was stored comes back exactly."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cede.engine.state.changes import Event
from cede.model.allocation import Allocation, Member, Phase, allocation_id
from cede.model.bounds import AMOUNT_MAX
from cede.model.lifecycle import AllocationState, RequestStatus
from cede.model.node import Node, NodeState, Out
from cede.model.policy import Home, Kind, Mode, Policy
from cede.model.pool import Pool
from cede.model.reason import Code, Reason
from cede.model.request import PLAIN, Earmark, OnSilence, Preemptions, Request, Retry, Withhold
from cede.model.settings import OverLimit, Precedence, Settings
from cede.model.shape import Shape, Topology
from cede.model.stopping import Checkpoint, Protocol, Saved, StopPolicy, StopProgress
from cede.model.subject import SUBJECT_TYPES, Subject
from cede.model.terms import USUAL, Terms
from cede.model.token import Role, Token
from cede.model.work import Work
from cede.store import node_rows, rows, schema, term_rows
from cede.store.statements import REQUESTS
from tests.store.samples import batch, changes, policy, request, started

# Everything that can come through the door: no NUL and no half of a surrogate pair.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
names = texts.filter(bool)
numbers = st.integers(0, AMOUNT_MAX)
small = st.integers(0, 2**31 - 1)
amounts = st.dictionaries(names, numbers, max_size=4)
maybe_number = st.none() | numbers
subjects = st.builds(Subject, st.sampled_from(SUBJECT_TYPES), names)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-AMOUNT_MAX, AMOUNT_MAX) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=5,
)
details = st.dictionaries(names.filter(lambda key: key not in ("code", "text", "fix")), json_values)
reasons = st.none() | st.builds(Reason, st.sampled_from(Code), details)
pools = st.builds(
    Pool,
    id=names,
    name=names,
    capacity=amounts,
    preset=names,
    settings=st.builds(
        Settings,
        st.sampled_from(Precedence),
        small,
        *(numbers,) * 4,
        preemption_satisfaction_threshold=st.floats(0, 1_000),
        non_preemptible_resource_usage_threshold=amounts,
        over_limit=st.sampled_from(OverLimit),
        gang_steps=st.booleans(),
    ),
    description=texts,
    created=texts,
    edited=numbers,
    nodes=st.none() | st.dictionaries(names, texts, max_size=3),
)
node_devices = st.dictionaries(names, st.lists(names, max_size=3).map(tuple), max_size=2)
footprints = st.lists(st.tuples(names, small), max_size=2).map(tuple)
nodes = st.builds(
    Node,
    id=names,
    name=names,
    amounts=amounts,
    devices=node_devices,
    labels=st.dictionaries(names, texts, max_size=3),
    group=texts,
    fingerprint=texts,
    pool_id=st.none() | names,
    state=st.sampled_from(NodeState),
    out=st.sampled_from(Out),
    reason=texts,
    heartbeat=numbers,
    boot=texts,
    failures=small,
    created=texts,
)
shapes = st.builds(
    Shape,
    amounts=amounts,
    tasks=st.integers(1, 2**31 - 1),
    per_node=st.none() | small,
    labels=st.dictionaries(names, texts, max_size=2),
    fingerprint=texts,
    topology=st.sampled_from(Topology),
)
works = st.builds(
    Work,
    argv=st.lists(texts, max_size=3).map(tuple),
    env=st.dictionaries(names, texts, max_size=2),
    directory=texts,
    user=texts,
)
stopping = st.just(PLAIN) | st.builds(
    StopPolicy,
    st.sampled_from(Checkpoint),
    st.sampled_from(Protocol),
    numbers,
    numbers,
    st.booleans(),
)
members = st.builds(
    Member,
    task=small,
    node_id=names,
    devices=node_devices,
    phase=st.sampled_from(Phase),
    saved=texts,
    exit_code=st.none() | st.integers(-(2**31), 2**31 - 1),
    cause=texts,
)
stops = st.builds(
    StopProgress, small, numbers, numbers, *(st.booleans(),) * 2, numbers, *(st.booleans(),) * 2
)
own_settings = st.fixed_dictionaries(
    {},
    optional={
        "fair_share_starvation_timeout": numbers,
        "fair_share_starvation_tolerance": st.floats(0, 1),
        "non_preemptible_resource_usage_threshold": amounts,
    },
)
policies = st.builds(
    Policy,
    id=names,
    pool_id=names,
    subject=subjects,
    priority=st.integers(-1_000_000, 1_000_000),
    reserved=amounts,
    limit=amounts,
    name=texts,
    weight=st.floats(1e-6, 1e6),
    mode=st.sampled_from(Mode),
    settings=own_settings,
    integral=st.just({}) | st.fixed_dictionaries({"resource_flow": amounts}),
    kind=st.sampled_from(Kind),
    max_class=st.integers(0, 10),
    allow_sensitive=st.booleans(),
    home=st.none()
    | st.builds(Home, st.dictionaries(names, texts, max_size=2), st.lists(names).map(tuple)),
    allow_lending=st.booleans(),
    allow_borrowing=st.booleans(),
    max_borrow_pct=st.floats(0, 1_000),
    return_grace=numbers,
    created=texts,
    edited=numbers,
)
terms = st.just(USUAL) | st.builds(
    Terms, st.integers(0, 10), st.booleans(), texts, amounts, own_settings, st.floats(1e-6, 1e6)
)
requests = st.builds(
    Request,
    id=names,
    subject=subjects,
    amounts=amounts,
    submitted_at=numbers,
    index=numbers,
    status=st.sampled_from(RequestStatus),
    preemptible=st.booleans(),
    pool_id=st.none() | names,
    reason=reasons,
    attempt=st.integers(1, 2**31 - 1),
    retries_used=small,
    preempted_count=small,
    retry=st.builds(Retry, small, numbers, small, st.sampled_from(Preemptions)),
    not_before=numbers,
    bypassed=small,
    withhold=st.none() | st.builds(Withhold, names, numbers, footprints),
    earmark=st.none() | st.builds(Earmark, names, names, numbers, footprints),
    walltime=maybe_number,
    lease=maybe_number,
    lease_until=maybe_number,
    on_silence=st.sampled_from(OnSilence),
    shape=st.none() | shapes,
    work=st.none() | works,
    stop_policy=stopping,
    saved=st.none() | st.builds(Saved, names, numbers, numbers),
    lost_count=small,
    terms=terms,
    part_of=st.none() | names,
    labels=st.dictionaries(names, texts, max_size=3),
    comment=texts,
    owner=texts,
    created=texts,
)


@st.composite
def allocations(draw: st.DrawFn, request_id: str | None = None) -> Allocation:
    of = draw(names) if request_id is None else request_id
    attempt = draw(st.integers(1, 2**31 - 1))
    return Allocation(
        id=allocation_id(of, attempt),
        request_id=of,
        pool_id=draw(names),
        policy_id=draw(names),
        amounts=draw(amounts),
        preemptible=draw(st.booleans()),
        attempt=attempt,
        index=draw(numbers),
        allocated_at=draw(numbers),
        state=draw(st.sampled_from(AllocationState)),
        started_at=draw(maybe_number),
        walltime=draw(maybe_number),
        lease_until=draw(maybe_number),
        deadline=draw(maybe_number),
        told=draw(st.booleans()),
        taken_for=draw(st.none() | names),
        reason=draw(reasons),
        ended_at=draw(maybe_number),
        members=draw(st.lists(members, max_size=2).map(tuple)),
        stop_progress=draw(st.none() | stops),
    )


events = st.builds(Event, numbers, numbers, names, st.none() | names, st.none() | names, details)
tokens = st.builds(
    Token,
    id=names,
    name=names,
    role=st.sampled_from(Role),
    subjects=st.lists(subjects, max_size=3).map(tuple),
    hash=names,
    created=texts,
    expires_at_wall=st.none() | texts,
    revoked=st.booleans(),
    uses=st.none() | small,
)


@given(pools)
def test_pool(value: Pool) -> None:
    assert rows.pool_from(rows.pool_row(value)) == value


@given(nodes)
def test_node(value: Node) -> None:
    assert node_rows.node_from(node_rows.node_row(value)) == value


@given(policies)
def test_policy(value: Policy) -> None:
    assert rows.policy_from(rows.policy_row(value)) == value


def test_who_says_nothing_unusual_has_no_text_for_it() -> None:
    told = dict(zip(schema.policies.columns.keys(), rows.policy_row(policy()), strict=True))
    asked = dict(zip(REQUESTS.columns, rows.request_row(request(), None), strict=True))
    of = schema.requests.c
    assert told["further"] is None
    assert [asked[each] for each in (of["class"], of.tenant, of.terms)] == [None, None, None]
    assert rows.request_from(rows.request_row(request(), None)).terms is USUAL


def test_every_field_of_a_policy_is_kept() -> None:
    """A field that the model gets and the rows do not would be lost by the next restart."""
    columns = {"limit": "limits", "subject": "subject_type"}
    kept = {*schema.policies.columns.keys(), *(each.attribute for each in term_rows.FURTHER)}
    assert {columns.get(each.name, each.name) for each in fields(Policy)} <= kept


@given(requests)
def test_request(value: Request) -> None:
    assert rows.request_from(rows.request_row(value, None)) == value


@given(requests, requests)
def test_requests_that_differ_in_any_one_field_are_told_apart(one: Request, other: Request) -> None:
    mixed = [replace(one, **{each.name: getattr(other, each.name)}) for each in fields(Request)]
    values = [one, *mixed, *mixed, one]
    made = list(rows.requests_from(rows.request_row(each, None) for each in values))
    assert made == values
    assert {type(each) for each in made} == {Request}


def test_alike_requests_share_their_values() -> None:
    values = [request(f"request-{at}", at, retry=Retry(3), after=("x",)) for at in range(3)]
    first, *others = rows.requests_from(rows.request_row(each, None) for each in values)
    assert all(each.retry is first.retry and each.after is first.after for each in others)


@given(allocations())
def test_allocation(value: Allocation) -> None:
    assert rows.allocation_from(rows.allocation_row(value)) == value


@given(events)
def test_event(value: Event) -> None:
    assert rows.event_from(rows.event_row(value)) == value


@given(tokens)
def test_token(value: Token) -> None:
    assert rows.token_from(rows.token_row(value)) == value


@pytest.mark.slow
def test_through_the_database(database_url: str) -> None:
    """The drivers and the column types keep every bit as well."""
    store, _ = started(database_url)
    count = itertools.count()

    @settings(max_examples=60, suppress_health_check=list(HealthCheck))
    @given(requests, allocations(), pools, nodes, policies)
    def keeps(
        request: Request, allocation: Allocation, pool: Pool, node: Node, policy: Policy
    ) -> None:
        number = next(count)
        request = replace(request, id=f"{number} {request.id}", index=number)
        id_ = allocation_id(request.id, allocation.attempt)
        held = tuple(replace(each, devices={}) for each in allocation.members)
        allocation = replace(allocation, id=id_, request_id=request.id, members=held)
        pool = replace(pool, id=f"{number} {pool.id}", name=f"{number} {pool.name}")
        node = replace(node, id=f"{number} {node.id}", name=f"{number} {node.name}", pool_id=None)
        policy = replace(policy, id=f"{number} {policy.id}", pool_id=pool.id)
        store.commit(batch(number, changes([pool, node, policy, request, allocation])))
        assert store.get_requests([request.id]) == {request.id: (request, allocation)}
        assert store.get_pool(pool.id) == pool
        assert store.get_node(node.name) == node
        assert store.get_policy(policy.id).policy == policy

    keeps()
    store.close()
