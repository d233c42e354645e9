"""All living entities, indexed for deciding, held by one writer.

`put` and `drop` are the only mutators of entities, which are frozen: every index is kept by taking
the old value out and putting the new one in, so undoing is putting the old value back. Data that
is never stored is noted as it changes, and undone with the entities. The changes since the last
`drain` are known, so that the store writes exactly these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import fields
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

from cede.engine.ledger.admit import eligible_policies
from cede.engine.ledger.holdings import held, promised
from cede.engine.ledger.ledger import PoolLedger, alike_to
from cede.engine.ledger.task_groups import UNPUBLISHED, Published
from cede.engine.ledger.tenants import Tenancy
from cede.engine.nodes.inventory import NodeInventory
from cede.engine.state.changes import Changes, Event, Mark
from cede.engine.state.due import allocation_due, changes_itself, may_lose, node_due, request_due
from cede.engine.state.entities import Entity, Nodes, gone, place_of, table_of
from cede.engine.state.gates import Gates
from cede.engine.state.journal import Journal, Noted
from cede.engine.state.loading import Crowd, at_once, policies_at_once
from cede.engine.state.moves import check_move
from cede.engine.state.timers import Key, Timers
from cede.model.allocation import Allocation
from cede.model.node import Node, NodeState
from cede.model.policy import Policy
from cede.model.pool import Pool
from cede.model.request import Request
from cede.model.shape import Footprint
from cede.model.subject import Subject
from cede.model.tenant import Tenant

# All fields of a request but its promise, its withheld room and its number of bypasses.
_waits_by = attrgetter(
    *(each.name for each in fields(Request) if each.name not in ("earmark", "withhold", "bypassed"))
)


# What decides the queue of a waiter, and whether it is indexed alone.
_asks = attrgetter(
    *("status", "pool_id", "amounts", "preemptible", "terms", "shape", "pin", "stop_policy"),
    *("earmark", "withhold", "part_of", "after", "after_any"),
)


def _waits_as(old: Request, new: Request) -> bool:
    """Whether a waiter still waits in the same queues: no other field has changed."""
    return new.waiting and _waits_by(old) == _waits_by(new)


def _holds_otherwise(old: Request, new: Request) -> bool:
    """Whether what a request holds counts otherwise: by its terms, whether it comes back once
    stopped, or its last save, which is a new start where shares are fair.
    """
    same = new.terms is old.terms and new.saved is old.saved and new.cancelled == old.cancelled
    return not same


class State:
    """The one state. `now` is the instant of the last command or pass."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.pools: dict[str, Pool] = {}
        self.nodes = Nodes()
        self.policies: dict[str, Policy] = {}
        self.tenants: dict[str, Tenant] = {}
        self.requests: dict[str, Request] = {}
        self.allocations: dict[str, Allocation] = {}
        self.ledgers: dict[str, PoolLedger] = {}
        self.inventories: dict[str, NodeInventory] = {}
        self.since = 0  # the start of the server that holds this state; never stored
        self.beats: dict[str, int] = {}  # by node: its last heartbeat; never stored
        self.order_versions: Noted[int] = Noted(self.journal)  # by node: of its orders
        self.draining: dict[str, None] = {}
        # Of pools with fair shares, never stored: their solvers, the last results and their
        # instants, the starvation of elements, and the instants of the next checks.
        self.solvers: dict[str, Any] = {}
        self.published: Noted[Published] = Noted(self.journal)
        self.published_at: Noted[int] = Noted(self.journal)
        self.eager = False  # whether shares are computed before every pass, as for a plan
        self.starving: Noted[Mapping[str, Any]] = Noted(self.journal)
        self.looks: Noted[int] = Noted(self.journal)
        self.over: Noted[dict[str, int]] = Noted(self.journal)  # by pool: overruns, since when
        self.staged: Noted[int] = Noted(self.journal)  # by node: last preemption for starvation
        # By pool: its queues' scores; whether an edit may have broken promises, or limits.
        self.scores: Noted[dict[Any, float]] = Noted(self.journal)
        self.fresh: Noted[bool] = Noted(self.journal)
        self.unchecked: Noted[bool] = Noted(self.journal)
        # By pool, of its last pass, never stored: bounds of waiters, and who is served instead.
        self.passed_over: Noted[Any] = Noted(self.journal)
        self.refused: Noted[dict[str, tuple[str, ...]]] = Noted(self.journal)
        self.volumes: Noted[Any] = Noted(self.journal)  # by pool: saved-up volumes of policies
        # Waiters that edits since the last pass gave or took a place: whether they had one before.
        self.displaced: Noted[bool] = Noted(self.journal)
        self.tenancy = Tenancy()
        self.gates = Gates(self.requests, lambda each: each.not_before > self.passed)
        self.budgets: dict[str, float] = {}  # by tenant: the part used; never stored
        self.now = 0
        self.passed = 0  # the instant up to which timers have been processed
        self.index = 0
        self.events: list[Event] = []
        self.timers = Timers(self._due, self.journal)
        self.dirty: dict[str, None] = {}  # pools that the next pass must decide
        self.delayed: dict[str, None] = {}  # waiters whose retry delay is not over
        self.untold: dict[str, dict[str, None]] = {}  # beneficiary: its victims not told yet
        self.unearmarked: dict[str, None] = {}  # requests that lost or used their earmark
        # Nodes, or pools without nodes, with capacity that became free from outside (a holder that
        # was not stopping ended, a promise was lost, an edit), where victims may go on: their pool.
        self.roomier: Noted[str] = Noted(self.journal)
        self.several = 0  # waiters with a place in more than one pool
        self._places: dict[str, tuple[Policy, ...]] = {}
        self._by_subject: dict[Subject, dict[str, None]] = {}
        self._waiters: dict[tuple[Subject, str | None], int] = {}  # by the pool that they name
        self._policies_of: dict[Subject, list[Policy]] = {}  # a cache, cleared by edits
        self._allocations_of: dict[str, tuple[str, ...]] = {}  # the live ones of each request
        self.unopened: dict[str, None] | None = None  # pools whose ledgers are opened later
        self._came_up: list[Key] = []  # timers that were due since the last drain
        # (table, id, old value, whether this is its first change since the last drain)
        self._log: list[tuple[str, str, Entity | None, bool]] = []
        self._touched: dict[tuple[str, str], bool] = {}  # (table, id): was there at the last drain

    # Reading ----------------------------------------------------------------------------------

    def places(self, request_id: str) -> tuple[Policy, ...]:
        """The policies under which a waiter could be granted, the preferred one first."""
        return self._places.get(request_id, ())

    def waiters(self, subject: Subject, pool_id: str) -> int:
        """The number of a subject's waiters that name this pool, or no pool."""
        return self._waiters.get((subject, None), 0) + self._waiters.get((subject, pool_id), 0)

    def policies_of(self, subject: Subject) -> list[Policy]:
        """A subject's policies, by priority, then by name of their pool."""
        found = self._policies_of.get(subject)
        if found is None:
            found = [each for each in self.policies.values() if each.subject == subject]
            found.sort(key=lambda each: (-each.priority, self.pools[each.pool_id].name))
            if found:  # unknown subjects are not cached, as callers could fill memory with them
                self._policies_of[subject] = found
        return found

    def allocation_of(self, request_id: str) -> Allocation | None:
        """The live allocation of a request, if it has one."""
        for allocation_id in self._allocations_of.get(request_id, ()):
            return self.allocations[allocation_id]
        return None

    def on_node(self, node: Node) -> list[Allocation]:
        """The live allocations with a member on a node."""
        if node.pool_id is None:
            return []
        spot = self.inventories[node.pool_id].spots[node.id]
        return [
            self.allocations[each] for each, (held, _) in spot.holdings.items() if not held.earmark
        ]

    def waiting(self) -> Iterable[Request]:
        return (request for request in self.requests.values() if request.waiting)

    # Writing ----------------------------------------------------------------------------------

    def put(self, entity: Entity) -> None:
        table = table_of(entity)
        old = getattr(self, table).get(entity.id)
        self._touch(table, entity.id, old)
        if old is not None:
            check_move(old, entity)
        self._replace(table, entity.id, old, entity)

    def drop(self, entity: Entity) -> None:
        table = table_of(entity)
        self._touch(table, entity.id, entity)
        self._replace(table, entity.id, entity, None)

    def _touch(self, table: str, entity_id: str, old: Entity | None) -> None:
        first = (table, entity_id) not in self._touched
        self._log.append((table, entity_id, old, first))
        if first:
            self._touched[table, entity_id] = old is not None

    def emit(
        self, kind: str, *, request_id: str | None = None, pool_id: str | None = None, **data: Any
    ) -> None:
        self.events.append(Event(self.next_index(), self.now, kind, request_id, pool_id, data))

    def next_index(self) -> int:
        self.index += 1
        return self.index

    def mark(self) -> Mark:
        return Mark(
            log=len(self._log),
            events=len(self.events),
            last=self.index,
            journal=len(self.journal),
            came_up=len(self._came_up),
            clock=(self.now, self.passed),
            dirty=dict(self.dirty),
            unearmarked=dict(self.unearmarked),
        )

    def undo(self, mark: Mark) -> None:
        """Go back to a mark: the same entities, events, next index and noted data."""
        self.now, self.passed = mark.clock  # first: restored entities are scheduled from it
        while len(self._log) > mark.log:
            with policies_at_once(self) if self._ends_in_policies(mark.log) else nullcontext():
                self._undo_one()
                while self.unopened is not None and self._ends_in_policies(mark.log, 1):
                    self._undo_one()
        del self.events[mark.events :]
        self.index = mark.last
        self._delay_again(self._came_up[mark.came_up :])
        del self._came_up[mark.came_up :]
        self.journal.undo(mark.journal)  # after all steps that note changes themselves
        for pool_id, ledger in self.ledgers.items():
            if ledger.published is not (published := self.published.get(pool_id, UNPUBLISHED)):
                ledger.publish(published)
            ledger.scores = self.scores.get(pool_id, {})
        self.dirty, self.unearmarked = dict(mark.dirty), dict(mark.unearmarked)

    def _undo_one(self) -> None:
        table, entity_id, old, first = self._log.pop()
        self._replace(table, entity_id, getattr(self, table).get(entity_id), old)
        if first:
            del self._touched[table, entity_id]

    def _ends_in_policies(self, least: int, many: int = 2) -> bool:
        """Whether the last `many` changes, behind the first `least`, are of policies."""
        last = self._log[max(least, len(self._log) - many) :]
        return len(last) == many and all(table == "policies" for table, *_ in last)

    def publish(self, pool_id: str, published: Published) -> None:
        """Publish newly computed fair shares to the ledger of a pool."""
        self.published[pool_id] = published
        self.ledgers[pool_id].publish(published)

    def wake(self, pool_id: str, at: int | None) -> None:
        """Set the instant of a pool's next check; None for no check."""
        self.looks.pop(pool_id, None)
        if at is not None:
            self.looks[pool_id] = at
            self.timers.schedule(("pool", pool_id), at)

    def wake_by(self, pool_id: str, at: int) -> None:
        """Have a pool checked at this instant at the latest."""
        self.wake(pool_id, min(at, self.looks.get(pool_id, at)))

    def _delay_again(self, came_up: list[Key]) -> None:
        """Delay the waiters again that an undone pass woke."""
        for kind, entity_id in came_up:
            if kind == "request" and (request := self.requests.get(entity_id)) is not None:
                self._index_again(request)

    def drain(self) -> Changes:
        """Return the changes since the last drain, and settle them."""
        changes = self.pending()
        self.settle()
        return changes

    def pending(self) -> Changes:
        """The changes since the last drain, which can still be undone."""
        changes = Changes(events=self.events)
        for (table, entity_id), existed in self._touched.items():
            entity = getattr(self, table).get(entity_id)
            rows = getattr(changes, table)
            if entity is None:
                if existed:
                    rows.deleted.append(entity_id)
            else:
                (rows.updated if existed else rows.inserted).append(entity)
        return changes

    def settle(self) -> None:
        """Forget stored changes: they cannot be undone, and ended entities leave memory."""
        for table, entity_id in self._touched:
            entity = getattr(self, table).get(entity_id)
            if entity is not None and gone(entity):
                del getattr(self, table)[entity_id]
        self.events = []
        self._came_up = []
        self._log.clear()
        self.journal.clear()
        self._touched.clear()

    def keep(self) -> None:
        """Forget how to undo the changes, which are yet to be stored."""
        self._came_up = []
        self._log.clear()
        self.journal.clear()

    def load(self, entities: Iterable[Entity], *, index: int, now: int) -> None:
        """Fill an empty state: pools, then nodes, policies, tenants, requests, allocations."""
        self.now = self.passed = now
        self.index = index  # every node counts as heard of now: it was promised no more than that
        for kind, some in groupby(entities, type):
            with at_once(self, kind):
                if kind is Request:
                    self._load_requests(some)  # type: ignore[arg-type]
                elif kind is Allocation:
                    self._load_allocations(some)  # type: ignore[arg-type]
                else:
                    for entity in some:
                        self._replace(table_of(entity), entity.id, None, entity)
        self._log.clear()
        self.journal.clear()
        self._touched.clear()

    def _load_requests(self, requests: Iterable[Request]) -> None:
        """Load requests; those of one kind are placed once and queued together, as most are."""
        crowds: dict[Any, Crowd | None] = {}
        # By the identity of the subject, whose hash is slow: what its last request asked for.
        last: dict[tuple[int, bool, bool], tuple[Any, Crowd | None]] = {}
        passed, followed = self.passed, self.gates.followed
        for request in requests:
            asked = _asks(request)
            kind = (id(request.subject), request.work is None, request.walltime is None)
            known = last.get(kind)
            if known is None or known[0] != asked:
                known = last[kind] = (asked, self._crowd_for(request, crowds))
            crowd = known[1]
            if crowd is None or request.not_before > passed or request.id in followed:
                self._replace_request(None, request)
            else:
                self.requests[request.id] = request
                if crowd.waits:
                    crowd.ages.append((request.submitted_at, request.index, request.id))
                    if request.lease_until is not None:
                        self.timers.schedule(("request", request.id), self._request_due(request))
        for crowd in crowds.values():
            if crowd is not None and crowd.ages:
                self._join(crowd)

    def _crowd_for(self, request: Request, crowds: dict[Any, Crowd | None]) -> Crowd | None:
        """The crowd of a request's kind; None if each is indexed alone: with a promise, withheld
        room, or a gate.
        """
        gated = request.part_of is not None or request.after or request.after_any
        if gated or request.earmark is not None or request.withhold is not None:
            return None
        like = (request.subject, request.pool_id, request.waiting, alike_to(request))
        if like not in crowds:
            crowds[like] = self._crowd_of(request)
        return crowds[like]

    def _join(self, crowd: Crowd) -> None:
        """Index the waiters of a crowd, and queue them."""
        first, ids = crowd.first, [age[2] for age in crowd.ages]
        self._by_subject.setdefault(first.subject, {}).update(dict.fromkeys(ids))
        self._places.update(dict.fromkeys(ids, crowd.places))
        kind = (first.subject, first.pool_id)
        self._waiters[kind] = self._waiters.get(kind, 0) + len(ids)
        self.several += len(ids) * (len(crowd.places) > 1)
        crowd.queue()

    def _crowd_of(self, request: Request) -> Crowd | None:
        """The crowd of requests alike to this one; None if each has a queue of its own."""
        if alike_to(request) is None:
            return None
        if not request.waiting:
            return Crowd(request, False, (), [])
        places = eligible_policies(self, request)
        ledgers = [self.ledgers[policy.pool_id] for policy in places]
        if any(ledger.fair for ledger in ledgers):
            return None
        self.dirty |= dict.fromkeys(policy.pool_id for policy in places)
        stands = [
            (ledger, ledger.stand(policy.id, request))
            for ledger, policy in zip(ledgers, places, strict=True)
        ]
        return Crowd(request, True, places, stands)

    def _load_allocations(self, allocations: Iterable[Allocation]) -> None:
        """Load allocations; each ledger holds all of its own at once."""
        found = {each.id: each for each in allocations}
        self.allocations |= found
        of_pools: dict[str, list[Allocation]] = {}
        for each in found.values():
            if each.live:
                of_pools.setdefault(each.pool_id, []).append(each)
        for pool_id, some in of_pools.items():
            ledger = self.ledgers[pool_id]
            requests = [self.requests[each.request_id] for each in some]
            ledger.hold_many([*map(partial(held, ledger), requests, some)])
            for request, each in zip(requests, some, strict=True):
                self.tenancy.hold(request, each)
                self._note_holder(each)
                self._note_times(each, request)
            on_nodes = Counter([member.node_id for each in some for member in each.members])
            for node_id, many in on_nodes.items():
                self._note_holders(node_id, many)
            self.dirty[pool_id] = None

    def begin_pass(self, now: int) -> list[Key]:
        """Move the clock, queue waiters with an elapsed delay, and return the due timers."""
        due = self.timers.pop_due(now)
        self._came_up += due
        before, self.now, self.passed = self.passed, now, now
        for kind, entity_id in due:
            if kind == "request" and entity_id in self.delayed:
                self._index_again(self.requests[entity_id])
            elif kind == "pool":
                self.looks.pop(entity_id, None)
                if entity_id in self.ledgers:
                    self.dirty[entity_id] = None
            elif kind == "allocation":
                allocation = self.allocations[entity_id]
                settings = self.pools[allocation.pool_id].settings
                if changes_itself(allocation, settings, before, now):
                    self.dirty[allocation.pool_id] = None
        return due

    def reschedule(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self.timers.schedule(key, self._due(key))

    # Indexes ----------------------------------------------------------------------------------

    def _replace(self, table: str, entity_id: str, old: Entity | None, new: Entity | None) -> None:
        if table == "requests":
            self._replace_request(old, new)  # type: ignore[arg-type]
        elif table == "allocations":
            self._replace_allocation(old, new)  # type: ignore[arg-type]
        elif table == "nodes":
            self._replace_node(old, new)  # type: ignore[arg-type]
        elif table == "tenants":
            self.dirty |= self.tenancy.know(self.tenants, old, new)  # type: ignore[arg-type]
        else:
            self._edit(table, entity_id, old, new)

    def _replace_request(self, old: Request | None, new: Request | None) -> None:
        if old is not None and old.earmark is not None and (new is None or new.earmark is None):
            self.unearmarked[old.id] = None
            if new is None or new.waiting or new.ended:
                self._note_room(old.earmark.pool_id, old.earmark.footprint)
        stays = old is not None and new is not None and _waits_as(old, new)
        if old is not None:
            self._unindex_request(old, stays)
        if new is not None:
            self.requests[new.id] = new
        elif old is not None:
            del self.requests[old.id]
        moved = self.gates.replace(old, new)
        if new is not None:
            self._index_request(new, stays)
            if old is not None and _holds_otherwise(old, new):
                self._reconsider(new.id)
        self.dirty |= self.tenancy.count(old, new)
        self._let_through(moved)

    def _index_again(self, request: Request) -> None:
        """Index a waiter with a retry delay again, after the clock has moved."""
        self._unindex_request(request)
        moved = self.gates.replace(request, request)
        self._index_request(request)
        self._let_through(moved)

    def _let_through(self, moved: Iterable[Request]) -> None:
        """Index waiters again that may be queued now, or no longer."""
        for request in moved:
            self._unindex_request(request)
            self._index_request(request)

    def _replace_allocation(self, old: Allocation | None, new: Allocation | None) -> None:
        if old is not None and new is not None and old.live and new.live:
            self.allocations[new.id] = new
            self._rehold(old, new)
            self.dirty |= self.tenancy.let_go(old)
            self.tenancy.hold(self.requests[new.request_id], new)
            return
        if old is not None and old.live:
            self._release(old)
            self.dirty |= self.tenancy.let_go(old)
            if not old.leaving:
                self._note_room(old.pool_id, old.footprint)
        if new is not None:
            self.allocations[new.id] = new
            if new.live:
                self._hold(new)
                self.tenancy.hold(self.requests[new.request_id], new)
        elif old is not None:
            del self.allocations[old.id]

    def _note_room(self, pool_id: str, footprint: Footprint = ()) -> None:
        ledger = self.ledgers.get(pool_id)
        if ledger is None or not ledger.departing:
            return
        for where in [node_id for node_id, _ in footprint] or [pool_id]:
            if where not in self.roomier:
                self.roomier[where] = pool_id

    def _replace_node(self, old: Node | None, new: Node | None) -> None:
        """Replace a node. A change of its state concerns that node alone; of its resources or its
        pool, every waiter.
        """
        if old is not None and (new is None or old.pool_id != new.pool_id):
            self._edit("nodes", old.id, old, None)
            old = None
        if new is not None and (old is None or place_of(old) != place_of(new)):
            self._edit("nodes", new.id, old, new)
        elif new is not None:
            self.nodes[new.id] = new
            if new.pool_id is not None:
                self.inventories[new.pool_id].put(new)
                self.ledgers[new.pool_id].changed()
                self.dirty[new.pool_id] = None
                self._note_room(new.pool_id, ((new.id, 1),))
        if new is not None:
            self.draining.pop(new.id, None)
            self.beats.setdefault(new.id, self.now)
            if new.state is NodeState.DRAINING:
                self.draining[new.id] = None
            self._bump(new.id)
            self.timers.schedule(("node", new.id), self._node_due(new))

    def _put_on_inventory(self, old: Node | None, new: Node | None) -> None:
        if old is not None and new is None and old.pool_id in self.inventories:
            self.inventories[old.pool_id].drop(old.id)
        if new is not None and new.pool_id is not None:
            self.inventories[new.pool_id].put(new)

    def _bump(self, node_id: str, by: int = 1) -> None:
        self.order_versions[node_id] = self.order_versions.get(node_id, self.index) + by

    def _edit(self, table: str, entity_id: str, old: Any, new: Any) -> None:
        """Change a pool, a policy or a node's resources: rare, so all waiters that it may concern
        are indexed again.
        """
        either = new if new is not None else old
        pool_id = either.id if table == "pools" else either.pool_id
        had_place = {}
        if self.unopened is None:  # otherwise none is indexed
            concerned = {
                each.subject: None for each in self.policies.values() if each.pool_id == pool_id
            }
            if table == "policies":
                concerned[either.subject] = None
            had_place = self.take_out(concerned)
        entities = getattr(self, table)
        if new is None:
            del entities[entity_id]
        else:
            entities[entity_id] = new
        self._policies_of.clear()
        if table == "nodes":
            self.draining.pop(entity_id, None)
            self._put_on_inventory(old, new)
        if pool_id is not None and self.unopened is not None:
            self.unopened[pool_id] = None
        elif pool_id is not None:
            self.open_ledger(pool_id)
        self.put_back(had_place)

    def take_out(self, subjects: Iterable[Subject] | None = None) -> dict[str, bool]:
        """Take the waiters of these subjects, or all, out of every ledger; return by id whether
        each had a place.
        """
        waiters = [
            self.requests[request_id]
            for subject in (self._by_subject if subjects is None else subjects)
            for request_id in self._by_subject.get(subject, ())
        ]
        had_place = {each.id: bool(self._places[each.id]) for each in waiters}
        for request in waiters:
            self._unindex_request(request)
        return had_place

    def put_back(self, had_place: Mapping[str, bool]) -> None:
        """Index waiters again, and note for the next pass those that gained or lost their place."""
        for request_id, had in had_place.items():
            self._index_request(self.requests[request_id])
            if had != bool(self._places[request_id]):
                self.displaced.setdefault(request_id, had)

    def open_ledger(self, pool_id: str) -> None:
        """Open the ledger of a pool from scratch, with the holdings of the old one."""
        old = self.ledgers.pop(pool_id, None)
        pool = self.pools.get(pool_id)
        if pool is None:
            self.dirty.pop(pool_id, None)
            self.inventories.pop(pool_id, None)
            kept = (self.published, self.scores, self.fresh, self.unchecked)
            for values in (*kept, self.passed_over, self.refused):
                values.pop(pool_id, None)
            for where in [each for each, pool in self.roomier.items() if pool == pool_id]:
                del self.roomier[where]
            return
        inventory = (
            None if pool.nodes is None else self.inventories.setdefault(pool_id, NodeInventory())
        )
        policies = {pid: each for pid, each in self.policies.items() if each.pool_id == pool_id}
        self.ledgers[pool_id] = PoolLedger(pool, policies, inventory)
        self.ledgers[pool_id].publish(self.published.get(pool_id, UNPUBLISHED))
        self.ledgers[pool_id].scores = self.scores.get(pool_id, {})
        self.fresh[pool_id] = self.unchecked[pool_id] = True
        self.dirty[pool_id] = None
        holdings = () if old is None else tuple(old.holdings.values())
        if inventory is not None:
            for holding in holdings:
                inventory.let_go(holding)
        for holding in holdings:
            if not holding.earmark and holding.policy_id in policies:
                self._hold(self.allocations[holding.id])
        self._note_room(pool_id)

    def _index_request(self, request: Request, stays: bool = False) -> None:
        """Index a request; `stays`: it waits in the same pools as before."""
        if request.ended:
            return
        waiting = request.waiting
        if waiting and request.not_before > self.passed:
            self.delayed[request.id] = None
        self.timers.schedule(("request", request.id), self._request_due(request))
        if not waiting:
            return
        if not stays:
            self._by_subject.setdefault(request.subject, {})[request.id] = None
            self._count_waiter(request, 1)
            places = self._places[request.id] = eligible_policies(self, request)
            self.several += len(places) > 1
            self.tenancy.wait(request, places, 1)
        places = self._places[request.id]
        if request.earmark is not None and request.earmark.pool_id in self.ledgers:
            ledger = self.ledgers[request.earmark.pool_id]
            ledger.hold(promised(ledger, request, request.earmark))
            self.dirty[request.earmark.pool_id] = None
        kept_back = request.id in self.delayed or self.gates.shut(request)
        if request.withhold is not None and not kept_back:
            for policy in places:
                if policy.pool_id == request.withhold.pool_id:
                    self.ledgers[policy.pool_id].withheld[request.id] = policy.id
        age = (request.submitted_at, request.index, request.id)
        for policy in () if kept_back else places:
            if request.earmark is None or request.earmark.pool_id != policy.pool_id:
                ledger = self.ledgers[policy.pool_id]
                key, demand = ledger.stand(policy.id, request)
                ledger.wait(key, age, demand)
                self.dirty[policy.pool_id] = None

    def _count_waiter(self, request: Request, by: int) -> None:
        key = (request.subject, request.pool_id)
        if count := self._waiters.get(key, 0) + by:
            self._waiters[key] = count
        else:
            del self._waiters[key]

    def _unindex_request(self, request: Request, stays: bool = False) -> None:
        """Take a request out of the indexes; `stays`: it goes on waiting in the same pools."""
        if not request.waiting:
            return
        self.delayed.pop(request.id, None)
        places = self._places[request.id]
        if not stays:
            del self._by_subject[request.subject][request.id]
            self._count_waiter(request, -1)
            del self._places[request.id]
            self.several -= len(places) > 1
            self.tenancy.wait(request, places, -1)
        if request.earmark is not None and request.earmark.pool_id in self.ledgers:
            self.ledgers[request.earmark.pool_id].let_go(request.id)
            self.dirty[request.earmark.pool_id] = None
        age = (request.submitted_at, request.index, request.id)
        for policy in places:
            ledger = self.ledgers[policy.pool_id]
            ledger.withheld.pop(request.id, None)
            key = ledger.stand(policy.id, request).key
            if key in ledger.queues and request.id in ledger.queues[key]:
                ledger.stop_waiting(key, age)
                self.dirty[policy.pool_id] = None

    def _hold(self, allocation: Allocation) -> None:
        ledger = self.ledgers[allocation.pool_id]
        ledger.hold(held(ledger, self.requests[allocation.request_id], allocation))
        self._note_holder(allocation)
        self._index_allocation(allocation)

    def _note_holder(self, allocation: Allocation) -> None:
        others = self._allocations_of.get(allocation.request_id, ())
        if allocation.id not in others:
            self._allocations_of[allocation.request_id] = (*others, allocation.id)

    def _rehold(self, old: Allocation, new: Allocation) -> None:
        """Replace the holding of an allocation that changed."""
        self._unindex_allocation(old)
        ledger = self.ledgers[new.pool_id]
        ledger.replace(held(ledger, self.requests[new.request_id], new))
        self._index_allocation(new)

    def _reconsider(self, request_id: str) -> None:
        """Replace the holding of a request with changed terms, or that was cancelled."""
        allocation = self.allocation_of(request_id)
        if allocation is not None:
            self.unchecked[allocation.pool_id] = True
            self._rehold(allocation, allocation)

    def _release(self, allocation: Allocation) -> None:
        self.ledgers[allocation.pool_id].let_go(allocation.id)
        of_request = self._allocations_of.pop(allocation.request_id)
        if others := tuple(each for each in of_request if each != allocation.id):
            self._allocations_of[allocation.request_id] = others
        self._unindex_allocation(allocation)

    def _index_allocation(self, allocation: Allocation) -> None:
        self.dirty[allocation.pool_id] = None
        for member in allocation.members:
            self._note_holders(member.node_id, 1)
        self._note_times(allocation, self.requests.get(allocation.request_id))

    def _note_holders(self, node_id: str, many: int) -> None:
        """Note that so many members came to a node, or changed there."""
        self._bump(node_id, many)
        if (node := self.nodes[node_id]).state is NodeState.DOWN:
            self.timers.schedule(("node", node.id), self._node_due(node))

    def _note_times(self, allocation: Allocation, request: Request | None) -> None:
        """Note when a holder may change by time, and whom it leaves for."""
        if allocation.walltime is not None:
            self.ledgers[allocation.pool_id].timed[allocation.id] = None
        if allocation.leaving and allocation.may_go_on:
            assert allocation.taken_for is not None
            self.untold.setdefault(allocation.taken_for, {})[allocation.id] = None
        settings = self.pools[allocation.pool_id].settings
        due = allocation_due(allocation, request, settings, self.passed, self.since)
        if due is not None:
            self.timers.schedule(("allocation", allocation.id), due)

    def _unindex_allocation(self, allocation: Allocation) -> None:
        self.dirty[allocation.pool_id] = None
        for member in allocation.members:
            self._bump(member.node_id)
        if allocation.taken_for in self.untold:
            untold = self.untold[allocation.taken_for]
            untold.pop(allocation.id, None)
            if not untold:
                del self.untold[allocation.taken_for]

    # Timers -----------------------------------------------------------------------------------

    def _due(self, key: Key) -> int | None:
        kind, entity_id = key
        if kind == "request":
            request = self.requests.get(entity_id)
            return None if request is None or request.ended else self._request_due(request)
        if kind == "pool":
            return self.looks.get(entity_id)
        if kind == "node":
            node = self.nodes.get(entity_id)
            return None if node is None else self._node_due(node)
        allocation = self.allocations.get(entity_id)
        if allocation is None or not allocation.live:
            return None
        return self._allocation_due(allocation)

    def _node_due(self, node: Node) -> int | None:
        held = self.on_node(node) if node.state is NodeState.DOWN else ()
        loses = any(may_lose(node, self.requests[each.request_id], each) for each in held)
        return node_due(node, self.beats.get(node.id, self.now), loses)

    def _request_due(self, request: Request) -> int | None:
        return request_due(request, delayed=request.id in self.delayed, since=self.since)

    def _allocation_due(self, allocation: Allocation) -> int | None:
        request = self.requests.get(allocation.request_id)
        settings = self.pools[allocation.pool_id].settings
        return allocation_due(allocation, request, settings, self.passed, self.since)
