"""A recount of turns: arrays with a bound, and requests with dependencies (S33).

It is made by the definition, from the requests alone, and shares no code with what keeps waiters
out of the queues.
"""

from __future__ import annotations

from collections.abc import Iterator

from cede.engine.state.state import State
from cede.model.lifecycle import HOLDING
from cede.model.request import Request


class Kept:
    """Requests with dependencies, and the tasks of every array that has a bound: both are few."""

    def __init__(self, state: State) -> None:
        requests = state.requests.values()
        self.following = [each for each in requests if each.after or each.after_any]
        self.arrays: dict[str, list[Request]] = {}
        for task in [each for each in requests if each.part_of is not None]:
            if "%" in task.array and not task.ended:
                self.arrays.setdefault(str(task.part_of), []).append(task)
        self.alive = _alive(state) if self.following else set()


def check(found: Kept) -> Iterator[str]:
    alive = found.alive
    for request in found.following:
        if request.status in HOLDING:
            for ref in (*request.after, *request.after_any):
                if ref in alive:
                    yield f"S33 request {request.id} holds before {ref} has ended"
    for array_id, tasks in found.arrays.items():
        held = sum(each.status in HOLDING for each in tasks)
        if held > _bound(tasks[0]):
            yield f"S33 array {array_id}: {held} tasks hold of {_bound(tasks[0])} at once"


def kept_back(state: State, found: Kept) -> set[str]:
    """Waiters that must be in no queue: a dependency of theirs has not ended, or their array is at
    its bound.
    """
    kept = {
        each.id
        for each in found.following
        if each.waiting and not found.alive.isdisjoint((*each.after, *each.after_any))
    }
    for tasks in found.arrays.values():
        busy = sum(each.status in HOLDING or each.earmark is not None for each in tasks)
        waiting = [
            each
            for each in tasks
            if each.waiting
            and each.earmark is None
            and each.id not in state.delayed
            and each.id not in kept
        ]
        waiting.sort(key=lambda each: (each.submitted_at, each.index, each.id))
        kept |= {each.id for each in waiting[max(_bound(tasks[0]) - busy, 0) :]}
    return kept


def _alive(state: State) -> set[str]:
    """All ids and names of requests that have not ended."""
    found = set()
    for each in state.requests.values():
        if not each.ended:
            found |= {each.id, each.part_of or each.id, f"{each.part_of}_{each.array_task}"}
    return found


def _bound(task: Request) -> int:
    return int(task.array.partition("%")[2])
