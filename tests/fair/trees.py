"""Random small trees for properties."""

from __future__ import annotations

from hypothesis import strategies as st

from cede.engine.fair.tree import Element, Kind, Mode, Tree

TOTALS = {"gpu": 97.0, "mcpu": 211.0}
WEIGHTS = (1.0, 1.0, 2.0, 3.0, 7.0)

amounts = st.fixed_dictionaries(
    {"gpu": st.integers(0, 120).map(float), "mcpu": st.integers(0, 250).map(float)}
)


@st.composite
def requests(draw: st.DrawFn, parent: str, name: str, gangs: bool = False) -> Element:
    demand = draw(amounts)
    running = draw(st.sampled_from((0.0, 0.3, 1.0)))
    return Element(
        name,
        parent=parent,
        weight=draw(st.sampled_from(WEIGHTS)),
        demand=demand,
        usage={key: amount * running for key, amount in demand.items()},
        limit=draw(st.just({}) | st.just({"gpu": 41.0})),
        gang=gangs and draw(st.booleans()),
        submitted=draw(st.integers(0, 99)),
    )


@st.composite
def policies(draw: st.DrawFn, parent: str, name: str, least: float = 20) -> Element:
    return Element(
        name,
        Kind.POLICY,
        parent=parent,
        weight=draw(st.sampled_from(WEIGHTS)),
        mode=Mode.FIFO if parent and draw(st.booleans()) else Mode.FAIR_SHARE,
        guarantee=draw(st.just({}) | st.just({"gpu": least}) | st.just({"gpu": 7.0, "mcpu": 31.0})),
        limit=draw(st.just({}) | st.just({"gpu": 53.0}) | st.just({"mcpu": 101.0})),
    )


@st.composite
def trees(draw: st.DrawFn, deep: bool = True, gangs: bool = False, most: int = 3) -> Tree:
    """Policies under the root, some with policies of their own; requests everywhere below."""
    elements: list[Element] = []
    for one in range(draw(st.integers(1, 3))):
        top = draw(policies("", f"p{one}", 30.0))
        elements.append(top)
        inner = [top.id]
        if deep and draw(st.booleans()) and top.mode is Mode.FAIR_SHARE:
            below = draw(policies(top.id, f"p{one}q", 20.0))
            elements.append(below)
            inner.append(below.id)
        for parent in inner:
            for number in range(draw(st.integers(0, most))):
                elements.append(draw(requests(parent, f"{parent}r{number}", gangs)))
    if draw(st.booleans()):
        elements.append(draw(requests("", "loose", gangs)))
    return Tree(TOTALS, tuple(elements))
