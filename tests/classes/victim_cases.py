"""Small random cases for the search of victims, and the same search by brute force."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import combinations
from math import inf
from random import Random
from types import SimpleNamespace

from cede.engine.nodes.inventory import NodeInventory
from cede.engine.nodes.placement import View, place, places_for
from cede.engine.rights.cover import Holding
from cede.engine.victims.candidates import Candidate
from cede.engine.victims.cheapest import Choice, VictimSettings, cheapest
from cede.engine.victims.goals import Clearing, Goal, Shortage
from cede.model.node import Node, NodeState
from cede.model.shape import Form, Shape

# Few and round, so that sets cost the same; and some whose floats do not add up in any order.
PRICES = (0.0, 0.5, 1.0, 1.0, 2.0, 5.0, 5.0, 5.0, 0.1, 0.2, 0.3, 17.3)
CHECKPOINTS = (0.0, 5.0, 5.0, 10.0, 0.1)
POLICIES = SimpleNamespace(chains={"a": ("a", "top"), "b": ("b", "top"), "c": ("c",)})


@dataclass(frozen=True, eq=False)  # each is itself: what brute force found in it is kept
class Case:
    candidates: list[Candidate]
    goals: Callable[[], list[Goal]]  # as they are at the start
    settings: VictimSettings
    bound: float = inf
    inventory: NodeInventory | None = None
    form: Form | None = None

    def search(self) -> Choice:
        return cheapest(self.candidates, self.goals(), self.settings, self.bound)


@cache
def case(seed: int) -> Case:
    """Every other one is of counted amounts."""
    dice = Random(seed)
    made = on_nodes(dice) if seed % 2 else counted(dice)
    settings = VictimSettings(dice.randint(1, 4), dice.choice((0.0, 1.0, 1.0, 0.3)))
    bound = dice.choice((inf, inf, 3.0, 8.0, 20.0))
    return replace(made, settings=settings, bound=bound)


def candidates(dice: Random, holdings: list[Holding]) -> list[Candidate]:
    """In a third of the cases they hardly differ."""
    prices, ranks = (PRICES[-2:], (1,)) if dice.random() < 0.3 else (PRICES, (0, 1, 1, 2, 3))
    return [
        Candidate(each, dice.choice(prices), dice.choice(ranks), dice.choice(CHECKPOINTS))
        for each in holdings
    ]


def counted(dice: Random) -> Case:
    """Amounts are missing; in half of the cases some of them below a limit of two policies."""
    sizes = [
        {"gpu": dice.randint(1, 4), **({"mcpu": dice.randint(1, 4)} if dice.random() < 0.5 else {})}
        for _ in range(dice.randint(1, 5))
    ]
    holdings = [
        Holding(f"h{dice.randrange(10_000)}-{number}", dice.choice("abc"), dict(dice.choice(sizes)),
                True, dice.randrange(6))
        for number in range(dice.randint(0, 12))
    ]  # fmt: skip
    short = {"gpu": dice.randint(0, 9), "mcpu": dice.choice((0, 0, 0, 2, 4))}
    under = {"gpu": dice.randint(1, 6)} if dice.random() < 0.5 else None

    def goals() -> list[Goal]:
        found: list[Goal] = [Shortage(dict(short))]
        if under:
            found.insert(0, Shortage(dict(under), POLICIES, "top"))  # type: ignore[arg-type]
        return found

    return Case(candidates(dice, holdings), goals, VictimSettings())


def on_nodes(dice: Random) -> Case:
    """A demand finds too few places on nodes; some do not suit it, or are out of service."""
    inventory = NodeInventory()
    for number in range(dice.randint(1, 5)):
        gpu = dice.choice((1, 2, 2, 4, 6))
        labels = {"kind": dice.choice("xxxy")}
        state = dice.choice([NodeState.READY] * 9 + [NodeState.DRAINED])
        name = f"n{number}"
        inventory.put(Node(name, name, {"gpu": gpu, "mcpu": 8}, labels=labels, state=state))
    takeable: list[Holding] = []
    for number in range(40):  # most of them until little is free
        holding = _fitting(dice, inventory, f"h{dice.randrange(10_000)}-{number}")
        if holding is not None:
            inventory.hold(holding)
            if dice.random() < 0.95 and len(takeable) < 12:  # the others may not be stopped
                takeable.append(holding)
    amounts = {"gpu": dice.choice((1, 1, 2, 4)), "mcpu": dice.choice((1, 1, 2, 4))}
    labels = {"kind": "x"} if dice.random() < 0.5 else {}
    shape = Shape(amounts, dice.randint(1, 3), dice.choice((None, None, 1, 2)), labels)
    form = shape.form(amounts)
    short = {"gpu": dice.randint(1, 4)} if dice.random() < 0.3 else None

    def goals() -> list[Goal]:
        found: list[Goal] = [Clearing(View(inventory, inventory.promise), form)]
        if short:
            found.insert(0, Shortage(dict(short), POLICIES, "top"))  # type: ignore[arg-type]
        return found

    return Case(candidates(dice, takeable), goals, VictimSettings(), inventory=inventory, form=form)


def _fitting(dice: Random, inventory: NodeInventory, name: str) -> Holding | None:
    """One that fits on what is free; some sit on two nodes."""
    each = {"gpu": dice.choice((0, 1, 1, 2, 4)), "mcpu": dice.choice((0, 1, 2, 3))}
    each = {key: amount for key, amount in each.items() if amount}
    nodes = dice.sample(
        sorted(inventory.spots), k=min(len(inventory.spots), dice.choice((1, 1, 1, 2)))
    )
    footprint = tuple((node_id, dice.choice((1, 1, 2))) for node_id in nodes)
    if not each or not _has(inventory, footprint, each):
        return None
    tasks = sum(count for _, count in footprint)
    amounts = {key: tasks * amount for key, amount in each.items()}
    policy_id, index = dice.choice("abc"), dice.randrange(6)
    return Holding(name, policy_id, amounts, True, index, footprint=footprint, each=each)


def _has(
    inventory: NodeInventory, footprint: tuple[tuple[str, int], ...], each: dict[str, int]
) -> bool:
    need = inventory.room(each)
    return all(
        tasks * amount <= left
        for node_id, tasks in footprint
        for amount, left in zip(need, inventory.spots[node_id].free, strict=True)
    )


def sufficient(case: Case, victims: tuple[Candidate, ...]) -> bool:
    goals = case.goals()
    for goal in goals:
        for each in victims:
            goal.take_away(each.holding, 1)
    return all(goal.met for goal in goals)


def cost(case: Case, victims: tuple[Candidate, ...]) -> Fraction:
    each = Fraction(case.settings.per_victim_cost)
    return sum((Fraction(victim.price) + each for victim in victims), Fraction(0))


def worth(case: Case, victims: tuple[Candidate, ...]) -> tuple[object, ...]:
    """What is compared, in the order in which it is."""
    return (
        cost(case, victims),
        max((each.rank for each in victims), default=-1),
        len(victims),
        sum((Fraction(each.checkpoint) for each in victims), Fraction(0)),
        sorted((-each.holding.index, each.holding.id) for each in victims),
    )


@cache
def by_brute_force(case: Case) -> tuple[Candidate, ...] | None:
    """The best of all sets that would do, whatever the waiter is worth."""
    sets = (
        victims
        for count in range(case.settings.max_victims + 1)
        for victims in combinations(case.candidates, count)
    )
    return min(
        (each for each in sets if sufficient(case, each)),
        key=lambda each: worth(case, each),  # type: ignore[arg-type,return-value]
        default=None,
    )


def by_greed(case: Case) -> tuple[Candidate, ...] | None:
    """Document 004's own: ascending by price, until it is enough or there are too many."""
    taken: tuple[Candidate, ...] = ()
    for each in sorted(case.candidates, key=lambda each: each.price):
        if sufficient(case, taken) or len(taken) == case.settings.max_victims:
            break
        taken = (*taken, each)
    return taken if sufficient(case, taken) else None


def really_fits(case: Case, victims: tuple[Candidate, ...]) -> bool:
    """Whether the demand has a place once the victims have left the ground for good."""
    if case.inventory is None or case.form is None:
        return True
    for each in victims:
        case.inventory.let_go(each.holding)
    view = View(case.inventory, case.inventory.promise)
    found = place(view, case.form) is not None
    assert found == (places_for(view, case.form) >= case.form.tasks)
    for each in victims:
        case.inventory.hold(each.holding)
    return found


def complaints(case: Case, choice: Choice) -> list[str]:
    """What is wrong with a choice that claims to be the best."""
    expected = by_brute_force(case)
    if expected is None:
        return ["a set was made up"] if choice.best is not None else []
    if choice.best is None:
        return ["a set exists, and none was found"]
    found = list(_wrong(case, choice))
    if cost(case, choice.best) > cost(case, expected):
        found.append("dearer than need be")
    elif worth(case, choice.best) != worth(case, expected):
        found.append("another of equal cost comes first")
    return found


def _wrong(case: Case, choice: Choice) -> list[str]:
    """What is wrong with a set, whether it claims to be the best or not."""
    best = choice.best
    assert best is not None
    found = []
    if not sufficient(case, best) or not really_fits(case, best):
        found.append("not sufficient")
    if len(best) > case.settings.max_victims or len({each.holding.id for each in best}) < len(best):
        found.append("too many, or one twice")
    if any(sufficient(case, (*best[:at], *best[at + 1 :])) for at in range(len(best))):
        found.append("somebody is not needed")
    if (choice.victims is None) != bool(best and cost(case, best) >= case.bound):
        found.append("the bound does not hold")
    if abs(choice.cost - cost(case, best)) > 1e-9:
        found.append("its cost is not what it says")
    return found


def complaints_beyond(case: Case, choice: Choice) -> list[str]:
    """What is wrong with a choice that does not claim to be the best."""
    greedy = by_greed(case)
    if choice.best is None:
        return ["greed found a set"] if greedy is not None else []
    found = _wrong(case, choice)
    if greedy is not None and cost(case, choice.best) > cost(case, greedy):
        found.append("dearer than greed")
    return found
