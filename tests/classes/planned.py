"""The cases of another system as snapshots for `plan`.

Every node of a case is a node of the pool and has one unit; every holder sits on its nodes. One who
is not running is on its way out already, for somebody of the highest class, so it is no candidate
and frees nothing. Whether a tenant bursts is told by a target that it has more of, or cannot.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from cede.engine.rights.price import USUAL, price_of
from cede.sim.plan import run
from tests.classes.cases import Case, Holder

NOW = 1_000_000  # seconds
# As the system that the cases are of decides: no bounds, no shields, nothing free counts.
LITERAL = {
    "burst_discount": True,
    "near_completion_threshold": 0,
    "protect_unsaved": False,
    "value_bound": False,
    "per_victim_cost": 0,
    "count_free": False,
    "wait_first": False,
}


@dataclass(frozen=True)
class Outcome:
    """Whom the plan stops; None if nobody is, and then why."""

    victims: list[int] | None
    why: str
    why_not: dict[int, str]


def plan(
    case: Case,
    settings: dict[str, Any],
    waiter: dict[str, Any] | None = None,
    *,
    promised: bool = True,
) -> Outcome:
    """What one pass does for the waiter of a case. 0 victims is, here, as many as it takes.
    `promised`: whether those who leave do so for somebody.
    """
    told = {"max_victims": case.max_victims, **settings}
    given = snapshot(case, told, waiter or {})
    if not promised:
        given["requests"] = given["requests"][:1]
        given["running"] = [_saving(each) for each in given["running"]]
    shown = run(given)
    for decision in shown["passes"][0]["decisions"]:
        if decision["do"] == "preempt" and decision["beneficiary"] == "w":
            victims = [int(each.removeprefix("h")) for each in decision["victims"]]
            return Outcome(victims, "", {})
    (waits,) = [each for each in shown["passes"][0]["decisions"] if each.get("request") == "w"]
    if waits["do"] == "grant":
        return Outcome([], "", {})
    weighed = {int(each["id"][1:]): each["why_not"] for each in waits.get("candidates", ())}
    return Outcome(None, waits["reason"]["code"], weighed)


def snapshot(case: Case, settings: dict[str, Any], waiter: dict[str, Any]) -> dict[str, Any]:
    names = dict.fromkeys(node for holder in case.holders for node in holder.nodes)
    leaving = [each for each in case.holders if not each.running]
    policy = {"pool": "p", "component_type": "team", "max_class": 10, "allow_sensitive": True}
    return {
        "now": NOW,
        "nodes": [
            {"name": name, "amounts": {"unit": 1}, "labels": {"in": "p"}} for name in names or ["n"]
        ],
        "pools": [{"name": "p", "preset": "classes", "nodes": {"in": "p"}, "settings": settings}],
        "policies": [{**policy, "component": "all"}],
        "tenants": [_tenant(case, name) for name in sorted({each.tenant for each in case.holders})],
        "running": [_running(each) for each in case.holders],
        "requests": [
            {**_whose("w", case.preemption_class), "nodes": max(case.nodes, 1), **waiter},
            *(_promised(each) for each in leaving),
        ],
    }


def _whose(name: str, rank: int) -> dict[str, Any]:
    return {
        "id": name,
        "component": "all",
        "component_type": "team",
        "pool": "p",
        "resources": {"unit": 1},
        "class": rank,
    }


def _running(holder: Holder) -> dict[str, Any]:
    made = {
        **_whose(f"h{holder.id}", holder.preemption_class),
        "nodes": list(holder.nodes),
        "tasks": len(holder.nodes),
        "checkpoint": holder.checkpoint,
        "sensitive": holder.sensitive,
        "tenant": holder.tenant,
    }
    if holder.age is not None:
        made["started_at"] = NOW - max(holder.age, 0)
    if holder.walltime is not None:
        made["walltime"] = holder.walltime
    if not holder.running:
        made |= {"state": "preempting", "for": f"o{holder.id}", "deadline": NOW + 30}
    return made


def _saving(holder: dict[str, Any]) -> dict[str, Any]:
    if "deadline" not in holder:
        return holder
    left = {name: each for name, each in holder.items() if name not in ("for", "deadline")}
    return {**left, "state": "checkpointing"}


def _promised(holder: Holder) -> dict[str, Any]:
    place = [[node, 1] for node in holder.nodes]
    mark = {"pool": "p", "amounts": {"unit": len(place)}, "nodes": place}
    return {**_whose(f"o{holder.id}", 10), "tasks": len(place), "earmark": mark}


def _tenant(case: Case, name: str) -> dict[str, Any]:
    (bursts, *_) = [each.bursting for each in case.holders if each.tenant == name]
    return {"name": name, "fair_share_target": 0.001 if bursts else 1.0, "burst_allowance": 0.5}


def prices(case: Case, *, burst: bool) -> dict[int, float]:
    """What each holder costs by our formula."""
    settings = replace(USUAL, burst_discount=burst)
    return {each.id: price_of(each.stopping(), settings).total for each in case.holders}
