"""The share as it is kept equals the share by its definition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cede.engine.share import Fill, Holding

KEYS = ("gpu", "mcpu")
ADD = st.tuples(
    st.booleans(), st.integers(0, 30), st.integers(0, 4), st.integers(0, 4), st.booleans()
)


def definition(share: dict[str, int], holdings: list[Holding]) -> dict[str, int]:
    """Non-preemptible first, then oldest first; in share while the running sum stays within."""
    running = dict.fromkeys(KEYS, 0)
    rights = {}
    for holding in sorted(holdings, key=lambda each: (each.preemptible, each.index, each.id)):
        for key in KEYS:
            running[key] += holding.amounts.get(key, 0)
        rights[holding.id] = int(all(running[key] <= share.get(key, 0) for key in KEYS))
    return rights


@given(
    st.dictionaries(st.sampled_from(KEYS), st.integers(0, 10)),
    st.lists(ADD, max_size=40),
)
def test_the_cut_is_where_the_definition_puts_it(
    share: dict[str, int], steps: list[tuple[bool, int, int, int, bool]]
) -> None:
    rights: dict[str, int] = {}
    fill = Fill(share, KEYS, rights.__setitem__)
    held: list[Holding] = []
    for number, (preemptible, index, gpu, mcpu, remove) in enumerate(steps):
        if remove and held:
            gone = held.pop(index % len(held))
            fill.remove(gone)
            del rights[gone.id]
        else:
            amounts = {key: n for key, n in zip(KEYS, (gpu, mcpu), strict=True) if n}
            holding = Holding(f"h{number}", "p", amounts, preemptible, index)
            fill.add(holding)
            held.append(holding)
        assert rights == definition(share, held)


@given(st.lists(ADD, max_size=20))
def test_whoever_is_in_share_sums_to_at_most_the_share(
    steps: list[tuple[bool, int, int, int, bool]],
) -> None:
    rights: dict[str, int] = {}
    fill = Fill({"gpu": 6, "mcpu": 3}, KEYS, rights.__setitem__)
    held = [
        Holding(f"h{at}", "p", {"gpu": gpu, "mcpu": mcpu}, preemptible, index)
        for at, (preemptible, index, gpu, mcpu, _) in enumerate(steps)
    ]
    for holding in held:
        fill.add(holding)
    inside = [each for each in held if rights[each.id]]
    assert sum(each.amounts["gpu"] for each in inside) <= 6
    assert sum(each.amounts["mcpu"] for each in inside) <= 3


def test_where_no_key_counts_everything_is_in_share() -> None:
    rights: dict[str, int] = {}
    fill = Fill({}, (), rights.__setitem__)
    fill.add(Holding("h", "p", {"gpu": 100}, True, 1))
    assert rights == {"h": 1}
