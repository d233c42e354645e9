"""The fair share of every element, and its update after a change.

`compute` answers for a tree. A `Solver` keeps its results: after a change only the curves between
the changed request and the root are drawn again, and only elements with a changed offer are
visited. Both run the same code, so they agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from math import inf
from operator import truediv

from cede.engine.fair import integral
from cede.engine.fair.curve import Vector, minus, plus, smaller
from cede.engine.fair.guarantees import as_share, infer, limit_share, shrink
from cede.engine.fair.handing import hand_down, promised
from cede.engine.fair.level import Search, bounds_of
from cede.engine.fair.raising import Node, policy_curve, request_curve, set_ratios
from cede.engine.fair.tree import (
    NO_INTEGRAL,
    ROOT,
    Element,
    Kind,
    Mode,
    Options,
    Tree,
    Volume,
    check_element,
    children_of,
    fifo_order,
)
from cede.model.copying import maker
from cede.model.errors import Invalid


@dataclass(frozen=True, slots=True)
class Share:
    """One element's parts of the whole, each a vector in the order of the keys.

    `total` is its fair share: `strong` comes from its guarantee, `integral` from its volume,
    `weighed`, the rest, by weight. `guarantee` is its effective guarantee.
    """

    total: Vector
    strong: Vector
    integral: Vector
    weighed: Vector
    guarantee: Vector
    demand: Vector
    usage: Vector
    limit: Vector
    dominant: str  # the key with its greatest part of use; of demand if it uses nothing
    promised: Vector | None = None  # its share within guarantees, where that is computed


@dataclass(frozen=True, slots=True)
class Shares:
    """The shares of `elements` by id; the root's id is empty."""

    keys: tuple[str, ...]
    elements: Mapping[str, Share]
    volumes: Mapping[str, Volume]

    def __getitem__(self, element_id: str) -> Share:
        return self.elements[element_id]


_share = maker(Share)


def compute(tree: Tree, options: Options) -> Shares:
    return Solver(tree, options).shares()


class Solver:
    """Fair shares of one tree, kept up to date.

    `put` and `drop` change requests, `settle` brings the shares up to date and returns the changed
    ones. Another policy, total or option needs another solver; `volumes` go from one to the next.
    """

    def __init__(self, tree: Tree, options: Options) -> None:
        self.keys = tree.keys
        self.volumes = dict(tree.volumes)
        self._totals = tree.totals
        self._zero = (0.0,) * len(tree.totals)
        self._none = (0,) * len(tree.totals)  # the same in amounts
        self._wholes = [total or inf for total in tree.totals.values()]
        self._options = options
        self._fit = 0.0  # the fit factor of the root's children
        self._nodes = {ROOT: Node(Element(ROOT, Kind.POLICY), None, limit_share({}, tree.totals))}
        self._root = self._nodes[ROOT]
        self._burst_factor = self._plant(tree)
        self._promises = any(element.promises for element in tree.elements)
        self._integral: list[Node] = []
        if any(element.integral is not NO_INTEGRAL for element in tree.elements):
            self._integral = integral.integral_nodes(self._root)
        self._settle(options.seconds or 0.0)

    def _plant(self, tree: Tree) -> float:
        """Make the nodes and their guarantees; return the factor that bursts are cut by."""
        children = children_of(tree)
        self.inferred = infer(tree, children, self._options.main)
        wanted = {each: as_share(amounts, tree.totals) for each, amounts in self.inferred.items()}
        strong, factor = shrink(tree, children, wanted)
        self._grow(self._root, children)
        for element_id, share in strong.items():
            self._nodes[element_id].strong = share
        return factor

    def _grow(self, policy: Node, children: Mapping[str, Sequence[Element]]) -> None:
        """Make the nodes below a policy, and sum up what is wanted and used there.

        Depth first, as they are drawn and handed shares later, so that what belongs together is
        close in memory.
        """
        policy.demand = policy.usage = self._none
        if not children[policy.element.id]:
            return
        nodes, totals, unlimited = self._nodes, self._totals, self._root.limit
        for element in children[policy.element.id]:
            limit = limit_share(element.limit, totals) if element.limit else unlimited
            node = nodes[element.id] = Node(element, policy, limit)
            policy.children.append(node)
            if node.is_policy:
                self._grow(node, children)
            else:
                self._measure(node, policy)
        demands = zip(*[each.demand for each in policy.children], strict=True)
        usages = zip(*[each.usage for each in policy.children], strict=True)
        policy.demand, policy.usage = tuple(map(sum, demands)), tuple(map(sum, usages))
        _arrange(policy)

    def _measure(self, request: Node, above: Node) -> None:
        """Set what follows from the demand and the use of a request alone, as its curve does."""
        element, options = request.element, self._options
        usage = request.usage = tuple(map(element.usage.get, self.keys, repeat(0)))
        wanted = map(element.demand.get, self.keys, repeat(0))
        demand = request.demand = tuple(map(max, wanted, usage))
        wants = request.wants = self._parts(demand)
        uses = request.uses = wants if usage == demand else self._parts(usage)
        request.dominant = self._dominant(uses, wants)
        at_once = options.gang_steps and element.gang and above.element.steps
        request.curve = request_curve(uses, wants, request.limit, at_once)
        request.stale, request.redrawn = False, True

    def put(self, element: Element) -> None:
        """Add a request, or replace it."""
        node = self._nodes.get(element.id)
        if Kind.POLICY in (element.kind, node.element.kind if node else None):
            raise Invalid("kind", f"{element.id!r} is a policy, which needs a new solver")
        parent = self._nodes.get(element.parent)
        check_element(element, parent is not None and parent.is_policy)
        assert parent is not None
        if node is not None and node.parent is not parent:
            self.drop(element.id)
            node = None
        if node is None:
            node = Node(element, parent, limit_share(element.limit, self._totals))
            self._nodes[element.id] = node
            parent.children.append(node)
        self._count(node, parent, element)
        _arrange(parent)

    def drop(self, element_id: str) -> None:
        """Remove a request."""
        node = self._nodes.get(element_id)
        if node is None or node.is_policy or node.parent is None:
            raise Invalid("id", f"{element_id!r} is no request")
        self._count(node, node.parent, Element(element_id, parent=node.element.parent))
        node.parent.children.remove(node)
        _arrange(node.parent)
        del self._nodes[element_id]

    def _count(self, node: Node, parent: Node, element: Element) -> None:
        """Set a request's numbers, and add the change to all nodes above it."""
        if element.limit != node.element.limit:
            node.limit = limit_share(element.limit, self._totals)
        demand, usage = node.demand, node.usage
        node.element = element
        self._measure(node, parent)
        more = [new - old for new, old in zip(node.demand, demand, strict=True)]
        used = [new - old for new, old in zip(node.usage, usage, strict=True)]
        for each in parent.ancestors():
            each.demand = [a + b for a, b in zip(each.demand, more, strict=True)]
            each.usage = [a + b for a, b in zip(each.usage, used, strict=True)]
        parent.mark_stale()

    def settle(self, seconds: float = 0.0) -> tuple[str, ...]:
        """Bring shares up to date; return the ids of elements with a new fair share.

        `seconds`: the time for which volumes are filled and used up first.
        """
        return tuple([node.element.id for node in self._settle(seconds)])

    def _settle(self, seconds: float) -> list[Node]:
        """The same, with the nodes that changed."""
        if self._integral:
            self._share_volumes(seconds)
        root = self._root
        if not root.stale:
            return []
        self._draw_below(root)
        level = Search(root.children, bounds_of(root)).run(self._fit, self._options.improved)
        root.stale = False
        root.total = level.value
        self._fit = level.fit
        changed: list[Node] = []
        hand_down(root, level.fit, level.mark, changed)
        return changed

    def _share_volumes(self, seconds: float) -> None:
        filled = integral.fill(self._root, self.volumes, self._totals, self._options, seconds)
        setting = integral.Setting(
            self._totals, self._options, self._burst_factor, self._draw_below
        )
        self.volumes = integral.assign(self._root, self._integral, filled, setting)

    def _draw_below(self, policy: Node) -> None:
        """Draw the curves below a policy that are older than their inputs."""
        for node in policy.children:
            if node.stale:
                self._draw_below(node)
                node.drawn_with = node.guarantee
                node.curve = policy_curve(node, node.drawn_with, node.limit, self._options.improved)
                node.stale = False
                node.redrawn = True

    def _parts(self, amounts: Sequence[float]) -> Vector:
        """The parts of the whole; 0 of a key without a total."""
        return tuple(map(truediv, amounts, self._wholes)) if any(amounts) else self._zero

    def fair_share(self, element_id: str) -> Vector:
        return self._nodes[element_id].total

    def share(self, element_id: str) -> Share:
        return self._share(self._nodes[element_id])

    def shares(self) -> Shares:
        """All shares, with those within guarantees."""
        within = promised(self._root) if self._promises else {}
        elements = {
            element_id: self._share(node, within.get(element_id))
            for element_id, node in self._nodes.items()
        }
        return Shares(self.keys, elements, self.volumes)

    def _share(self, node: Node, within: Vector | None = None) -> Share:
        total, zero, limit = node.total, self._zero, node.limit
        if not node.is_policy:
            wants, uses = node.wants, node.uses
            return _share(total, zero, zero, total, zero, wants, uses, limit, node.dominant, within)
        guarantee = node.guarantee
        if not any(node.demand):
            main = self._options.main
            return _share(zero, zero, zero, zero, guarantee, zero, zero, limit, main, within)
        if node is self._root:
            # The sum of the parts of their guarantees that its children get.
            strong = zero
            for child in node.children:
                strong = plus(strong, smaller(child.total, child.strong))
        else:
            strong = smaller(node.strong, total)
        rest = minus(total, strong) if any(strong) else total
        by_volume, weighed = zero, rest
        if any(node.integral):
            by_volume = smaller(rest, node.integral)
            weighed = minus(rest, by_volume)
        demand, usage = self._parts(node.demand), self._parts(node.usage)
        dominant = self._dominant(usage, demand)
        return _share(
            total, strong, by_volume, weighed, guarantee, demand, usage, limit, dominant, within
        )

    def _dominant(self, usage: Vector, demand: Vector) -> str:
        return dominant_key(self.keys, usage if any(usage) else demand, self._options.main)


def _arrange(policy: Node) -> None:
    """Set the order and ratios of a policy's children after a change of them."""
    set_ratios(policy.children)
    if policy.element.mode is Mode.FIFO:
        by_id = {each.element.id: each for each in policy.children}
        order = fifo_order((each.element for each in policy.children), policy.element.sorting)
        policy.order = [by_id[each] for each in order]


def dominant_key(keys: tuple[str, ...], share: Vector, main: str) -> str:
    """The first key with the greatest share; the main key where there is none."""
    most = max(share, default=0.0)
    return keys[share.index(most)] if most > 0 else main
