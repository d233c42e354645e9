"""A node: one machine, its resources, and whether it takes work."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cede.model import bounds
from cede.model.amounts import Amounts, parse_amounts
from cede.model.errors import Invalid, quoted


class NodeState(StrEnum):
    """Only a ready node takes new work; work on the others goes on as far as it can."""

    READY = "ready"
    DEGRADED = "degraded"
    DOWN = "down"
    DRAINING = "draining"
    DRAINED = "drained"


class Out(StrEnum):
    """The operator's order for a node; it outlasts the node's own absences."""

    NO = "no"
    DRAIN = "drain"
    DISABLE = "disable"


_S = NodeState

NODE_MOVES: dict[NodeState, frozenset[NodeState]] = {
    _S.READY: frozenset({_S.DEGRADED, _S.DOWN, _S.DRAINING, _S.DRAINED}),
    _S.DEGRADED: frozenset({_S.READY, _S.DOWN, _S.DRAINING, _S.DRAINED}),
    _S.DOWN: frozenset({_S.READY, _S.DRAINING, _S.DRAINED}),
    _S.DRAINING: frozenset({_S.DRAINED, _S.READY, _S.DOWN}),
    _S.DRAINED: frozenset({_S.READY, _S.DRAINING, _S.DOWN}),
}

# In heartbeat periods: after the first a silent node is degraded, after the second the work that it
# was told to stop is no longer waited for. It is down when its lease is certainly over.
SILENT_AFTER = 3
GIVEN_UP_AFTER = 9


@dataclass(frozen=True, slots=True)
class Node:
    """A key with devices has exactly as many of them as its amount. `heartbeat` is its period.
    `lease` is how long its work survives without the server; until `promised` an earlier, longer
    lease still holds.
    """

    id: str
    name: str
    amounts: Amounts
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    group: str = ""  # a path: groups that share more of its beginning are nearer
    fingerprint: str = ""
    pool_id: str | None = None
    state: NodeState = NodeState.READY
    out: Out = Out.NO
    reason: str = ""  # why it is not ready, for people
    heartbeat: int = bounds.HEARTBEAT_DEFAULT
    boot: str = ""
    failures: int = 0  # attempts in a row that it could not start
    created: str = ""
    claimed_by: str = ""  # the claimant for whose sensitive work it is kept
    edited: int = 0  # the place in the journal of the last change of its amounts
    lease: int = bounds.NODE_LEASE_DEFAULT
    promised: int = 0
    folder: str = ""  # the identity of its checkpoint folder, the same on nodes that share it
    protocol: int = 1  # the protocol version of its agent
    beside_server: bool = False  # it shares its machine with the only server
    # The identity of its agent's process, and that of the agent's machine and data folder.
    session: str = ""
    machine: str = ""
    # The database was restored, and the agent has not yet reported that no unknown work runs.
    quarantined: bool = False
    # The bridge that speaks for it, the amounts that outside jobs hold of it in that bridge's
    # cluster, and a text on these jobs.
    bridge: str = ""
    others: Amounts = field(default_factory=dict)
    others_why: str = ""

    @property
    def usable(self) -> bool:
        return self.state is NodeState.READY and not self.quarantined

    @property
    def scarce(self) -> frozenset[str]:
        """The keys that are devices, whether or not the node knows the devices by name."""
        counted = self.amounts.keys() - PLENTY if self.bridge else ()
        return frozenset((*self.devices, *counted))

    @property
    def looks_first(self) -> bool:
        """Whether its agent verifies checkpoints before it starts an attempt."""
        return self.protocol >= LOOKS_FIRST


# Keys of a bridged node that are not counted in devices.
PLENTY = frozenset({"mcpu", "memory_mb"})
# The first protocol whose agents verify checkpoints before the start.
LOOKS_FIRST = 2

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-/]{0,62}")
_DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:\-]{0,127}")


def parse_labels(value: object, field: str) -> dict[str, str]:
    """Labels of a node, a selector of a pool, or labels that a request needs."""
    if not isinstance(value, Mapping):
        raise Invalid(field, "must be a map from label to text, such as {gpu_type: a100}")
    if len(value) > bounds.LABELS_MAX:
        raise Invalid(field, f"has {len(value)} labels; at most {bounds.LABELS_MAX}")
    for name, text in value.items():
        if not isinstance(name, str) or not _LABEL.fullmatch(name):
            raise Invalid(field, f"{str(name)[:80]!r} is not a label: letters, digits or _ . - /")
        if not isinstance(text, str) or len(text) > bounds.LABEL_LENGTH_MAX:
            most = bounds.LABEL_LENGTH_MAX
            raise Invalid(f"{field}.{name}", f"must be text of at most {most} characters")
        if not text.isprintable():
            raise Invalid(f"{field}.{name}", "must be printable")
    return dict(value)


def parse_devices(value: object, amounts: Amounts, field: str) -> dict[str, tuple[str, ...]]:
    """Names of devices by key: as many as the amount, all different."""
    if not isinstance(value, Mapping):
        raise Invalid(field, 'must be a map from key to device names, such as {gpu: ["0", "1"]}')
    found: dict[str, tuple[str, ...]] = {}
    for key, names in value.items():
        at = f"{field}.{key}"
        if key not in amounts:
            raise Invalid(at, "names devices of a key that the node has no amount of")
        if not isinstance(names, list | tuple) or not all(
            isinstance(each, str) and _DEVICE.fullmatch(each) for each in names
        ):
            raise Invalid(at, "must be a list of device names: letters, digits or _ . : -")
        if len(set(names)) != len(names):
            raise Invalid(at, "names a device twice")
        if len(names) != amounts[key]:
            raise Invalid(at, f"names {len(names)} devices; the node's amount is {amounts[key]}")
        if len(names) > bounds.DEVICES_MAX:
            raise Invalid(at, f"names {len(names)} devices; at most {bounds.DEVICES_MAX}")
        found[key] = tuple(names)
    return found


def parse_group(value: object, field: str = "group") -> str:
    """A topology group: a path such as spine-1/rack-3, or empty."""
    if not isinstance(value, str) or len(value) > bounds.NAME_LENGTH_MAX:
        raise Invalid(field, f"must be text of at most {bounds.NAME_LENGTH_MAX} characters")
    if not value.isprintable():
        raise Invalid(field, "must be printable")
    parts = value.split("/")
    if value and not all(part and part == part.strip() for part in parts):
        problem = "has a part that is empty, or begins or ends with a space"
        raise Invalid(field, f"{quoted(value)} {problem}; write it like spine-1/rack-3")
    if len(parts) > bounds.GROUP_DEPTH_MAX:
        raise Invalid(field, f"has {len(parts)} parts; at most {bounds.GROUP_DEPTH_MAX}")
    return value


def parse_node_amounts(value: object, field: str = "amounts") -> dict[str, int]:
    return parse_amounts(value, field, least=1, empty=False)


def matches(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether every wanted label is there with its value."""
    return all(labels.get(name) == text for name, text in wanted.items())
