"""Requests of lists as JSON text, each kept until it changes: a page that is read again and again
has few that did.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from cede.model import bounds
from cede.server.api.views import Scene, request_out
from cede.store import RequestView

# A few pages of the longest; together at most some 10 MiB, for lists show long work in short.
KEPT_MAX = 2 * bounds.PAGE_MAX


class _Known(NamedTuple):
    view: RequestView
    nodes: tuple[str, ...]
    text: orjson.Fragment


@dataclass(slots=True)
class Encoded:
    """`of` makes the text of a view, or finds it. The store gives the same view of an equal row;
    what else is in the text are names of pools, which never change, and of nodes.
    """

    _known: dict[str, _Known] = field(default_factory=dict)

    def of(self, view: RequestView, scene: Scene) -> orjson.Fragment:
        request, allocation = view
        nodes: tuple[str, ...] = ()
        if allocation is not None:
            if allocation.stop_progress is not None or allocation.open_ask is not None:
                return _text(view, scene)  # which tells how long it still has
            nodes = tuple([scene.node(each.node_id) for each in allocation.members])
        known = self._known.get(request.id)
        if known is not None and known.view is view and known.nodes == nodes:
            return known.text
        if len(self._known) >= KEPT_MAX:
            self._known.clear()
        text = _text(view, scene)
        self._known[request.id] = _Known(view, nodes, text)
        return text


def _text(view: RequestView, scene: Scene) -> orjson.Fragment:
    return orjson.Fragment(orjson.dumps(request_out(*view, scene, whole=False)))
