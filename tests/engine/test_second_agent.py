"""One node, one agent: who may speak for a node that is known already, and from when on."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from cede.engine.admin import edits, fleet
from cede.engine.decide import decide
from cede.engine.state.due import gone_at
from cede.engine.state.state import State
from cede.model.errors import Conflict
from cede.model.node import SILENT_AFTER, Node
from cede.model.subject import Subject
from tests.engine.test_fleet import register, submit

FIRST = {"session": "s1", "machine": "m1", "boot": "b1", "protocol": 3}
RESTARTED = FIRST | {"session": "s2"}
OWN = fleet.Caller(own=True, previous="s1")
JOINS = fleet.Caller(previous="")


def world(said: Mapping[str, object] = FIRST) -> State:
    state = State()
    register(state, "n1", 0, **said)
    edits.create_pool(state, id="gpus", name="gpus", nodes={"pool": "gpus"})
    edits.attach_policy(state, id="red", pool_id="gpus", subject=Subject("team", "red"))
    fleet.heard(state, "n1", 0)
    return state


def node(state: State) -> Node:
    return state.nodes["n1"]


def silent(state: State) -> int:
    """The instant from which on the node counts as silent."""
    return SILENT_AFTER * node(state).heartbeat


def again(state: State, now: int, caller: fleet.Caller, **said: object) -> None:
    register(state, "n1", now, **FIRST | said, caller=caller)


GO_ON = {
    "the same agent started again": (OWN, {"session": "s2"}),
    "a session whose answer was lost": (fleet.Caller(own=True, previous="s0"), {}),
    "a joining whose answer was lost": (JOINS, {}),
    "nobody has ever spoken for the node": (
        fleet.Caller(has_agent=False),
        {"session": "x", "machine": "x"},
    ),
}


@pytest.mark.parametrize("who", GO_ON)
def test_it_goes_on_at_once_amid_its_work(who: str) -> None:
    caller, said = GO_ON[who]
    state = world()
    submit(state, "r1", 1)
    decide(state, 1)
    again(state, 1, caller, **said)
    assert node(state).session == said.get("session", "s1")
    assert state.on_node(node(state))


SECOND = {
    "another folder on the same boot": (JOINS, {"session": "x", "machine": "x"}),
    "another machine": (JOINS, {"session": "x", "machine": "x", "boot": "b2"}),
    "an agent of an earlier protocol": (JOINS, {"session": "", "machine": "", "protocol": 2}),
    "a copy of the folder on this machine": (OWN, {"session": "x", "machine": "x"}),
    "a copy of the folder elsewhere": (OWN, {"session": "x", "machine": "x", "boot": "b2"}),
    "a copy of the whole disk": (OWN, {"session": "x", "boot": "b2"}),
    "one that was replaced": (fleet.Caller(own=True, previous="s0"), {"session": "s0"}),
}


@pytest.mark.parametrize("who", SECOND)
def test_a_second_agent_is_refused_while_the_first_lives(who: str) -> None:
    caller, said = SECOND[who]
    state = world()
    for now in (1, silent(state) - 1):
        with pytest.raises(Conflict, match="another agent speaks for node n1") as refused:
            again(state, now, caller, **said)
        assert refused.value.code == "second_agent"
    assert node(state).session == "s1"


# A copy of a whole disk cannot be told from its original but by the original's heartbeats.
@pytest.mark.parametrize("who", [each for each in SECOND if "disk" not in each])
def test_a_second_agent_is_refused_until_the_work_of_the_first_is_fenced(who: str) -> None:
    caller, said = SECOND[who]
    state = world()
    submit(state, "r1", 1)
    decide(state, 1)
    fenced = gone_at(node(state), 0)
    for now in (silent(state), fenced - 1):
        decide(state, now)
        with pytest.raises(Conflict, match="is silent and holds r1"):
            again(state, now, caller, **said)
    decide(state, fenced)
    again(state, fenced, caller, **said)
    assert node(state).session == said["session"] and not state.on_node(node(state))


def test_work_that_is_kept_waits_for_an_operator() -> None:
    state = world()
    submit(state, "r1", 1, keep=True)
    decide(state, 1)
    caller, said = SECOND["another machine"]
    later = 10 * gone_at(node(state), 0)
    decide(state, later)
    with pytest.raises(Conflict, match="disable the node and delete it with force"):
        again(state, later, caller, **said)
    fleet.disable(state, "n1", later)
    fleet.delete(state, "n1", later, force=True)
    again(state, later, caller, **said)
    assert node(state).session == "x"


def test_an_idle_node_that_is_silent_may_be_another_machine() -> None:
    state = world()
    caller, said = SECOND["another machine"]
    again(state, silent(state), caller, **said)
    assert node(state).machine == "x"


def test_a_machine_that_started_again_is_itself_once_it_is_silent() -> None:
    state = world()
    submit(state, "r1", 1)
    decide(state, 1)
    again(state, silent(state), OWN, session="s2", boot="b2")
    assert node(state).boot == "b2" and state.on_node(node(state))


def test_an_agent_is_upgraded_at_once() -> None:
    state = world({"boot": "b1", "protocol": 2})
    submit(state, "r1", 1)
    decide(state, 1)
    again(state, 1, fleet.Caller(own=True))
    assert node(state).session == "s1"
    before = world({"boot": "b1", "protocol": 2})
    with pytest.raises(Conflict, match="another agent speaks"):
        again(before, 1, JOINS, session="x", machine="x")
