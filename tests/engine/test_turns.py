"""Random graphs of requests that follow each other, with arrays in them: each starts exactly when
it may, ends if what it follows has failed, and none is forgotten.

The rule is written down here a second time, from the graph alone. The pool has room for everything,
so that nothing but turns keeps anybody waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cede.engine.admin import edits
from cede.engine.audit import audit
from cede.engine.decide import decide
from cede.engine.lifecycle import commands, endings
from cede.engine.state.gates import Gates
from cede.engine.state.state import State
from cede.model.lifecycle import RequestStatus
from cede.model.subject import Subject
from cede.snapshot.reader import load
from cede.snapshot.writer import dump

# Of one request: its tasks, how many of them run at once, and what it follows in which way.
Drawn = tuple[int, int, list[tuple[int, int, bool]]]
FOLLOWED = st.tuples(st.integers(0, 9), st.integers(0, 4), st.booleans())
GRAPH = st.lists(
    st.tuples(st.integers(1, 4), st.integers(1, 3), st.lists(FOLLOWED, max_size=3)), max_size=7
)
# Which task ends next, and how.
ENDS = st.lists(st.tuples(st.integers(0, 99), st.sampled_from(["done", "done", "failed"])))


@dataclass
class Task:
    """What the rule knows of one task."""

    array: int
    number: int
    status: str = "waiting"


@dataclass
class Graph:
    """The drawn requests, and what the rule says of them."""

    drawn: list[Drawn]
    tasks: dict[str, Task] = field(default_factory=dict)

    def names(self, array: int) -> list[str]:
        return [name for name, task in self.tasks.items() if task.array == array]

    def refs(self, array: int) -> dict[bool, tuple[str, ...]]:
        """What a request follows: if it ends well (True), or in any case."""
        found: dict[bool, list[str]] = {True: [], False: []}
        for which, task, well in self.drawn[array][2] if array else ():
            other = which % array
            tasks = self.drawn[other][0]
            one = f"r{other}_{task}" if tasks > 1 and task < tasks else f"r{other}"
            found[well].append(one)
        return {well: tuple(dict.fromkeys(each)) for well, each in found.items()}

    def followed(self, ref: str) -> list[Task]:
        array, _, number = ref[1:].partition("_")
        return [
            self.tasks[name]
            for name in self.names(int(array))
            if not number or self.tasks[name].number == int(number)
        ]

    def settle(self) -> None:
        """Apply the rule until it changes nothing: what is doomed ends, whose turn it is runs."""
        before = None
        while before != (before := [each.status for each in self.tasks.values()]):
            for array in range(len(self.drawn)):
                self._settle(array)

    def _settle(self, array: int) -> None:
        mine = [self.tasks[each] for each in self.names(array)]
        refs = self.refs(array)
        well = [each.status for ref in refs[True] for each in self.followed(ref)]
        ended = [each.status for ref in refs[False] for each in self.followed(ref)]
        if any(each in ("failed", "cancelled") for each in well):
            for task in mine:
                if task.status == "waiting":
                    task.status = "cancelled"
            return
        if any(each in ("waiting", "running") for each in well + ended):
            return
        alive = [each for each in mine if each.status in ("waiting", "running")]
        tasks, at_once, _ = self.drawn[array]
        for task in alive[: at_once if tasks > 1 else 1]:
            task.status = "running"


def play(drawn: list[Drawn], ends: list[tuple[int, str]]) -> None:
    """Submit the graph, let tasks end as drawn, and compare the engine with the rule."""
    state, graph = _pool(), Graph(drawn)
    statuses: dict[str, str] = {}
    for array in range(len(drawn)):
        _submit(state, graph, array)
        graph.settle()
        _compare(state, graph, statuses)
    ends = [*ends, *((0, "done") for _ in graph.tasks)]
    for number, outcome in ends:
        running = [name for name, task in graph.tasks.items() if task.status == "running"]
        if not running:
            break
        name = running[number % len(running)]
        commands.release(state, name, 0, outcome=outcome)
        graph.tasks[name].status = outcome
        graph.settle()
        _compare(state, graph, statuses)
        shown = dump(state, 0)
        assert dump(load(shown), 0)["requests"] == shown["requests"]
    assert not state.requests, f"{sorted(state.requests)} were forgotten"


def _pool() -> State:
    state = State()
    edits.create_pool(state, id="big", name="big", capacity={"gpu": 1_000})
    edits.attach_policy(state, id="red", pool_id="big", subject=Subject("team", "red"), priority=1)
    return state


def _submit(state: State, graph: Graph, array: int) -> None:
    tasks, at_once, _ = graph.drawn[array]
    refs = graph.refs(array)
    failed = [
        each
        for ref in refs[True]
        for each in graph.followed(ref)
        if each.status in ("failed", "cancelled")
    ]
    for number in range(tasks):
        name = f"r{array}" if number == 0 else f"r{array}.{number}"
        graph.tasks[name] = Task(array, number)
        more: dict[str, Any] = {}
        if tasks > 1:
            more = {"part_of": f"r{array}", "array_task": number}
            more["array"] = f"0-{tasks - 1}%{at_once}"
        asked = commands.Submission(
            id=name,
            subject=Subject("team", "red"),
            amounts={"gpu": 1},
            lease=None,
            after=refs[True],
            after_any=refs[False],
            **more,
        )
        assert not failed, "nothing has ended while the graph is submitted"
        commands.submit(state, asked, 0)


def _compare(state: State, graph: Graph, statuses: dict[str, str]) -> None:
    while decide(state, 0).again:
        pass
    assert audit.check(state) == []
    changes = state.drain()
    words = {RequestStatus.QUEUED: "waiting", RequestStatus.ALLOCATED: "running"}
    words |= {RequestStatus.RELEASED: "done"}
    for each in (*changes.requests.inserted, *changes.requests.updated):
        statuses[each.id] = words.get(each.status, str(each.status))
    assert statuses == {name: task.status for name, task in graph.tasks.items()}


@settings(max_examples=150)
@given(GRAPH, ENDS)
def test_each_starts_exactly_when_it_may_and_none_is_forgotten(
    drawn: list[Drawn], ends: list[tuple[int, str]]
) -> None:
    play(drawn, ends)


# A chain, an array of three with a bound of one, and what follows both.
TELLING: list[Drawn] = [
    (1, 1, []),
    (3, 1, [(0, 0, True)]),
    (1, 1, [(1, 1, True)]),
    (1, 1, [(1, 9, True), (2, 0, False)]),
]
NEVER: Callable[..., Any] = lambda *_: False  # noqa: E731
BUGS = {
    "nobody waits for anybody": (Gates, "lives", NEVER),
    "the bound is not kept": (Gates, "beyond", NEVER),
    "failures are not passed on": (Gates, "dependants", lambda *_: iter(())),
    "nobody is let through": (State, "_let_through", lambda *_: None),
    "a failure is a success": (endings, "_end", None),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, instead = BUGS[bug]
    if instead is None:
        real = endings._end

        def instead(state: State, request: Any, *_: Any, **__: Any) -> Any:
            return real(state, request, RequestStatus.RELEASED, None)

    monkeypatch.setattr(where, name, instead)
    with pytest.raises(AssertionError):
        for ends in ([(0, "done")] * 9, [(0, "failed")], [(0, "done"), (0, "failed")]):
            play(TELLING, ends)
