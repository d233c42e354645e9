"""Rights as they are kept equal rights by their definition, on a policy alone and on a tree."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from cede.engine.ledger.ledger import PoolLedger
from cede.engine.rights.cover import Holding
from cede.engine.rights.standing import BORROWED, IN_SHARE
from cede.model.amounts import total
from cede.model.policy import Policy
from cede.model.pool import Pool
from cede.model.settings import Settings
from cede.model.subject import Subject

KEYS = ("gpu", "mcpu")
SHARE = st.dictionaries(st.sampled_from(KEYS), st.integers(0, 10))
# (who, preemptible, place, gpu, mcpu, whether one goes instead)
STEP = st.tuples(
    st.integers(0, 4),
    st.booleans(),
    st.integers(0, 30),
    st.integers(0, 4),
    st.integers(0, 4),
    st.booleans(),
)


def ledger_of(shares: list[dict[str, int]], parents: list[int | None]) -> PoolLedger:
    policies = {
        f"p{at}": Policy(
            id=f"p{at}",
            pool_id="pool",
            subject=Subject("team", f"p{at}"),
            priority=0,
            reserved=share,
            limit={},
            parent_id=None if parent is None else f"p{parent}",
        )
        for at, (share, parent) in enumerate(zip(shares, parents, strict=True))
    }
    capacity = dict.fromkeys(KEYS, 1000)
    return PoolLedger(Pool("pool", "pool", capacity, "quota", Settings()), policies)


def definition(ledger: PoolLedger, held: list[Holding]) -> dict[str, int]:
    """From the lowest policies up: what is covered below first, then in order while it fits."""
    rights = {each.id: BORROWED for each in held}
    depth = max(map(len, ledger.chains.values()), default=1)
    lowest_first = sorted(ledger.policies, key=lambda each: -len(ledger.chains[each]))
    assert depth <= IN_SHARE
    for policy_id in lowest_first:
        below = [each for each in held if policy_id in ledger.chains[each.policy_id]]
        covered = [each for each in below if rights[each.id] != BORROWED]
        running = total(each.amounts for each in covered)
        share = ledger.policies[policy_id].reserved
        for each in sorted((e for e in below if e not in covered), key=lambda e: e.place):
            running = total([running, each.amounts])
            if any(running.get(key, 0) > share.get(key, 0) for key in ledger.counting):
                break
            rights[each.id] = IN_SHARE - ledger.chains[each.policy_id].index(policy_id)
    return rights


def play(ledger: PoolLedger, steps: list[tuple[int, bool, int, int, int, bool]]) -> None:
    held: list[Holding] = []
    for number, (who, preemptible, index, gpu, mcpu, goes) in enumerate(steps):
        if goes and held:
            ledger.let_go(held.pop(index % len(held)).id)
        else:
            amounts = {key: n for key, n in zip(KEYS, (gpu, mcpu), strict=True) if n}
            policy = f"p{who % len(ledger.policies)}"
            held.append(Holding(f"h{number}", policy, amounts, preemptible, index))
            ledger.hold(held[-1])
        assert {each.id: ledger.rights(each.id) for each in held} == definition(ledger, held)


@given(SHARE, st.lists(STEP, max_size=40))
def test_the_cut_is_where_the_definition_puts_it(
    share: dict[str, int], steps: list[tuple[int, bool, int, int, int, bool]]
) -> None:
    play(ledger_of([share], [None]), steps)


@given(
    st.lists(SHARE, min_size=5, max_size=5),
    st.sampled_from([[None, 0, 0, 1, 1], [None, 0, 1, 2, 3], [None, None, 0, 0, 1]]),
    st.lists(STEP, max_size=40),
)
def test_on_a_tree_what_is_not_covered_is_offered_upwards(
    shares: list[dict[str, int]],
    parents: list[int | None],
    steps: list[tuple[int, bool, int, int, int, bool]],
) -> None:
    play(ledger_of(shares, parents), steps)


def sums_of(ledger: PoolLedger) -> dict[Any, dict[str, int]]:
    """The sums of tiers; a tier that all have left is kept, empty."""
    return {tier: amounts for tier, amounts in ledger.tiers.items() if amounts}


@given(
    st.lists(SHARE, min_size=5, max_size=5),
    st.sampled_from([[None] * 5, [None, 0, 0, 1, 1], [None, 0, 1, 2, 3]]),
    st.lists(STEP, max_size=40),
    st.integers(0, 40),
)
@example(
    shares=[{"gpu": 1}, {}, {}, {}, {}],
    parents=[None] * 5,
    steps=[(0, True, 0, 1, 0, True), (0, False, 0, 1, 0, True)],
    before=0,
)
def test_many_at_once_are_held_as_if_they_came_one_after_the_other(
    shares: list[dict[str, int]],
    parents: list[int | None],
    steps: list[tuple[int, bool, int, int, int, bool]],
    before: int,
) -> None:
    held = []
    for number, (who, preemptible, index, gpu, mcpu, stays) in enumerate(steps):
        amounts = {key: n for key, n in zip(KEYS, (gpu, mcpu), strict=True) if n}
        state: dict[str, Any] = {
            "takeable": preemptible and stays,
            "leaving": not stays,
            "yields": not stays,
        }
        held.append(Holding(f"h{number}", f"p{who}", amounts, preemptible, index, **state))
    one, many = ledger_of(shares, parents), ledger_of(shares, parents)
    for each in held:
        one.hold(each)
    for each in held[:before]:
        many.hold(each)
    many.hold_many(held[before:])
    for name in ("_rights", "takeable", "used", "used_leaving", "live", "banded", "parts"):
        assert getattr(many, name) == getattr(one, name), name
    assert sums_of(many) == sums_of(one)
    for each in held[::2]:
        one.let_go(each.id)
        many.let_go(each.id)
    assert (many._rights, sums_of(many)) == (one._rights, sums_of(one))


@given(st.lists(STEP, max_size=20))
def test_whoever_is_in_share_sums_to_at_most_the_share(
    steps: list[tuple[int, bool, int, int, int, bool]],
) -> None:
    ledger = ledger_of([{"gpu": 6, "mcpu": 3}], [None])
    for number, (_, preemptible, index, gpu, mcpu, _) in enumerate(steps):
        amounts = {"gpu": gpu, "mcpu": mcpu}
        ledger.hold(Holding(f"h{number}", "p0", amounts, preemptible, index))
    inside = [each for each in ledger.holdings.values() if ledger.rights(each.id) == IN_SHARE]
    assert sum(each.amounts["gpu"] for each in inside) <= 6
    assert sum(each.amounts["mcpu"] for each in inside) <= 3


def test_where_no_key_counts_everything_is_in_share() -> None:
    ledger = ledger_of([{}], [None])
    ledger.hold(Holding("h", "p0", {"gpu": 100}, True, 1))
    assert ledger.rights("h") == IN_SHARE
