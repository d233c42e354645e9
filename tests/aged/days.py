"""Days of requests, written as a writer writes them, and the retention that follows each day."""

from __future__ import annotations

from cede.engine.state.changes import Changes, Event
from cede.model.allocation import Allocation, allocation_id
from cede.model.bounds import DAY, HOUR, MINUTE
from cede.model.lifecycle import AllocationState, RequestStatus
from cede.model.policy import Policy
from cede.model.pool import Pool
from cede.model.request import Request
from cede.model.settings import Settings
from cede.model.subject import Subject
from cede.store import Batch, Idempotency, Remembered, Store
from cede.store.values import Keep, Moment

RED = Subject("team", "red")
KEEP = Keep(requests=DAY, events=DAY, audit=DAY, idempotency=DAY)
WALL = "2026-06-01T00:00:00.000Z"
# About as long as the answer to a submission.
ANSWER = '{"status":201,"request":{"id":"%s","labels":{"run":"%d"},"rest":"' + "x" * 800 + '"}}'
AT_ONCE = 500


class Days:
    """A store that is the writer, and the day that it has come to."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.store = _writing(url)
        self.day = 0
        self._number = 0
        made = Changes()
        made.pools.inserted.append(Pool("pool-1", "gpus", {"gpu": 8}, "quota", Settings()))
        made.policies.inserted.append(Policy("policy-1", "pool-1", RED, 10, {"gpu": 8}, {}))
        self._commit(made, 0, [])

    def restart(self) -> None:
        self.store.close()
        self.store = _writing(self._url)

    def load(self, requests: int) -> None:
        """A day of so many requests, evenly spread; each ends within the day."""
        for start in range(0, requests, AT_ONCE):
            some = range(start, min(requests, start + AT_ONCE))
            made, answers, at = Changes(), [], 0
            for place in some:
                at = self.day * DAY + place * (DAY - HOUR) // requests
                answers += self._request(made, at)
            self._commit(made, at + MINUTE, answers)
        self.day += 1
        self._commit(Changes(), self.day * DAY, [])

    def remove(self) -> int:
        """Retention, until nothing is left to remove; how many commits that took."""
        store, now, commits = self.store, self.day * DAY, 0
        while True:
            removal = store.next_removal(KEEP, now)
            run = None if removal is not None else store.next_run(KEEP, now, WALL)
            if removal is None and run is None:
                return commits
            index = store.head()
            moment = Moment(now, "loaded", 0)
            store.commit(Batch(Changes(), index, index, moment, run=run, removal=removal))
            commits += 1

    def close(self) -> None:
        self.store.close()

    def _request(self, made: Changes, at: int) -> list[Remembered]:
        self._number += 1
        number = self._number
        # In the order of time, as the ids of a server are.
        id_ = f"{number:08x}-0000-7000-8000-{number:012x}"
        index = number * 10
        made.requests.inserted.append(
            Request(
                id_, RED, {"gpu": 1}, at, index, status=RequestStatus.RELEASED, owner="alice",
                labels={"run": str(number)}, created=WALL,
            )
        )  # fmt: skip
        made.allocations.inserted.append(
            Allocation(
                id=allocation_id(id_, 1), request_id=id_, pool_id="pool-1", policy_id="policy-1",
                amounts={"gpu": 1}, preemptible=True, attempt=1, index=index + 1, allocated_at=at,
                state=AllocationState.ENDED, ended_at=at + MINUTE,
            )
        )  # fmt: skip
        for place, kind in enumerate(("submitted", "granted", "released")):
            made.events.append(Event(index + place, at, kind, id_, "pool-1", {}))
        return [
            Remembered(Idempotency(f"{id_}-{n}", "POST", "token", "0" * 64), ANSWER % (id_, n), at)
            for n in range(2)
        ]

    def _commit(self, made: Changes, at: int, answers: list[Remembered]) -> None:
        expected, index = self.store.head(), self._number * 10 + 5
        moment = Moment(at, "loaded", 0)
        self.store.commit(Batch(made, expected, index, moment, answers=answers))


def _writing(url: str) -> Store:
    store = Store(url)
    store.migrate()
    store.take_over()
    store.load()
    return store
