"""Whatever is wrong in a snapshot is refused with the path to it, and with nothing else."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cede.sim.plan import run
from cede.snapshot.reader import SnapshotError

HUGE = 10**5000  # more digits than Python prints

GOOD: dict[str, Any] = {
    "now": 10,
    "nodes": [
        {"name": name, "amounts": {"gpu": 2, "licence": 1}, "devices": {"gpu": ["0", "1"]}}
        for name in ("n1", "n2")
    ],
    "pools": [
        {"name": "gpus", "capacity": {"gpu": 8}, "settings": {"grace": 5}},
        {"name": "nodes", "nodes": {}},
    ],
    "policies": [
        {"pool": "gpus", "component": "red", "priority": 1, "reserved": {"gpu": 4}},
        {"pool": "nodes", "component": "red"},
    ],
    "running": [
        {
            "id": "r1",
            "pool": "gpus",
            "component": "red",
            "resources": {"gpu": 2},
            "allocated_at": 1,
            "state": "running",
        },
        {
            "id": "n",
            "pool": "nodes",
            "component": "red",
            "resources": {"gpu": 2},
            "nodes": ["n1"],
            "work": True,
        },
    ],
    "requests": [
        {
            "id": "w1",
            "component": "red",
            "resources": {"gpu": 8},
            "submitted_at": 5,
            "earmark": {"pool": "gpus"},
        },
        {
            "id": "w2",
            "component": "red",
            "resources": {"gpu": 1},
            "tasks": 2,
            "earmark": {"pool": "nodes", "nodes": [["n2", 2]]},
        },
    ],
}

REMOVED = object()
# path: (value put there, the path that must be named).
BAD: dict[str, tuple[str, Any, str]] = {
    "an unknown part": ("", ("nodez", []), "nodez"),
    "nodes as a map": ("", ("nodes", {"n1": {}}), "nodes"),
    "a node without a name": ("nodes.0", ("name", REMOVED), "nodes[0].name"),
    "a node twice": ("nodes", (2, {"name": "n1", "amounts": {"gpu": 1}}), "nodes[2].name"),
    "an id twice": (
        "nodes", (2, {"name": "n9", "id": "n1", "amounts": {"gpu": 1}}), "nodes[2].id"),
    "a node of nothing": ("nodes.0", ("amounts", {}), "nodes[0].amounts"),
    "an unknown field of a node": ("nodes.0", ("argv", ["sh"]), "nodes[0].argv"),
    "a device too few": ("nodes.0", ("devices", {"gpu": ["0"]}), "nodes[0].devices.gpu"),
    "a device twice": ("nodes.0", ("devices", {"gpu": ["0", "0"]}), "nodes[0].devices.gpu"),
    "labels in words": ("nodes.0", ("labels", "fast"), "nodes[0].labels"),
    "a group as a number": ("nodes.0", ("group", 1), "nodes[0].group"),
    "a group with an empty part": ("nodes.0", ("group", "spine-1/"), "nodes[0].group"),
    "an unknown state of a node": ("nodes.0", ("state", "asleep"), "nodes[0].state"),
    "a list as a node's state": ("nodes.0", ("state", []), "nodes[0].state"),
    "ready and disabled": ("nodes.0", ("out", "disable"), "nodes[0].out"),
    "a heartbeat of a day": ("nodes.0", ("heartbeat", 86400), "nodes[0].heartbeat"),
    "heard in words": ("nodes.0", ("heard_at", "now"), "nodes[0].heard_at"),
    "a pool of capacity and nodes": ("pools.1", ("capacity", {"gpu": 2}), "pools[1].capacity"),
    "a node in two pools": ("pools", (2, {"name": "all", "nodes": {}}), "pools[2]"),
    "a holder on no node": ("running.1", ("nodes", REMOVED), "running[1].nodes"),
    "a holder on another node": ("running.1", ("nodes", ["moon"]), "running[1].nodes[0]"),
    "a holder on nodes of a counted pool": ("running.0", ("nodes", ["n1"]), "running[0].nodes"),
    "more tasks than nodes named": ("running.1", ("tasks", 2), "running[1].nodes"),
    "no tasks": ("running.1", ("tasks", 0), "running[1].tasks"),
    "no tasks on a node": ("running.1", ("per_node", 0), "running[1].per_node"),
    "another topology": ("running.1", ("topology", "round"), "running[1].topology"),
    "node labels in words": ("running.1", ("node_labels", "fast"), "running[1].node_labels"),
    "more on a node than it has": ("running.1", ("resources", {"cpu": 9}), "running[1].resources"),
    "more devices than are left": ("running.1", ("resources", {"gpu": 3}), "running[1].nodes"),
    "more of one node than it has": (
        "running.1", ("resources", {"licence": 2}), "running[1].nodes"),
    "a member elsewhere": (
        "running.1", ("members", [{"node": "n9"}]), "running[1].members[0].node"),
    "a member as text": ("running.1", ("members", ["n1"]), "running[1].members[0]"),
    "a device that is not there": (
        "running.1", ("members", [{"node": "n1", "devices": {"gpu": ["0", "7"]}}]),
        "running[1].members[0].devices.gpu"),
    "too few devices": (
        "running.1", ("members", [{"node": "n1", "devices": {"gpu": ["0"]}}]),
        "running[1].members[0].devices.gpu"),
    "a device held twice": (
        "running.1", ("members", [{"node": "n1", "devices": {"gpu": ["0", "0"]}}]),
        "running[1].members[0].devices.gpu"),
    "an unknown phase": (
        "running.1", ("members", [{"node": "n1", "phase": "odd"}]), "running[1].members[0].phase"),
    "work with its command": ("running.1", ("work", {"argv": ["sh"]}), "running[1].work"),
    "another checkpoint": ("running.1", ("checkpoint", "magic"), "running[1].checkpoint"),
    "a time-out in words": (
        "running.1", ("checkpoint_timeout", "an hour"), "running[1].checkpoint_timeout"),
    "a parting as text": ("running.1", ("parting", "soon"), "running[1].parting"),
    "a parting without end": ("running.1", ("parting", {"until": "x"}), "running[1].parting.until"),
    "a reason in words": ("running.1", ("reason", "because"), "running[1].reason"),
    "an unknown reason": ("running.1", ("reason", {"code": "because"}), "running[1].reason"),
    "an unnamed checkpoint": ("running.1", ("saved", {"at": 1}), "running[1].saved.id"),
    "an earmark on no node": (
        "requests.1", ("earmark", {"pool": "nodes"}), "requests[1].earmark.nodes"),
    "an earmark on nodes of a counted pool": (
        "requests.0", ("earmark", {"pool": "gpus", "nodes": [["n1", 1]]}),
        "requests[0].earmark.nodes"),
    "half an earmark on nodes": (
        "requests.1", ("earmark", {"pool": "nodes", "nodes": [["n2", 1]]}),
        "requests[1].earmark.nodes"),
    "an earmark on nodes by name": (
        "requests.1", ("earmark", {"pool": "nodes", "nodes": ["n2", "n2"]}),
        "requests[1].earmark.nodes[0]"),
    "an earmark on another node": (
        "requests.1", ("earmark", {"pool": "nodes", "nodes": [["n9", 2]]}),
        "requests[1].earmark.nodes[0]"),
    "withheld on another node": (
        "requests.1", ("withhold", {"pool": "nodes", "nodes": [["n9", 2]]}),
        "requests[1].withhold.nodes[0]"),
    "suspended perhaps": ("requests.1", ("suspended", "yes"), "requests[1].suspended"),
    "now in words": ("", ("now", "10"), "now"),
    "a negative now": ("", ("now", -1), "now"),
    "a huge now": ("", ("now", HUGE), "now"),
    "pools as a map": ("", ("pools", {"gpus": 8}), "pools"),
    "pools as text": ("", ("pools", "gpus"), "pools"),
    "pools as a number": ("", ("pools", 0), "pools"),
    "a pool as text": ("pools", (0, "gpus"), "pools[0]"),
    "an unknown field of a pool": ("pools.0", ("size", 8), "pools[0].size"),
    "a pool without a name": ("pools.0", ("name", REMOVED), "pools[0].name"),
    "a pool named by a number": ("pools.0", ("name", 7), "pools[0].name"),
    "a pool without capacity": ("pools.0", ("capacity", REMOVED), "pools[0].capacity"),
    "an empty capacity": ("pools.0", ("capacity", {}), "pools[0].capacity"),
    "a zero capacity": ("pools.0", ("capacity", {"gpu": 0}), "pools[0].capacity.gpu"),
    "a negative capacity": ("pools.0", ("capacity", {"gpu": -8}), "pools[0].capacity.gpu"),
    "half a capacity": ("pools.0", ("capacity", {"gpu": 7.5}), "pools[0].capacity.gpu"),
    "a huge capacity": ("pools.0", ("capacity", {"gpu": HUGE}), "pools[0].capacity.gpu"),
    "a bad key": ("pools.0", ("capacity", {"g p u": 1}), "pools[0].capacity"),
    "an unknown preset": ("pools.0", ("preset", "magic"), "pools[0].preset"),
    "a list as preset": ("pools.0", ("preset", []), "pools[0].preset"),
    "an unknown setting": ("pools.0", ("settings", {"x": 1}), "pools[0].settings.x"),
    "a bad setting": ("pools.0", ("settings", {"grace": "5x"}), "pools[0].settings.grace"),
    "settings as a list": ("pools.0", ("settings", [1]), "pools[0].settings"),
    "shrunk in words": ("pools.0", ("shrunk", "no"), "pools[0].shrunk"),
    "a pool twice": ("pools", (2, {"name": "gpus", "capacity": {"gpu": 1}}), "pools[2]"),
    "a policy as a list": ("policies", (0, []), "policies[0]"),
    "a policy in no pool": ("policies.0", ("pool", REMOVED), "policies[0].pool"),
    "a policy in another pool": ("policies.0", ("pool", "moon"), "policies[0].pool"),
    "a policy in a list of pools": ("policies.0", ("pool", ["gpus"]), "policies[0].pool"),
    "a policy of nobody": ("policies.0", ("component", REMOVED), "policies[0].component"),
    "an unknown type": ("policies.0", ("component_type", "robot"), "policies[0].component_type"),
    "a list as type": ("policies.0", ("component_type", []), "policies[0].component_type"),
    "a negative priority": ("policies.0", ("priority", -1), "policies[0].priority"),
    "a priority in words": ("policies.0", ("priority", "high"), "policies[0].priority"),
    "a huge priority": ("policies.0", ("priority", 10**7), "policies[0].priority"),
    "a negative reserve": ("policies.0", ("reserved", {"gpu": -1}), "policies[0].reserved.gpu"),
    "too much reserved": ("policies.0", ("reserved", {"gpu": 9}), "policies[0].reserved.gpu"),
    "a reserve of another key": (
        "policies.0", ("reserved", {"tpu": 1}), "policies[0].reserved.tpu"),
    "a limit below the reserve": ("policies.0", ("limit", {"gpu": 3}), "policies[0].reserved.gpu"),
    "a limit above the capacity": ("policies.0", ("limit", {"gpu": 9}), "policies[0].limit.gpu"),
    "a policy twice": ("policies", (2, {"pool": "gpus", "component": "red"}), "policies[2]"),
    "an unknown field of a holder": ("running.0", ("gpu", 2), "running[0].gpu"),
    "a holder in no pool": ("running.0", ("pool", REMOVED), "running[0].pool"),
    "a holder in another pool": ("running.0", ("pool", "moon"), "running[0].pool"),
    "a holder without a policy": ("running.0", ("component", "blue"), "running[0].component"),
    "a holder without an id": ("running.0", ("id", REMOVED), "running[0].id"),
    "a holder of nothing": ("running.0", ("resources", {}), "running[0].resources"),
    "resources and settings": ("running.0", ("settings", {}), "running[0].resources"),
    "neither resources nor settings": (
        "running.0", ("resources", REMOVED), "running[0].resources"),
    "a negative amount": ("running.0", ("resources", {"gpu": -2}), "running[0].resources.gpu"),
    "more held than there is": ("running.0", ("resources", {"gpu": 9}), "running[0].resources"),
    "preemptible perhaps": ("running.0", ("preemptible", "yes"), "running[0].preemptible"),
    "an unknown state": ("running.0", ("state", "asleep"), "running[0].state"),
    "a list as state": ("running.0", ("state", []), "running[0].state"),
    "allocated in words": ("running.0", ("allocated_at", "1"), "running[0].allocated_at"),
    "allocated before time began": ("running.0", ("allocated_at", -1), "running[0].allocated_at"),
    "started in words": ("running.0", ("started_at", "1"), "running[0].started_at"),
    "a negative deadline": ("running.0", ("deadline", -5), "running[0].deadline"),
    "a negative index": ("running.0", ("index", -1), "running[0].index"),
    "a negative attempt": ("running.0", ("attempt", -1), "running[0].attempt"),
    "half an attempt": ("running.0", ("attempt", 1.5), "running[0].attempt"),
    "for nobody": ("running.0", ("for", "nobody"), "running[0].for"),
    "told in words": ("running.0", ("told", "no"), "running[0].told"),
    "cancelled in words": ("running.0", ("cancelled", "no"), "running[0].cancelled"),
    "a walltime in words": ("running.0", ("walltime", "an hour"), "running[0].walltime"),
    "a walltime of centuries": ("running.0", ("walltime", 10**12), "running[0].walltime"),
    "a negative lease": ("running.0", ("lease", -1), "running[0].lease"),
    "another silence": ("running.0", ("on_silence", "shout"), "running[0].on_silence"),
    "a list as silence": ("running.0", ("on_silence", []), "running[0].on_silence"),
    "negative retries": ("running.0", ("retries", -1), "running[0].retries"),
    "a holder twice": ("running", (2, {"id": "r1", "pool": "gpus", "component": "red",
                                       "resources": {"gpu": 1}}), "running[2].id"),
    "a holder that waits": ("requests.0", ("id", "r1"), "requests[0].id"),
    "a waiter as a number": ("requests", (0, 5), "requests[0]"),
    "an unknown field of a waiter": ("requests.0", ("state", "x"), "requests[0].state"),
    "a waiter of nobody": ("requests.0", ("component", REMOVED), "requests[0].component"),
    "a waiter without a policy": ("requests.0", ("component", "blue"), "requests[0].component"),
    "a waiter that names another pool": ("requests.0", ("pool", "moon"), "requests[0].pool"),
    "submitted in words": ("requests.0", ("submitted_at", "now"), "requests[0].submitted_at"),
    "a negative count": ("requests.0", ("bypassed", -1), "requests[0].bypassed"),
    "an earmark as text": ("requests.0", ("earmark", "gpus"), "requests[0].earmark"),
    "an earmark in another pool": (
        "requests.0", ("earmark", {"pool": "moon"}), "requests[0].earmark.pool"),
    "half an earmark": ("requests.0", ("earmark", {"pool": "gpus", "amounts": {"gpu": 1}}),
                        "requests[0].earmark.amounts"),
    "unknown step settings": ("requests.0", ("settings", {"gpus": 1}), "requests[0].settings.gpus"),
}  # fmt: skip


def broken(where: str, change: tuple[Any, Any]) -> dict[str, Any]:
    data = copy.deepcopy(GOOD)
    place: Any = data
    for step in filter(None, where.split(".")):
        place = place[int(step) if step.isdigit() else step]
    name, value = change
    if name == "settings" and where == "requests.0":
        del place["resources"]
    if value is REMOVED:
        del place[name]
    elif isinstance(place, list) and name == len(place):
        place.append(value)
    else:
        place[name] = value
    return data


def test_the_snapshot_these_are_made_of_is_good() -> None:
    assert run(GOOD)["passes"]


@pytest.mark.parametrize(("where", "change", "path"), BAD.values(), ids=BAD)
def test_the_path_is_named(where: str, change: tuple[Any, Any], path: str) -> None:
    with pytest.raises(SnapshotError) as caught:
        run(broken(where, change))
    assert caught.value.path == path, caught.value
    assert len(str(caught.value)) < 500
