"""A small world: what it is made of, who will ask for what, and what may happen in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cede.engine.admin import edits, fleet
from cede.engine.state.state import State
from cede.model.shape import Shape
from cede.model.subject import Subject


@dataclass(frozen=True)
class Ask:
    """One request that will arrive."""

    id: str
    team: str
    amounts: dict[str, int]
    preemptible: bool
    walltime: int | None = None
    shape: Shape | None = None
    saves: bool = False  # it can be asked to save its work
    parts: int = 1  # independent tasks, each of these amounts
    limit: dict[str, int] = field(default_factory=dict)  # of all of them together
    settings: dict[str, Any] = field(default_factory=dict)  # of its own, as people write them
    terms: dict[str, Any] = field(default_factory=dict)  # its class, and whether it is sensitive
    owner: str = ""

    @property
    def ids(self) -> list[str]:
        """Of its tasks."""
        return [self.id] if self.parts == 1 else [f"{self.id}.{n}" for n in range(self.parts)]


@dataclass(frozen=True)
class World:
    seed: int
    pools: dict[str, dict[str, int]]
    policies: list[dict[str, Any]]
    asks: list[Ask]
    settings: dict[str, Any] = field(default_factory=dict)
    completes: bool = False  # holders may finish by themselves at any time
    cancels: bool = False  # waiters with an earmark may give up at any time
    tells: bool = False  # learning that one must stop is a step of its own
    loses: bool = False  # one leaving holder may fall silent for good
    nodes: dict[str, list[dict[str, int]]] = field(default_factory=dict)  # by pool
    preset: str = "quota"
    drains: bool = False  # a node may be taken out of service, and come back when it is empty
    claims: bool = False  # a node may be claimed for sensitive work, and given back
    ages: bool = False  # walltimes run out, and work that goes on becomes dearer

    def state(self) -> State:
        state = State()
        for name, capacity in self.pools.items():
            for number, amounts in enumerate(self.nodes.get(name, [])):
                node = f"{name}-{number}"
                devices = {"gpu": [str(each) for each in range(amounts["gpu"])]}
                labels = {"pool": name, "kind": "ab"[number % 2]}
                group = ("x/1", "y/1", "x/2")[number % 3]
                fleet.register(
                    state,
                    id=node,
                    name=node,
                    amounts=amounts,
                    devices=devices,
                    labels=labels,
                    group=group,
                    now=0,
                )
            made_of: dict[str, Any] = {"capacity": capacity}
            if self.nodes:
                made_of = {"nodes": {"pool": name}}
            edits.create_pool(
                state, id=name, name=name, preset=self.preset, settings=self.settings, **made_of
            )
        for policy in self.policies:
            fields = dict(policy)
            subject = Subject("team", fields.pop("team"))
            pool = fields.pop("pool")
            edits.attach_policy(
                state, id=f"{pool}/{subject.name}", pool_id=pool, subject=subject, **fields
            )
        state.drain()
        return state
