"""Guarantees over time: what fills a volume, where it spills over, and what it gives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cede.engine.fair.shares import Solver, compute
from cede.engine.fair.tree import Element, Integral, IntegralType, Kind, Options, Tree, Volume

TOTALS = {"cpu": 100.0, "memory": 1000.0}
OPTIONS = Options(main="cpu", seconds=10)
UNIT = {"cpu": 10.0, "memory": 100.0}  # 1% for ten seconds
FULL = dict.fromkeys(TOTALS, 1000000000.0)


def relaxed(name: str, percent: float, parent: str = "above", accepts: bool = True) -> Element:
    integral = Integral(IntegralType.RELAXED, flow={"cpu": percent}, accepts_free_volume=accepts)
    return Element(name, Kind.POLICY, parent=parent, integral=integral)


ABOVE = Element("above", Kind.POLICY, integral=Integral(spreads_free_volume=True))


def filled(*policies: Element, **saved: dict[str, float]) -> dict[str, dict[str, float]]:
    volumes = {name: Volume(amounts) for name, amounts in saved.items()}
    shares = compute(Tree(TOTALS, policies, volumes), OPTIONS)
    return {name: dict(volume.saved) for name, volume in shares.volumes.items()}


def units(count: float) -> dict[str, float]:
    return {key: pytest.approx(amount * count) for key, amount in UNIT.items()}


def test_what_spills_over_goes_to_a_sibling() -> None:
    got = filled(ABOVE, relaxed("poor", 1), relaxed("rich", 10), rich=FULL)
    assert got == {"poor": units(11), "rich": FULL}


def test_who_does_not_accept_has_only_the_own_flow() -> None:
    got = filled(ABOVE, relaxed("poor", 1, accepts=False), relaxed("rich", 10), rich=FULL)
    assert got["poor"] == units(1)


def test_nothing_is_spread_where_nobody_says_so() -> None:
    silent = replace(ABOVE, integral=Integral())
    assert filled(silent, relaxed("poor", 1), relaxed("rich", 10), rich=FULL)["poor"] == units(1)


def test_nobody_takes_in_more_than_fits() -> None:
    capacity = {key: total * 0.01 * OPTIONS.saturation for key, total in TOTALS.items()}
    nearly = {key: amount - 3 * UNIT[key] for key, amount in capacity.items()}
    got = filled(
        ABOVE,
        relaxed("empty", 1),
        relaxed("nearly", 1),
        relaxed("rich", 10),
        nearly=nearly,
        rich=FULL,
    )
    assert got["nearly"] == pytest.approx(capacity)
    assert got["empty"] == units(9)


def test_what_spills_goes_up_and_down_the_tree() -> None:
    here, there = (Element(name, Kind.POLICY, parent="above") for name in ("here", "there"))
    got = filled(
        ABOVE,
        here,
        relaxed("rich", 10, "here"),
        replace(there, integral=Integral(spreads_free_volume=True)),
        relaxed("poor", 1, "there"),
        rich=FULL,
    )
    assert got["poor"] == units(11)


def test_capacity_does_not_cut_what_was_saved() -> None:
    assert filled(relaxed("rich", 10, ""), rich=FULL) == {"rich": FULL}


def test_what_was_given_is_used_up() -> None:
    policy = relaxed("team", 10, "")
    request = Element("work", parent="team", demand={"cpu": 30, "memory": 300})
    tree = Tree(TOTALS, (policy, request), {"team": Volume({"cpu": 6000, "memory": 60000})})
    first = compute(tree, replace(OPTIONS, seconds=None))
    assert first.volumes["team"].saved == {"cpu": 6000, "memory": 60000}
    assert first.volumes["team"].last_share == pytest.approx(0.3)
    second = compute(replace(tree, volumes=first.volumes), OPTIONS)
    # 10% came in and 30% went out, for ten seconds.
    assert second.volumes["team"].saved == pytest.approx({"cpu": 5800, "memory": 58000})


@pytest.mark.parametrize("kind", [IntegralType.BURST, IntegralType.RELAXED])
def test_an_update_shares_volumes_anew(kind: IntegralType) -> None:
    integral = Integral(kind, flow={"cpu": 20}, burst={"cpu": 40})
    policies = (
        Element("team", Kind.POLICY, integral=integral),
        Element("inner", Kind.POLICY, parent="team", integral=integral),
        Element("others", Kind.POLICY, weight=9),
    )
    requests = (
        Element("mine", parent="inner", demand={"cpu": 10}),
        Element("theirs", parent="others", demand={"cpu": 100}),
    )
    volumes = {each: Volume({"cpu": 3000}) for each in ("team", "inner")}
    options = Options(main="cpu")
    solver = Solver(Tree({"cpu": 100}, (*policies, *requests), volumes), options)
    for wanted in (50, 20, 90):
        more = replace(requests[0], demand={"cpu": wanted})
        solver.put(more)
        solver.settle()
        tree = Tree({"cpu": 100}, (*policies, more, requests[1]), volumes)
        whole = compute(tree, options)
        for name in ("team", "inner", "others", "mine", "theirs", ""):
            assert solver.share(name).total == pytest.approx(whole[name].total)
            assert solver.share(name).integral == pytest.approx(whole[name].integral)
        assert dict(solver.volumes) == whole.volumes


def test_a_relaxed_policy_takes_at_most_its_flow_times_the_multiplier() -> None:
    team = relaxed("team", 10, "")
    work = Element("work", parent="team", demand={"cpu": 100, "memory": 1000})
    others = Element("others", demand={"cpu": 100, "memory": 1000}, weight=9)
    shares = compute(Tree(TOTALS, (team, work, others), {"team": Volume(FULL)}), OPTIONS)
    assert shares["team"].integral == pytest.approx((0.3, 0.3))
    assert shares["team"].total == pytest.approx((0.37, 0.37))
