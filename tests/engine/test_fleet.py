"""Nodes, exhaustively: everything that can happen to one, in every order, with and without work.

Whatever happens, states move along NODE_MOVES (every `put` checks it), capacity changes only when a
node registers or is deleted, no waiter is rejected because a node is away, and what a silent node
holds is granted to nobody before its deadline.
"""

from __future__ import annotations

from itertools import product

import pytest

from cede.engine.admin import edits, fleet
from cede.engine.audit import audit
from cede.engine.decide import decide
from cede.engine.explain.why import why
from cede.engine.lifecycle import commands
from cede.engine.state.due import gone_at
from cede.engine.state.state import State
from cede.model.errors import CedeError, Conflict, Invalid
from cede.model.lifecycle import RequestStatus
from cede.model.node import NODE_MOVES, NodeState
from cede.model.request import OnSilence
from cede.model.subject import Subject
from cede.model.work import Work

RED = Subject("team", "red")
STEPS = ("drain", "undrain", "disable", "enable", "delete", "silence", "heard", "register")


def world() -> State:
    state = State()
    register(state, "n1", 0)
    edits.create_pool(state, id="gpus", name="gpus", nodes={"pool": "gpus"})
    edits.attach_policy(state, id="red", pool_id="gpus", subject=RED)
    return state


def register(state: State, name: str, now: int, **more: object) -> None:
    given: dict[str, object] = {
        "amounts": {"gpu": 2},
        "devices": {"gpu": ["0", "1"]},
        "labels": {"pool": "gpus"},
        "boot": "b1",
        **more,
    }
    fleet.register(state, id=name, name=name, now=now, **given)  # type: ignore[arg-type]


def submit(state: State, name: str, now: int, keep: bool = False) -> None:
    commands.submit(
        state,
        commands.Submission(
            id=name,
            subject=RED,
            amounts={"gpu": 2},
            lease=None,
            work=Work(("train",)),
            on_silence=OnSilence.KEEP if keep else OnSilence.STOP,
        ),
        now,
    )
    decide(state, now)


def step(state: State, what: str, now: int) -> int:
    """One thing that happens; what is refused changes nothing. The instant after it."""
    mark = state.mark()
    try:
        if what == "silence":
            now = gone_at(state.nodes["n1"], state.beats["n1"]) if "n1" in state.nodes else now
        elif what == "heard":
            if "n1" in state.nodes:
                fleet.heard(state, "n1", now)
        elif what == "register":
            register(state, "n1", now)
        elif what == "delete":
            fleet.delete(state, "n1", now)
        else:
            getattr(fleet, what)(state, "n1", now)
    except CedeError:
        state.undo(mark)
    decide(state, now)
    return now


@pytest.mark.parametrize(
    "works",
    [
        pytest.param(False, id="idle", marks=pytest.mark.slow),
        pytest.param(True, id="stop"),
        pytest.param(None, id="keep", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("first", STEPS)
def test_whatever_happens_to_a_node(first: str, works: bool | None) -> None:
    seen = set()
    for rest in product(STEPS, repeat=2):
        state, now = world(), 0
        if works is not False:
            submit(state, "held", now, keep=works is None)
        submit(state, "waits", now)
        for what in (first, *rest):
            before = dict(state.pools["gpus"].capacity)
            old = state.nodes.get("n1")
            now = step(state, what, now)
            assert audit.check(state) == []
            assert state.nodes.named("n1") == state.nodes.get("n1")
            new = state.nodes.get("n1")
            if old is not None and new is not None:
                seen.add((old.state, new.state))
            changed = state.pools["gpus"].capacity != before
            assert not changed or what in ("register", "delete")
            waiter = state.requests["waits"]
            gone = not state.pools["gpus"].capacity
            assert waiter.status is not RequestStatus.REJECTED or gone or "delete" in (first, *rest)
            if waiter.waiting and new is not None and not new.usable and works is False:
                assert "n1" in why(state, "waits", now)["reason"]["text"]
    assert all(old is new or new in NODE_MOVES[old] for old, new in seen)


def test_every_state_of_a_node_is_reached() -> None:
    state = world()
    submit(state, "held", 0)
    reached = {state.nodes["n1"].state}
    now = 30_000
    decide(state, now)
    reached.add(state.nodes["n1"].state)
    for what in ("heard", "drain", "silence", "heard"):
        now = step(state, what, now)
        reached.add(state.nodes["n1"].state)
    assert reached == set(NodeState)


@pytest.mark.parametrize("keep", [False, True])
def test_what_a_silent_node_holds_is_nobody_elses_before_its_deadline(keep: bool) -> None:
    """S14: at the deadline under stop, never under keep; the lease is over before."""
    state = world()
    submit(state, "held", 0, keep=keep)
    register(state, "n2", 0, amounts={"gpu": 2})
    submit(state, "other", 0)
    submit(state, "waits", 0)
    node = state.nodes["n1"]
    deadline = gone_at(node, 0)
    assert deadline >= node.lease + 5_000
    for now in (29_999, 30_000, deadline - 1):
        fleet.heard(state, "n2", now)
        decide(state, now)
        assert state.allocation_of("held") is not None
        assert state.requests["waits"].waiting
    fleet.heard(state, "n2", deadline)
    decide(state, deadline)
    assert state.nodes["n1"].state is NodeState.DOWN
    if keep:
        fleet.heard(state, "n2", 10**9)
        decide(state, 10**9)
        held = state.allocation_of("held")
        assert held is not None and str(held.state) == "lost"
        assert state.requests["waits"].waiting
    else:
        assert state.allocation_of("held") is None and state.requests["held"].attempt == 2
    assert audit.check(state) == []


REFUSED: dict[str, tuple[dict[str, object], type[CedeError], str]] = {
    "another machine of that name": ({"boot": "b2"}, Conflict, "alive on another machine"),
    "another pool while it holds work": ({"labels": {}}, Conflict, "holds work"),
    "two pools": ({"labels": {"pool": "gpus", "more": "x"}}, Conflict, "gpus and more"),
    "a device twice": ({"devices": {"gpu": ["0", "0"]}}, Invalid, "twice"),
    "nothing": ({"amounts": {}, "devices": {}}, Invalid, "at least one"),
}  # fmt: skip


@pytest.mark.parametrize(("given", "error", "said"), REFUSED.values(), ids=REFUSED)
def test_a_registration_that_would_confuse_is_refused(
    given: dict[str, object], error: type[CedeError], said: str
) -> None:
    state = world()
    edits.create_pool(state, id="more", name="more", nodes={"more": "x"})
    submit(state, "held", 0)
    before = state.nodes["n1"]
    mark = state.mark()
    with pytest.raises(error, match=said):
        register(state, "n1", 0, **given)
    state.undo(mark)
    assert state.nodes["n1"] == before and audit.check(state) == []


@pytest.mark.parametrize("devices", [["0", "7"], ["5", "6", "7"]])
def test_a_node_with_other_devices_keeps_its_work_and_gives_out_what_it_has(
    devices: list[str],
) -> None:
    """What is held of devices that are gone still counts; nobody else gets one that is held."""
    state = world()
    submit(state, "held", 0)
    register(state, "n1", 0, amounts={"gpu": len(devices)}, devices={"gpu": devices})
    submit(state, "next", 0)
    assert audit.check(state) == []
    held = state.allocation_of("held")
    assert held is not None and held.members[0].devices == {"gpu": ("0", "1")}
    assert state.requests["next"].waiting
    register(state, "n1", 0, amounts={"gpu": 4}, devices={"gpu": ["1", "5", "6", "7"]})
    decide(state, 0)
    then = state.allocation_of("next")
    assert then is not None and then.members[0].devices == {"gpu": ("5", "6")}
    assert audit.check(state) == []


def test_the_same_registration_again_changes_nothing() -> None:
    state = world()
    submit(state, "held", 0)
    before = (state.nodes["n1"], state.pools["gpus"], state.allocation_of("held"))
    register(state, "n1", 5)
    assert (state.nodes["n1"], state.pools["gpus"], state.allocation_of("held")) == before


def test_a_node_whose_capacity_is_reserved_is_not_deleted() -> None:
    """S4, naming the policies."""
    state = world()
    edits.update_policy(state, "red", reserved={"gpu": 2})
    with pytest.raises(Conflict, match="policy red"):
        fleet.delete(state, "n1", 0)
