"""The dependencies of a snapshot's requests: only on requests that it contains, and without
circles.

A server cannot make a circle, because a request names only older ones; people can write one.
"""

from __future__ import annotations

from collections.abc import Mapping

from cede.model.request import Request
from cede.snapshot.fields import SnapshotError


def check(requests: Mapping[str, Request], paths: Mapping[str, str]) -> None:
    """Refuse references to no request, and circles; `paths` has the place of each request."""
    called: dict[str, list[str]] = {}
    for each in requests.values():
        for ref in {each.id, each.part_of or each.id, each.ref}:
            called.setdefault(ref, []).append(each.id)
    follows = {}
    for each in requests.values():
        for field in ("after", "after_any"):
            for ref in getattr(each, field):
                if ref not in called:
                    raise SnapshotError(f"{paths[each.id]}.{field}", f"no request {ref!r:.80}")
        refs = (*each.after, *each.after_any)
        follows[each.id] = [one for ref in refs for one in called[ref]]
    _refuse_circles(follows, paths)


def _refuse_circles(follows: Mapping[str, list[str]], paths: Mapping[str, str]) -> None:
    """Remove requests that depend on none that is left, until there are none; the rest are
    circles.
    """
    waits = {each: set(first) for each, first in follows.items() if first}
    followers: dict[str, list[str]] = {}
    for each, first in waits.items():
        for one in first:
            followers.setdefault(one, []).append(each)
    free = [each for each in follows if each not in waits]
    while free:
        one = free.pop()
        for each in followers.get(one, ()):
            waits[each].discard(one)
            if not waits[each]:
                del waits[each]
                free.append(each)
    if waits:
        path = paths[min(waits)]
        raise SnapshotError(f"{path}.after", "these requests wait for each other")
