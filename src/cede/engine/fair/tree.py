"""The input of a computation of fair shares: a tree of policies and requests, and options.

Amounts are by key, in the keys of the totals and in their order. An element without a parent is a
child of the root, which stands for the totals and is no element itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum, auto

from cede.model.errors import Invalid

ROOT = ""

Numbers = Mapping[str, float]


class Kind(StrEnum):
    POLICY = auto()
    REQUEST = auto()


class Mode(StrEnum):
    """How a policy's children share: together by weight, or one after the other."""

    FAIR_SHARE = auto()
    FIFO = auto()


class Sorting(StrEnum):
    """The properties by which a fifo policy orders its children."""

    WEIGHT = auto()  # heavier first
    SUBMITTED = auto()  # earlier first
    PENDING = auto()  # fewer tasks that wait first


class IntegralType(StrEnum):
    NONE = auto()
    BURST = auto()
    RELAXED = auto()


@dataclass(frozen=True, slots=True)
class Integral:
    """A guarantee over time: `flow` fills a volume, from which the policy takes above its share.

    `burst` is the most a burst policy takes at once; a relaxed one takes the rest that others
    leave, at most `multiplier` times its flow.
    """

    type: IntegralType = IntegralType.NONE
    flow: Numbers = field(default_factory=dict)
    burst: Numbers = field(default_factory=dict)
    multiplier: float = 3.0
    accepts_free_volume: bool = True
    spreads_free_volume: bool = False


@dataclass(frozen=True, slots=True)
class Volume:
    """The saved-up volume of an integral guarantee, in amount x seconds, and its last share."""

    saved: Numbers = field(default_factory=dict)
    last_share: float = 0.0


NO_INTEGRAL = Integral()
NO_VOLUME = Volume()


@dataclass(frozen=True, slots=True)
class Element:
    """A policy or a request. Demand and usage are a request's; a policy has its children's.

    A guarantee that names no amount of a key leaves it to be inferred from the main key. A limit
    binds only the keys it names. `submitted` is the place in the order of arrival.
    """

    id: str
    kind: Kind = Kind.REQUEST
    parent: str = ROOT
    weight: float = 1.0
    mode: Mode = Mode.FAIR_SHARE
    sorting: tuple[Sorting, ...] = (Sorting.WEIGHT, Sorting.SUBMITTED)
    guarantee: Numbers = field(default_factory=dict)
    limit: Numbers = field(default_factory=dict)
    demand: Numbers = field(default_factory=dict)
    usage: Numbers = field(default_factory=dict)
    gang: bool = False
    submitted: int = 0
    pending: int = 0
    integral: Integral = NO_INTEGRAL
    promises: bool = False  # whether shares within guarantees are computed below it
    steps: bool = True  # whether its gangs get all or nothing, if `gang_steps` is set


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a computation. `seconds`: since the previous update; None if there was none,
    and no volume is filled.
    """

    main: str = ""
    improved: bool = False
    gang_steps: bool = False
    smooth: float = 60.0
    saturation: float = 86_400.0
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Tree:
    """Totals and elements in order: of children that tie, the earlier one comes first."""

    totals: Numbers
    elements: tuple[Element, ...]
    volumes: Mapping[str, Volume] = field(default_factory=dict)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.totals)


def children_of(tree: Tree) -> dict[str, list[Element]]:
    """The children of every policy. What is no tree is refused, with the element named."""
    if len({ROOT, *[each.id for each in tree.elements]}) <= len(tree.elements):
        _refuse_twins(tree)
    policies = [each for each in tree.elements if each.kind is Kind.POLICY]
    children: dict[str, list[Element]] = {each.id: [] for each in policies}
    children[ROOT] = []
    for element in tree.elements:
        siblings = children.get(element.parent)
        if siblings is None or not element.weight > 0:
            check_element(element, siblings is not None)
        else:
            siblings.append(element)
    _refuse_cycles({each.id: each.parent for each in policies})
    return children


def _refuse_twins(tree: Tree) -> None:
    known = {ROOT}
    for element in tree.elements:
        if element.id in known:
            raise Invalid("id", f"{element.id!r} stands twice in the tree")
        known.add(element.id)


def check_element(element: Element, below_policy: bool) -> None:
    if not below_policy:
        raise Invalid("parent", f"{element.parent!r} of {element.id!r} is no policy")
    if not element.weight > 0:
        raise Invalid("weight", f"of {element.id!r} must be above 0")


def _refuse_cycles(above: Mapping[str, str]) -> None:
    rooted = {ROOT}
    for start, parent in above.items():
        if parent in rooted:
            rooted.add(start)  # most elements stand behind the one above them
            continue
        seen: dict[str, None] = {}
        at = start
        while at not in rooted:
            if at in seen:
                raise Invalid("parent", f"{start!r} is below itself")
            seen[at] = None
            at = above[at]
        rooted.update(seen)


def fifo_order(children: Iterable[Element], sorting: tuple[Sorting, ...]) -> list[str]:
    """Ids in the order in which a fifo policy serves them; ties stay in the order given."""

    def place(element: Element) -> tuple[float, ...]:
        by = {
            Sorting.WEIGHT: -element.weight,
            Sorting.SUBMITTED: element.submitted,
            Sorting.PENDING: element.pending,
        }
        return tuple(by[each] for each in sorting)

    return [each.id for each in sorted(children, key=place)]
