"""The nodes of one pool, indexed by what is free on them.

As in the ledger, two numbers matter for every node: what is free *now*, and what is free *to
promise*, which counts leaving holders as gone and earmarks as held (law 4). Usable nodes are in one
listing for each. A change moves only the nodes that it touches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from operator import attrgetter

from cede.engine.nodes.listing import Listing, Part, Room, Spot
from cede.engine.rights.cover import Holding
from cede.model.amounts import Amounts
from cede.model.node import Node
from cede.model.shape import Form


class NodeInventory:
    """`free` and `unheld` are sums over usable nodes: capacity minus holders, and capacity minus
    staying holders. `broken` are the nodes on which a promise no longer holds.
    """

    def __init__(self) -> None:
        self.keys: tuple[str, ...] = ()
        self.spots: dict[str, Spot] = {}
        self.groups: Counter[str] = Counter()  # the number of nodes in each topology group
        self.folders: Counter[str] = Counter()  # the number of nodes with each checkpoint folder
        self.served: Counter[str] = Counter()  # by topology group: the number of usable nodes
        self.idle: Counter[str] = Counter()  # by fingerprint: usable nodes with nothing on them
        self.now = Listing(self.spots, attrgetter("now"))
        self.promise = Listing(self.spots, attrgetter("promise"))
        self.free: dict[str, int] = {}
        self.unheld: dict[str, int] = {}
        self.broken: dict[str, None] = {}
        self.claimed: dict[str, str] = {}  # claimed nodes, and their claimants
        self.owner: Mapping[str, str] = {}  # home nodes, and the policies that own them
        self.moves: Counter[str] = Counter()  # by owner: grows with every change on its nodes
        self.version = 0  # grows with every change, so that cached answers can be checked
        self._unlisted = False  # all nodes, during `holding_many`
        self.ever: dict[Form, bool] = {}  # whether a form could ever be placed; a cache

    # Nodes ------------------------------------------------------------------------------------

    def put(self, node: Node) -> None:
        if not set(node.amounts) <= set(self.keys):
            self._add_keys(node)
        spot = self.spots.get(node.id)
        self.ever.clear()
        if spot is None:
            spot = self.spots[node.id] = Spot(node)
        else:
            self._unlist(spot)
            _count(self.groups, spot.node.group, -1)
            _count(self.folders, spot.node.folder, -1)
            spot.node = node
        _count(self.groups, node.group, 1)
        _count(self.folders, node.folder, 1)
        self.claimed.pop(node.id, None)
        if node.claimed_by:
            self.claimed[node.id] = node.claimed_by
        self._list(spot)

    def drop(self, node_id: str) -> None:
        spot = self.spots.pop(node_id)
        assert not spot.holdings, "a node is dropped only when nothing is on it"
        self._unlist(spot)
        _count(self.groups, spot.node.group, -1)
        _count(self.folders, spot.node.folder, -1)
        self.broken.pop(node_id, None)
        self.claimed.pop(node_id, None)
        self.ever.clear()

    def divide(self, owner: Mapping[str, str]) -> None:
        """Set the policies that own the nodes; every edit calls this, and few edits change them."""
        if owner == self.owner:
            return
        self.owner = owner
        for spot in self.spots.values():
            spot.part = self._part(spot)
        self.now.parted = self.promise.parted = None

    def _part(self, spot: Spot) -> Part:
        owner = self.owner.get(spot.node.id, "")
        lent = owner != "" and any(
            holding.policy_id != owner and not holding.claimed_out
            for holding, _ in spot.holdings.values()
        )
        return (owner, spot.node.claimed_by, lent)

    def _add_keys(self, node: Node) -> None:
        """Add the keys of a node, keys with devices first, because they are scarce."""
        known = {*self.keys, *node.amounts}
        devices = {
            key for each in (node, *(s.node for s in self.spots.values())) for key in each.scarce
        }
        for spot in self.spots.values():
            self._unlist(spot)
        self.keys = tuple(sorted(known, key=lambda key: (key not in devices, key)))
        for spot in self.spots.values():
            self._list(spot)

    # Holdings ---------------------------------------------------------------------------------

    def hold(self, holding: Holding) -> None:
        for node_id, tasks in holding.footprint:
            spot = self.spots[node_id]
            if not self._unlisted:
                self._unlist(spot)
            spot.holdings[holding.id] = (holding, tasks)
            if not self._unlisted:
                self._list(spot)

    @contextmanager
    def holding_many(self) -> Iterator[None]:
        """Add many holdings, listing each node only once at the end; nothing may be read
        meanwhile.
        """
        for spot in self.spots.values():
            self._unlist(spot)
        self._unlisted = True
        try:
            yield
        finally:
            self._unlisted = False
            for spot in self.spots.values():
                self._list(spot)

    def let_go(self, holding: Holding) -> None:
        for node_id, _ in holding.footprint:
            spot = self.spots[node_id]
            self._unlist(spot)
            del spot.holdings[holding.id]
            self._list(spot)

    def _list(self, spot: Spot) -> None:
        self.version += 1
        spot.part = self._part(spot)
        self.moves[spot.part[0]] += 1
        spot.free, spot.unheld, promise = self.rooms(spot)
        node_id = spot.node.id
        spot.now, spot.promise = (tuple(map(min, spot.free, promise)), node_id), (promise, node_id)
        if spot.node.usable:
            self.now.add(spot)
            self.promise.add(spot)
            self._sum(spot, 1)
        if self._is_broken(spot, promise):
            self.broken[node_id] = None
        else:
            self.broken.pop(node_id, None)

    def _unlist(self, spot: Spot) -> None:
        if spot.node.usable:
            self.now.remove(spot)
            self.promise.remove(spot)
            self._sum(spot, -1)

    def _sum(self, spot: Spot, sign: int) -> None:
        _count(self.served, spot.node.group, sign)
        if not spot.holdings:
            _count(self.idle, spot.node.fingerprint, sign)
        for key, free, unheld in zip(self.keys, spot.free, spot.unheld, strict=True):
            self.free[key] = self.free.get(key, 0) + sign * free
            self.unheld[key] = self.unheld.get(key, 0) + sign * unheld

    def _is_broken(self, spot: Spot, promise: Room) -> bool:
        """Whether a promise is on a node that is out of service or has less than its staying
        holdings and promises.
        """
        if spot.node.usable and all(left >= 0 for left in promise):
            return False
        return any(holding.earmark for holding, _ in spot.holdings.values())

    def rooms(self, spot: Spot, without: Container[str] = ()) -> tuple[Room, Room, Room]:
        """Three rooms of a node: without holdings, without staying holdings, and that less
        promises; as if the holdings `without` were gone.

        Outside jobs may have taken what was granted here at the same time: then nothing is free,
        and the deficit is not counted against other nodes. A promise that they broke shows as
        negative.
        """
        amounts, keys = spot.node.amounts, self.keys
        free = [amounts.get(key, 0) for key in keys]
        unheld, promise = list(free), list(free)
        for holding, tasks in spot.holdings.values():
            if holding.id in without:
                continue
            for at, key in enumerate(keys):
                if key not in amounts:
                    continue  # a later node brought the key: none of it is held here
                amount = holding.each.get(key, 0) * tasks
                if not holding.earmark:
                    free[at] -= amount
                if not holding.leaving:
                    promise[at] -= amount
                    if not holding.earmark:
                        unheld[at] -= amount
        for at, key in enumerate(keys):
            if others := spot.node.others.get(key, 0):
                free[at] = max(free[at] - others, min(free[at], 0))
                unheld[at] = max(unheld[at] - others, min(unheld[at], 0))
                promise[at] -= others
        return tuple(free), tuple(unheld), tuple(promise)

    # Reading ----------------------------------------------------------------------------------

    def room(self, amounts: Amounts) -> Room:
        """Amounts as a room, in the inventory's order of keys."""
        return tuple(amounts.get(key, 0) for key in self.keys)

    def has(self, footprint: Iterable[tuple[str, int]], each: Amounts) -> bool:
        """Whether these tasks physically fit on these nodes now."""
        need = self.room(each)
        for node_id, tasks in footprint:
            spot = self.spots.get(node_id)
            if spot is None or not spot.node.usable:
                return False
            if any(tasks * amount > left for amount, left in zip(need, spot.free, strict=True)):
                return False
        return True


def _count(counter: Counter[str], name: str, sign: int) -> None:
    counter[name] += sign
    if not counter[name]:
        del counter[name]
