"""Fills a database with a site's nodes, running, waiting and ended requests, as a writer commits
them: the same rows, digests and indexes, without the deciding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cede.engine.state.changes import Changes, Event
from cede.model.allocation import Allocation, Member, Phase, allocation_id
from cede.model.bounds import MINUTE
from cede.model.lifecycle import AllocationState, RequestStatus
from cede.model.node import Node
from cede.model.policy import Policy
from cede.model.pool import Pool
from cede.model.request import Request
from cede.model.settings import Settings
from cede.model.subject import Subject
from cede.model.token import Role, Token, node_subject
from cede.model.work import Work
from cede.server.tokens import new_token
from cede.store import Batch, Store
from cede.store.values import Moment

AT_ONCE = 1_000
TEAMS = 20
POOL_ID = "00000000-0000-7000-8000-000000000001"
WALL = "2026-06-01T00:00:00.000Z"
LABELS = {"pool": "site"}
# Rows of requests stand this far apart in the journal: room for their events.
_STEP = 4


@dataclass(frozen=True, slots=True)
class Site:
    """How much of everything. What runs holds the slots of all nodes, which have as few as that."""

    nodes: int
    running: int
    waiting: int
    ended: int = 0

    @property
    def alive(self) -> int:
        return self.running + self.waiting

    @property
    def slots(self) -> int:
        """Of each node."""
        return max(1, -(-self.running // self.nodes))


@dataclass(frozen=True, slots=True)
class Keys:
    """The secrets of the tokens that were made: of people, and of each node's agent."""

    people: list[str]
    agents: list[str]


def fill(url: str, site: Site, people: int) -> Keys:
    """Make a fresh database hold this site."""
    store = Store(url)
    try:
        store.migrate()
        store.take_over()
        store.load()
        return _Filler(store, site).fill(people)
    finally:
        store.close()


def pass_time(url: str, milliseconds: int) -> None:
    """Make everything in a database so much older."""
    store = Store(url)
    try:
        store.take_over()
        loaded = store.load()
        later = Moment(loaded.moment.instant + milliseconds, "filled", 0)
        store.commit(Batch(Changes(), loaded.index, loaded.index, later))
    finally:
        store.close()


def request_id(place: int) -> str:
    """The id of a request by its place: ended ones come first, then running ones."""
    return _id(place + 1, "8")


def node_name(number: int) -> str:
    return f"node-{number:05d}"


class _Filler:
    def __init__(self, store: Store, site: Site) -> None:
        self._store = store
        self._site = site
        self._number = 0

    def fill(self, people: int) -> Keys:
        site = self._site
        made = Changes()
        capacity = {"slot": site.slots * site.nodes}
        pool = Pool(POOL_ID, "site", capacity, "quota", Settings(), created=WALL, nodes=LABELS)
        made.pools.inserted.append(pool)
        made.policies.inserted += map(_policy, range(TEAMS))
        made.nodes.inserted += (self._node(number) for number in range(site.nodes))
        secrets: list[str] = []
        tokens = list(self._tokens(people, secrets))
        self._commit(made, tokens)
        requests = site.ended + site.alive
        for start in range(0, requests, AT_ONCE):
            made = Changes()
            for place in range(start, min(start + AT_ONCE, requests)):
                self._request(made, place)
            self._commit(made)
        return Keys(secrets[:people], secrets[people:])

    def _node(self, number: int) -> Node:
        return Node(
            _id(number, "d"), node_name(number), {"slot": self._site.slots}, labels=LABELS,
            pool_id=POOL_ID, boot=node_name(number), session=node_name(number), created=WALL,
            protocol=2,
        )  # fmt: skip

    def _tokens(self, people: int, secrets: list[str]) -> Iterator[Token]:
        for number in range(people):
            secret, digest = new_token()
            secrets.append(secret)
            yield Token(_id(number, "a"), f"person-{number}", Role.ADMIN, (), digest, WALL)
        for number in range(self._site.nodes):
            secret, digest = new_token()
            secrets.append(secret)
            mine = (node_subject(_id(number, "d")),)
            name = f"node {node_name(number)}"
            yield Token(_id(number, "b"), name, Role.NODE, mine, digest, WALL)

    def _request(self, made: Changes, place: int) -> None:
        """Ended ones are the oldest, and what waits is the youngest."""
        site = self._site
        self._number = number = place + 1
        index, id_ = number * _STEP, request_id(place)
        status, state = RequestStatus.RELEASED, AllocationState.ENDED
        if place >= site.ended + site.running:
            status = RequestStatus.QUEUED
        elif place >= site.ended:
            status, state = RequestStatus.ALLOCATED, AllocationState.RUNNING
        work = Work(("python", "train.py", "--seed", str(number)))
        made.requests.inserted.append(
            Request(
                id_, _team(number % TEAMS), {"slot": 1}, number, index, status=status, work=work,
                owner="alice", labels={"pipeline": "bench", "run": str(number)}, created=WALL,
            )
        )  # fmt: skip
        made.events.append(Event(index, number, "submitted", id_, None, {}))
        if status is RequestStatus.QUEUED:
            return
        held = self._held(id_, number, index + 1, state, place - site.ended)
        made.allocations.inserted.append(held)
        made.events.append(Event(index + 1, number, "granted", id_, POOL_ID, {}))

    def _held(
        self, id_: str, number: int, index: int, state: AllocationState, place: int
    ) -> Allocation:
        live = state is AllocationState.RUNNING
        node_id = _id(place % self._site.nodes, "d")
        phase = Phase.STARTED if live else Phase.ENDED
        return Allocation(
            id=allocation_id(id_, 1), request_id=id_, pool_id=POOL_ID,
            policy_id=_id(number % TEAMS, "c"), amounts={"slot": 1}, preemptible=True, attempt=1,
            index=index, allocated_at=number, state=state, started_at=number,
            ended_at=None if live else number + MINUTE,
            members=(Member(0, node_id, phase=phase, exit_code=None if live else 0),),
        )  # fmt: skip

    def _commit(self, made: Changes, tokens: list[Token] | None = None) -> None:
        expected, index = self._store.head(), self._number * _STEP + _STEP - 1
        moment = Moment(self._number + MINUTE, "filled", 0)
        self._store.commit(Batch(made, expected, index, moment, tokens=tokens or []))


def _id(number: int, kind: str) -> str:
    """Ids that sort by number, as those of a server do by time."""
    return f"{number:08x}-0000-7000-{kind}000-{number:012x}"


def team_name(number: int) -> str:
    return f"team-{number:02d}"


def _team(number: int) -> Subject:
    return Subject("team", team_name(number))


def _policy(number: int) -> Policy:
    return Policy(_id(number, "c"), POOL_ID, _team(number), 10, {}, {}, created=WALL)
