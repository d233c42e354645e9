"""A snapshot of nodes is the whole state: read back, it decides as its original would."""

from __future__ import annotations

import json

from hypothesis import example, given, settings
from hypothesis import strategies as st

from cede.engine.admin import claims, edits, fleet
from cede.engine.audit import audit
from cede.engine.decide import decide
from cede.engine.lifecycle import commands, reports
from cede.engine.state.state import State
from cede.model.errors import CedeError
from cede.model.request import OnSilence, Preemptions, Retry
from cede.model.shape import Shape, Topology
from cede.model.stopping import Checkpoint, StopPolicy
from cede.model.subject import Subject
from cede.model.terms import Terms
from cede.model.work import Work
from cede.sim.plan import run
from cede.snapshot.reader import load
from cede.snapshot.writer import dump
from tests.scenario import ranked, tell

TEAMS = ("red", "blue")
OWNERS = ("ann", "bob")
COMMAND = st.tuples(st.integers(0, 12), st.integers(0, 9), st.integers(0, 9))


def world() -> State:
    """Three machines whose ids are not their names, in two groups."""
    state = State()
    for number in range(3):
        fleet.register(
            state,
            id=f"id{3 - number}",
            name=f"n{number}",
            amounts={"gpu": 2, "mcpu": 3000},
            devices={"gpu": ["a", "b"]},
            labels={"pool": "gpus", "kind": "odd" if number % 2 else "even"},
            group=f"g{number // 2}",
            now=0,
        )
    settings_ = {"bypass_max": 1, "grace": 5}
    edits.create_pool(state, id="p", name="gpus", nodes={"pool": "gpus"}, settings=settings_)
    for priority, team in enumerate(TEAMS):
        edits.attach_policy(
            state,
            id=f"p/{team}",
            pool_id="p",
            subject=Subject("team", team),
            priority=priority,
            reserved={"gpu": 4 - 2 * priority},
            allow_sensitive=True,
        )
    return state


def happen(state: State, now: int, number: int, command: tuple[int, int, int]) -> int:
    """One thing that happens, whatever the state is; what is refused changes nothing."""
    kind, a, b = command
    live = [each for each in state.allocations.values() if each.live]
    nodes = sorted(state.nodes)
    if kind <= 3:
        tasks = 1 + b % 3
        shape = Shape(
            {"gpu": 1 + a % 2}, tasks, (None, 1)[b % 2], {}, "", list(Topology)[a % 3]
        )  # fmt: skip
        submission = commands.Submission(
            id=f"r{number}",
            subject=Subject("team", TEAMS[a % 2]),
            amounts={"gpu": (1 + a % 2) * tasks},
            shape=shape,
            work=None if b == 9 else Work(("secret", "words")),
            stop_policy=StopPolicy((Checkpoint.AUTO, Checkpoint.NONE)[b % 2], timeout=20_000),
            retry=Retry(b % 2, preemptions=list(Preemptions)[a % 2]),
            walltime=(None, 15_000)[a % 2],
            lease=None,
            on_silence=list(OnSilence)[b % 2],
            owner=OWNERS[b % 2],
            terms=Terms(sensitive=a % 5 == 0),
        )
        commands.submit(state, submission, now)
    elif kind == 4:
        return now + 4_000 * a
    elif kind <= 8 and live:
        allocation = live[a % len(live)]
        task = b % len(allocation.members)
        hint = 0 if allocation.stop_progress is None else allocation.stop_progress.hint
        word = ("started", "saved", "ended", "deferral")[kind - 5]
        code, cause = ((0, "exited"), (1, "exited"), (143, "stopped"), (None, "lease"))[b % 4]
        report = reports.Report(
            allocation.id, allocation.attempt, task, word, code, cause, "c", 9, hint, 3_000
        )
        if state.requests[allocation.request_id].work is not None:
            reports.take(state, allocation.members[task].node_id, report, now)
    elif kind == 9:
        steps = (fleet.drain, fleet.undrain, fleet.disable, fleet.enable)
        steps[b % 4](state, nodes[a % 3], now)
    elif kind == 10:
        fleet.heard(state, nodes[a % 3], now)
    elif kind == 11 and b % 3:
        claims.claim(state, {nodes[a % 3]: 0, nodes[b % 3]: 0}, OWNERS[a % 2], now)
    elif kind == 11:
        claims.unclaim(state, [nodes[a % 3]], now)
    elif state.requests:
        commands.cancel(state, sorted(state.requests)[a % len(state.requests)], now, actor="x")
    return now


@settings(max_examples=120)
@given(st.lists(COMMAND, max_size=30), st.sampled_from([0, 3_000, 25_000, 120_000]))
# Cancelled, its node claimed, and lost before it said that it had stopped.
@example([(0, 0, 8), (12, 0, 0), (11, 1, 1), (4, 9, 0), (4, 9, 0)], 0)
def test_a_snapshot_of_nodes_decides_as_its_original(
    many: list[tuple[int, int, int]], later: int
) -> None:
    state, now = world(), 0
    for number, command in enumerate(many):
        mark = state.mark()
        try:
            now = happen(state, now, number, command)
        except CedeError:
            state.undo(mark)
        decide(state, now)
        state.drain()
        assert audit.check(state) == []
    shown = dump(state, now)
    text = json.dumps(shown)
    assert "secret" not in text  # C4
    again = load(json.loads(text))
    assert audit.check(again) == []
    assert ranked(dump(again, now)) == ranked(shown)
    run(shown, until_rest=True, horizon=100)
    for each in (state, again):
        decide(each, now + later)
    assert ranked(dump(again, now + later)) == ranked(dump(state, now + later))


def test_a_plan_goes_on_through_hints_until_the_beneficiary_runs() -> None:
    story = tell("""
        node n1..n2 4 in gpus
        pool gpus nodes
        team red reserved 8 priority 1
        team blue priority 1
        blue runs g of 4 tasks 2 checkpoint auto -> running g
        g starts
        red runs r of 4 tasks 2 -> saving g, earmark r
    """)
    plan = run(dump(story.state, story.now), until_rest=True, horizon=1_000)
    assert plan["at_rest"] and not plan["loop"]
    grants = [e for each in plan["passes"] for e in each["decisions"] if e["do"] == "grant"]
    assert [(each["request"], each["nodes"]) for each in grants] == [("r", ["n1", "n2"])]


def test_by_hand_names_of_nodes_are_enough() -> None:
    gpus = {"amounts": {"gpu": 4}, "devices": {"gpu": ["0", "1", "2", "3"]}}
    snapshot = {
        "nodes": [{"name": name, **gpus} for name in ("n1", "n2")],
        "pools": [{"name": "gpus", "nodes": {}}],
        "policies": [
            {"pool": "gpus", "component": "red", "reserved": {"gpu": 4}},
            {"pool": "gpus", "component": "blue"},
        ],
        "running": [
            {"id": f"b{n}", "pool": "gpus", "component": "blue", "resources": {"gpu": 2},
             "nodes": ["n1", "n2"], "work": True, "allocated_at": n}
            for n in (1, 2)
        ],
        "requests": [{"id": "r", "component": "red", "resources": {"gpu": 2}, "tasks": 2,
                      "per_node": 1, "work": True}],
    }  # fmt: skip
    (first,) = run(snapshot)["passes"]
    assert first["decisions"][0]["victims"] == ["b2"]
    held = load(snapshot).allocations["b2.1"].members
    assert [each.devices["gpu"] for each in held] == [("2", "3"), ("2", "3")]
