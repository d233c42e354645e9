"""Where tasks sit, against brute force on small random inventories."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product
from operator import add

from hypothesis import given, settings
from hypothesis import strategies as st

from cede.engine.nodes.eligible import EligibleNodes
from cede.engine.nodes.inventory import NodeInventory
from cede.engine.nodes.placement import View, place, places_for, possible
from cede.engine.rights.cover import Holding
from cede.engine.victims.choose import choose
from cede.engine.victims.goals import Clearing
from cede.model.node import Node, NodeState
from cede.model.shape import Footprint, Form, Shape, Topology

NODE = st.builds(
    lambda gpu, mcpu, group, label, print_, state: (gpu, mcpu, group, label, print_, state),
    st.integers(1, 4),
    st.integers(0, 3),
    st.sampled_from(["", "a/x", "a/y", "b"]),
    st.sampled_from(["", "x"]),
    st.sampled_from(["", "f"]),
    st.sampled_from([NodeState.READY] * 4 + [NodeState.DRAINED, NodeState.DEGRADED]),
)
FORM = st.builds(
    lambda gpu, mcpu, tasks, per_node, label, print_, topology: Shape(
        {key: amount for key, amount in (("gpu", gpu), ("mcpu", mcpu)) if amount},
        tasks,
        per_node,
        {"kind": label} if label else {},
        print_,
        topology,
    ),
    st.integers(1, 3),
    st.integers(0, 2),
    st.integers(1, 5),
    st.sampled_from([None, None, 1, 2]),
    st.sampled_from(["", "", "x"]),
    st.sampled_from(["", "", "f"]),
    st.sampled_from(Topology),
)
HELD = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 2), st.booleans()), max_size=5)


def made(nodes: list[tuple[int, int, str, str, str, NodeState]]) -> NodeInventory:
    inventory = NodeInventory()
    for number, (gpu, mcpu, group, label, print_, state) in enumerate(nodes):
        amounts = {"gpu": gpu, **({"mcpu": mcpu} if mcpu else {})}
        labels = {"kind": label} if label else {}
        devices = {"gpu": tuple(map(str, range(gpu)))}
        inventory.put(
            Node(f"n{number}", f"n{number}", amounts, devices, labels, group, print_, "p", state)
        )
    return inventory


def hold(inventory: NodeInventory, held: list[tuple[int, int, bool]]) -> list[Holding]:
    """What of these fits, one after another; the flags are who may be stopped."""
    found = []
    for number, (at, gpu, takeable) in enumerate(held):
        node_id = f"n{at % len(inventory.spots)}"
        if inventory.spots[node_id].free[inventory.keys.index("gpu")] >= gpu:
            amounts = {"gpu": gpu}
            holding = Holding(
                f"h{number}", "p", amounts, takeable, number,
                takeable=takeable, footprint=((node_id, 1),), each=amounts,
            )  # fmt: skip
            inventory.hold(holding)
            found.append(holding)
    return found


def form_of(shape: Shape) -> Form:
    return shape.form(shape.amounts)


def room_on(inventory: NodeInventory, shape: Shape, gone: set[str] = frozenset()) -> dict[str, int]:  # type: ignore[assignment]
    """How many tasks each node could take, counted the slow way."""
    found = {}
    for node_id, spot in inventory.spots.items():
        node = spot.node
        left = dict(node.amounts)
        for holding, tasks in spot.holdings.values():
            if holding.id not in gone:
                for key, amount in holding.each.items():
                    left[key] = left.get(key, 0) - amount * tasks
        wrong = any(node.labels.get(name) != text for name, text in shape.labels.items())
        wrong |= bool(shape.fingerprint) and node.fingerprint != shape.fingerprint
        tasks = 0
        while not wrong and node.usable and tasks < (shape.per_node or shape.tasks):
            if any((tasks + 1) * n > left.get(key, 0) for key, n in shape.amounts.items()):
                break
            tasks += 1
        found[node_id] = tasks
    return found


def all_footprints(room: dict[str, int], tasks: int) -> list[dict[str, int]]:
    names = sorted(room)
    return [
        dict(zip(names, counts, strict=True))
        for counts in product(*(range(room[name] + 1) for name in names))
        if sum(counts) == tasks
    ]


def groups_of(inventory: NodeInventory, footprint: dict[str, int]) -> int:
    return len({inventory.spots[n].node.group for n, tasks in footprint.items() if tasks})


def smallest(inventory: NodeInventory, room: dict[str, int], tasks: int) -> set[str]:
    """Of the groups that hold so many alone, those with the least free."""
    places: dict[str, int] = {}
    free: dict[str, list[int]] = {}
    for node_id, spot in inventory.spots.items():
        group = spot.node.group
        places[group] = places.get(group, 0) + room[node_id]
        if spot.node.usable:
            free[group] = list(map(add, free.get(group, [0] * len(spot.free)), spot.free))
    enough = [group for group in places if places[group] >= tasks]
    least = min(free[group] for group in enough)
    return {group for group in enough if free[group] == least}


def found(footprint: Footprint | None) -> dict[str, int] | None:
    return None if footprint is None else dict(footprint)


@settings(max_examples=400)
@given(st.lists(NODE, min_size=1, max_size=4), HELD, FORM)
def test_a_demand_is_placed_exactly_when_it_can_be(
    nodes: list[tuple[int, int, str, str, str, NodeState]],
    held: list[tuple[int, int, bool]],
    shape: Shape,
) -> None:
    inventory = made(nodes)
    hold(inventory, held)
    room, form = room_on(inventory, shape), form_of(shape)
    view = View(inventory, inventory.now)
    placed = found(place(view, form))
    assert (placed is not None) == (sum(room.values()) >= shape.tasks)
    assert places_for(view, form) == min(sum(room.values()), shape.tasks)
    if placed is not None:
        assert sum(placed.values()) == shape.tasks
        assert all(0 < tasks <= room[node_id] for node_id, tasks in placed.items())
        assert inventory.has(tuple(placed.items()), shape.amounts)
        several = [groups_of(inventory, each) for each in all_footprints(room, shape.tasks)]
        if shape.topology is Topology.TIGHT:
            assert groups_of(inventory, placed) == min(several)
            if min(several) == 1 and shape.tasks > 1:
                assert inventory.spots[min(placed)].node.group in smallest(
                    inventory, room, shape.tasks
                )
        if shape.topology is Topology.SPREAD:
            assert groups_of(inventory, placed) == max(several)


@given(st.lists(NODE, min_size=1, max_size=5), HELD, HELD, FORM)
def test_rooms_that_are_read_differently_are_as_good_as_real_ones(
    nodes: list[tuple[int, int, str, str, str, NodeState]],
    held: list[tuple[int, int, bool]],
    more: list[tuple[int, int, bool]],
    shape: Shape,
) -> None:
    """As when victims are thought away: the same nodes in the same groups."""
    before, after = made(nodes), made(nodes)
    hold(before, held)
    hold(after, more)
    instead = {node_id: spot.now[0] for node_id, spot in after.spots.items() if spot.node.usable}
    form = form_of(shape)
    real = place(View(after, after.now), form)
    assert place(View(before, before.now, instead), form) == real
    touched = {each: room for each, room in instead.items() if before.spots[each].now[0] != room}
    assert place(View(before, before.now, touched), form) == real


@given(st.lists(NODE, min_size=1, max_size=4), HELD, FORM)
def test_what_could_ever_be_placed_does_not_depend_on_who_holds_it(
    nodes: list[tuple[int, int, str, str, str, NodeState]],
    held: list[tuple[int, int, bool]],
    shape: Shape,
) -> None:
    inventory = made(nodes)
    ready = made([(*each[:5], NodeState.READY) for each in nodes])
    wanted = sum(room_on(ready, shape).values()) >= shape.tasks
    hold(inventory, held)
    assert possible(inventory, form_of(shape)) == wanted


@given(st.lists(NODE, min_size=1, max_size=4), HELD, st.integers(1, 3))
def test_the_best_fit_leaves_the_most_whole(
    nodes: list[tuple[int, int, str, str, str, NodeState]],
    held: list[tuple[int, int, bool]],
    gpu: int,
) -> None:
    """One task goes where least of the scarce key is left, so no emptier node is broken up."""
    inventory = made(nodes)
    hold(inventory, held)
    shape = Shape({"gpu": gpu})
    room = room_on(inventory, shape)
    placed = found(place(View(inventory, inventory.now), form_of(shape)))
    if placed is not None:
        (chosen,) = placed
        at = inventory.keys.index("gpu")
        left = {node_id: inventory.spots[node_id].free[at] for node_id, n in room.items() if n}
        assert left[chosen] == min(left.values())


@settings(max_examples=400)
@given(st.lists(NODE, min_size=1, max_size=4), HELD, FORM)
def test_victims_are_found_when_there_are_any_and_no_more_than_needed(
    nodes: list[tuple[int, int, str, str, str, NodeState]],
    held: list[tuple[int, int, bool]],
    shape: Shape,
) -> None:
    """S8: releasing all makes room, releasing all but any one does not."""
    inventory = made(nodes)
    legal = [each for each in hold(inventory, held) if each.takeable]
    form = form_of(shape)
    if not all(key in inventory.keys for key in shape.amounts):
        return  # what can never be placed does not wait

    def enough(gone: set[str]) -> bool:
        return sum(room_on(inventory, shape, gone).values()) >= shape.tasks

    if enough(set()):
        return
    victims = choose([Clearing(View(inventory, inventory.promise), form)], legal)
    everybody = {each.id for each in legal}
    assert (victims is not None) == enough(everybody)
    if victims is not None:
        chosen = {each.id for each in victims}
        assert enough(chosen) and chosen <= everybody
        assert not any(enough(chosen - {each}) for each in chosen)


def test_what_is_held_and_let_go_leaves_the_inventory_as_it_was() -> None:
    inventory = made([(4, 2, "a", "x", "f", NodeState.READY), (2, 0, "", "", "", NodeState.READY)])

    def listed() -> list[object]:
        lists = (inventory.now, inventory.promise)
        by_group = [each.by_group() for each in lists]
        return [
            *([list(each.nodes) for each in lists], [list(each.order) for each in by_group]),
            *({name: list(nodes) for name, nodes in each.nodes.items()} for each in by_group),
            *({part: list(nodes) for part, nodes in each.by_part().items()} for each in lists),
            *(
                dict(inventory.free),
                dict(inventory.unheld),
                dict(inventory.served),
                dict(inventory.idle),
            ),
        ]

    inventory.divide({"n0": "p", "n1": "q"})
    before = listed()
    holdings = hold(inventory, [(0, 2, True), (1, 1, False), (0, 2, True)])
    assert len(holdings) == 3 and inventory.free["gpu"] == 1
    for each in holdings:
        inventory.let_go(each)
    assert listed() == before


OWNERS = st.lists(st.sampled_from(["", "p", "q"]), min_size=4, max_size=4)
CLAIMS = st.lists(st.sampled_from(["", "", "ann"]), min_size=4, max_size=4)
PARTS = st.frozensets(
    st.tuples(st.sampled_from(["", "p", "q"]), st.sampled_from(["", "ann"]), st.booleans())
)


@settings(max_examples=300)
@given(st.lists(NODE, min_size=1, max_size=4), HELD, OWNERS, CLAIMS, PARTS, FORM)
def test_a_reach_shows_the_nodes_that_reading_past_all_others_would(
    nodes: list[tuple[int, int, str, str, str, NodeState]],
    held: list[tuple[int, int, bool]],
    owners: list[str],
    claims: list[str],
    parts: frozenset[tuple[str, str, bool]],
    shape: Shape,
) -> None:
    """Whether whose each node is was known before it moved, or is looked up now."""
    inventory, later = made(nodes), made(nodes)
    whose = {f"n{at}": owner for at, owner in enumerate(owners) if owner and at < len(nodes)}
    inventory.divide(whose)
    assert list(inventory.now.by_part()) == list(inventory.promise.by_part())
    for one in (inventory, later):
        hold(one, held)
        for spot, claimant in zip(one.spots.values(), claims, strict=False):
            one.put(replace(spot.node, claimed_by=claimant))
    later.divide(whose)
    need = inventory.room(shape.amounts)
    for one in (inventory, later):
        reach = EligibleNodes(one.spots, parts)
        for listing in (one.now, one.promise):
            mine = [each for each in View(one, listing).nodes(need) if each[1] in reach]
            assert list(View(one, listing, only=reach).nodes(need)) == mine
            for spot in one.spots.values():
                assert (spot.node.id in reach) == (_part(spot.node, whose, one) in parts)
    usable = [spot for spot in inventory.spots.values() if spot.node.usable]
    assert inventory.served == Counter(spot.node.group for spot in usable)
    idle = [spot.node.fingerprint for spot in usable if not spot.holdings]
    assert inventory.idle == Counter(idle)


def _part(node: Node, whose: dict[str, str], inventory: NodeInventory) -> tuple[str, str, bool]:
    """What `hold` puts on a node is of policy p."""
    owner = whose.get(node.id, "")
    return owner, node.claimed_by, owner == "q" and bool(inventory.spots[node.id].holdings)
