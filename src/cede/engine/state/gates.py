"""Waiters that may not be queued yet: for a dependency, or for the bound of their array.

Such a waiter is in no queue, so it is no head, no demand of a fair share, and nothing is withheld
for it. All data here follows from the living requests: an ended dependency is not among them, and
if it had ended badly, its dependants would have ended in the same commit. So nothing here is
stored, undoing needs no log, and removing old requests changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator

from sortedcontainers import SortedList

from cede.engine.rights.standing import Age
from cede.model.array import task_ref
from cede.model.lifecycle import HOLDING
from cede.model.request import Request


class _Window:
    """The tasks of one array with a bound: those that hold or have a promise (`busy`), and as many
    of the oldest waiters as the bound leaves (`inside`).
    """

    __slots__ = ("at_once", "busy", "inside", "waiting")

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self.busy: dict[str, None] = {}
        self.waiting: SortedList[Age] = SortedList()
        self.inside: set[str] = set()

    def moved(self) -> set[str]:
        """Update `inside`; return the tasks that entered or left it."""
        free = max(self.at_once - len(self.busy), 0)
        before, self.inside = self.inside, {age[2] for age in self.waiting.islice(0, free)}
        return before ^ self.inside


class Gates:
    """The waiters that are kept out of the queues, and why. `alive` are the requests of the state,
    `delayed` says whether a waiter's retry delay is not over.
    """

    def __init__(self, alive: dict[str, Request], delayed: Callable[[Request], bool]) -> None:
        self._alive = alive
        self._delayed = delayed
        self.pending: dict[str, None] = {}  # waiters of which a dependency has not ended
        self._dependants: dict[str, dict[str, None]] = {}  # by the reference that they name
        self._tasks: dict[str, dict[str, None]] = {}  # living independent tasks, by their group
        self._numbered: dict[str, str] = {}  # `ID_7`: the request that is this task
        self._windows: dict[str, _Window] = {}

    # Reading ----------------------------------------------------------------------------------

    def shut(self, request: Request) -> bool:
        """Whether a waiter is kept out of the queues."""
        return request.id in self.pending or self.beyond(request)

    def kept(self) -> Iterator[str]:
        """All waiters that are kept out of the queues."""
        yield from self.pending
        for window in self._windows.values():
            for age in window.waiting.islice(len(window.inside)):
                yield age[2]

    def beyond(self, request: Request) -> bool:
        """Whether the bound of its array keeps it out: enough tasks hold, or wait before it."""
        window = self._window_of(request)
        if window is None or request.id in window.busy or request.id in window.inside:
            return False
        return _age(request) in window.waiting

    def ahead(self, request: Request) -> tuple[int, int]:
        """The numbers of tasks of its array that hold or have a promise, and that are next."""
        window = self._window_of(request)
        assert window is not None, request
        return len(window.busy), len(window.inside)

    def concern(self, request: Request) -> bool:
        """Whether a request is a task of an array, follows others, or is followed."""
        named = request.after or request.after_any
        return bool(named) or request.part_of is not None or request.id in self._dependants

    @property
    def followed(self) -> Container[str]:
        """The references that others wait for; it changes with them."""
        return self._dependants

    def holds(self, ref: str) -> list[Request]:
        """The living requests that a reference names; for an array all its tasks."""
        if ref in self._tasks:
            return [self._alive[each] for each in self._tasks[ref]]
        found = self._alive.get(self._numbered.get(ref, ref))
        return [] if found is None or found.ended else [found]

    def lives(self, ref: str) -> bool:
        """Whether a reference names a request that has not ended."""
        if ref in self._tasks:
            return True
        found = self._alive.get(self._numbered.get(ref, ref))
        return found is not None and not found.ended

    def awaited(self, request: Request) -> list[str]:
        """The dependencies of a waiter that have not ended, as it names them."""
        return [each for each in _named(request) if self.lives(each)]

    def dependants(self, request: Request) -> Iterator[Request]:
        """Waiters that start only if this request, or its whole array, ends well."""
        for ref in _refs(request):
            for each in list(self._dependants.get(ref, ())):
                if ref in self._alive[each].after:
                    yield self._alive[each]

    def _window_of(self, request: Request) -> _Window | None:
        return None if request.part_of is None else self._windows.get(request.part_of)

    # Writing ----------------------------------------------------------------------------------

    def replace(self, old: Request | None, new: Request | None) -> list[Request]:
        """Replace, add (`old` is None) or remove a request; return the other waiters that may be
        queued now, or no longer.
        """
        either = new or old
        assert either is not None
        if not self.concern(either):
            return []  # most requests
        was, now = _lives(old), _lives(new)
        if old is not None and was:
            self._forget(old)
        if new is not None and now:
            self._learn(new)
        windows = dict.fromkeys(() if either.part_of is None else (either.part_of,))
        moved: dict[str, None] = {}
        for each in () if was == now else self._named_by(either):
            if self._judge(each):
                moved[each.id] = None
                if each.part_of is not None:
                    windows[each.part_of] = None
        for group in windows:
            moved |= dict.fromkeys(self._settle(group))
        moved.pop(either.id, None)
        return [self._alive[each] for each in sorted(moved)]

    def _named_by(self, request: Request) -> list[Request]:
        """Waiters that name a request, alone or with its array."""
        found = dict.fromkeys(
            each for ref in _refs(request) for each in self._dependants.get(ref, ())
        )
        return [self._alive[each] for each in found]

    def _forget(self, request: Request) -> None:
        if request.part_of is not None:
            tasks = self._tasks[request.part_of]
            del tasks[request.id]
            if not tasks:
                del self._tasks[request.part_of]
            self._numbered.pop(request.ref, None)
        for ref in _named(request) if request.waiting else ():
            named = self._dependants[ref]
            del named[request.id]
            if not named:
                del self._dependants[ref]
        self.pending.pop(request.id, None)
        if (window := self._window_of(request)) is not None:
            window.busy.pop(request.id, None)
            window.waiting.discard(_age(request))

    def _learn(self, request: Request) -> None:
        if request.part_of is not None:
            self._tasks.setdefault(request.part_of, {})[request.id] = None
            if request.array_task is not None:
                self._numbered[request.ref] = request.id
        for ref in _named(request) if request.waiting else ():
            self._dependants.setdefault(ref, {})[request.id] = None
        self._judge(request)

    def _judge(self, request: Request) -> bool:
        """Update whether a request waits for a dependency, and its place in its array; return
        whether the former changed.
        """
        before = request.id in self.pending
        self.pending.pop(request.id, None)
        if request.waiting and any(map(self.lives, _named(request))):
            self.pending[request.id] = None
        self._enter_window(request)
        return before != (request.id in self.pending)

    def _enter_window(self, request: Request) -> None:
        group, at_once = request.part_of, request.at_once
        if group is None or at_once is None:
            return
        window = self._windows.setdefault(group, _Window(at_once))
        age = _age(request)
        window.busy.pop(request.id, None)
        window.waiting.discard(age)
        if request.status in HOLDING or request.earmark is not None:
            window.busy[request.id] = None
        elif request.id not in self.pending and not self._delayed(request):
            window.waiting.add(age)

    def _settle(self, group: str) -> Iterable[str]:
        window = self._windows.get(group)
        if window is None:
            return ()
        moved = window.moved()
        if group not in self._tasks:
            del self._windows[group]
            return ()
        return (each for each in moved if each in self._alive and self._alive[each].waiting)


def _age(request: Request) -> Age:
    return (request.submitted_at, request.index, request.id)


def _named(request: Request) -> Collection[str]:
    """The references of a request's dependencies, each once."""
    if not request.after or not request.after_any:
        return request.after or request.after_any
    return dict.fromkeys((*request.after, *request.after_any))


def _refs(request: Request) -> list[str]:
    """The references by which dependants may name a request."""
    if request.part_of is None:
        return [request.id]
    numbered = [] if request.array_task is None else [task_ref(request.part_of, request.array_task)]
    return list(dict.fromkeys((request.part_of, request.id, *numbered)))


def _lives(request: Request | None) -> bool:
    return request is not None and not request.ended
