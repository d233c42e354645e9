"""The order in which the policies of a snapshot can be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cede.snapshot.fields import SnapshotError

Listed = tuple[str, Any]


def parents_first(listed: list[Listed]) -> list[Listed]:
    """Policies, each after its parent. A parent that is missing is left to the reader of the
    entry.
    """
    known = {name: at for at, (_, each) in enumerate(listed) for name in _called(each)}
    done: dict[int, None] = {}
    for start in range(len(listed)):
        way: dict[int, None] = {}
        at: int | None = start
        while at is not None and at not in done:
            if at in way:
                raise _below_itself(listed, list(way)[list(way).index(at) :])
            way[at] = None
            above = _above(listed[at][1])
            at = None if above is None else known.get(above)
        done.update(dict.fromkeys(reversed(way)))
    return [listed[at] for at in done]


def _below_itself(listed: list[Listed], round_: list[int]) -> SnapshotError:
    names = [next(_called(listed[at][1]))[1] for at in round_]
    said = (
        f"policy {' stands below '.join([*names, names[0]])}: let one of them have another parent"
    )
    return SnapshotError(f"{listed[round_[0]][0]}.parent", said)


def _called(policy: Any) -> Iterator[tuple[str, str]]:
    """The names by which policies below may refer to a policy: its name and its subject."""
    if not isinstance(policy, Mapping):
        return
    pool, component = str(policy.get("pool")), policy.get("component", policy.get("name"))
    yield pool, str(policy.get("name", component))
    yield pool, f"{policy.get('component_type', 'orchestrator')}:{component}"


def _above(policy: Any) -> tuple[str, str] | None:
    if not isinstance(policy, Mapping) or policy.get("parent") is None:
        return None
    return str(policy.get("pool")), str(policy["parent"])
