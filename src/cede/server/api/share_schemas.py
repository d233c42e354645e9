"""Models of a pool's shares, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from cede.server.api.json_type import Json
from cede.server.api.schemas import Amounts, Out, Seconds

Fractions = dict[str, float]


class GroupsOut(Out):
    """Ids of allocations by what others may take, and when."""

    non_preemptible: list[str]
    aggressively_preemptible: list[str]
    preemptible: list[str]


class ShareOut(Out):
    """A policy or a request with its shares, which are parts of the whole pool, by key."""

    pool: str
    id: str
    name: str
    kind: str = Field(description="policy or request")
    component: str
    component_type: str
    depth: int
    parent: str | None = Field(description="The name of the policy above.")
    weight: float
    mode: str | None
    guarantee: Amounts
    limit: Amounts
    usage: Amounts
    demand: Amounts
    fair_share: Fractions
    strong_share: Fractions = Field(description="The part of its share that its guarantee gives.")
    integral_share: Fractions = Field(
        description="The part of its share that its saved volume adds."
    )
    weighed_share: Fractions = Field(description="The part of its share that comes by weight.")
    volume: Fractions = Field(description="What it has saved up, in amount times seconds.")
    usage_share: Fractions
    demand_share: Fractions
    dominant: str
    satisfaction: float = Field(description="1e9 where nothing is due.")
    status: str = Field(description="normal or below_fair_share")
    starvation: str = Field(description="non_starving, starving or aggressively_starving")
    below_since: Seconds | None
    starving_since: Seconds | None
    groups: GroupsOut
    settings: dict[str, Any] = Field(description="What it starves and yields by.")


class SharedPoolOut(Out):
    name: str
    share: str = Field(description="What decides in it: reserved or fair_share.")
    capacity: Amounts
    in_force: bool = Field(description="Whether it decides by these shares.")


class SharesOut(Out):
    now: Seconds
    pools: list[SharedPoolOut]
    elements: list[ShareOut]


EXAMPLE: Json = {
    "now": 300.2,
    "pools": [
        {"name": "training-gpus", "share": "fair_share", "capacity": {"gpu": 8}, "in_force": True}
    ],
    "elements": [
        {
            "pool": "training-gpus",
            "id": "0198c1d2-7b90-7e02-a4c3-10d2f9ab7c55",
            "name": "red",
            "kind": "policy",
            "component": "red",
            "component_type": "team",
            "depth": 0,
            "parent": None,
            "weight": 1.0,
            "mode": "fair_share",
            "guarantee": {"gpu": 2},
            "limit": {},
            "usage": {"gpu": 2},
            "demand": {"gpu": 6},
            "fair_share": {"gpu": 0.5},
            "strong_share": {"gpu": 0.25},
            "integral_share": {"gpu": 0.0},
            "weighed_share": {"gpu": 0.25},
            "volume": {},
            "usage_share": {"gpu": 0.25},
            "demand_share": {"gpu": 0.75},
            "dominant": "gpu",
            "satisfaction": 0.5,
            "status": "below_fair_share",
            "starvation": "starving",
            "below_since": 240,
            "starving_since": 270,
            "groups": {
                "non_preemptible": ["0198c1d2-8b44-7a51-8c21-6f0d9b3c2a17.1"],
                "aggressively_preemptible": [],
                "preemptible": [],
            },
            "settings": {"fair_share_starvation_timeout": 30},
        }
    ],
}
