"""Bridges for Prometheus: their nodes, what others hold there, and their silence.

Counted from the orders posted for their nodes, in memory: a scrape reads no row of any node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cede.model.bounds import SECOND
from cede.server.order_board import OrderBoard


class BridgeGauges(Collector):
    """Collected at each scrape, in a thread of its own: what it reads is replaced whole when it
    changes."""

    def __init__(self, board: OrderBoard, now: Callable[[], int]) -> None:
        self._board, self._now = board, now

    def describe(self) -> Iterator[Metric]:
        """Return nothing: registering must read nothing."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        nodes = _gauge("cede_bridge_nodes", "Nodes of a bridge by state.", "state")
        others = _gauge("cede_bridge_others", "Held outside of cede there.", "key")
        silent = _gauge("cede_bridge_silent_seconds", "Since a bridge was last heard of.")
        board, now = self._board, self._now()
        for name, bridged in list(board.bridges.items()):
            found = [board.posted[each].node for each in bridged.nodes if each in board.posted]
            if not found:
                continue
            for state, count in Counter(str(node.state) for node in found).items():
                nodes.add_metric([name, state], count)
            held: Counter[str] = Counter()
            for node in found:
                held.update(node.others)
            for key, amount in held.items():
                others.add_metric([name, key], amount)
            heard = max(board.heard_at(node.id) for node in found)
            silent.add_metric([name], max(0, now - heard) / SECOND)
        yield from (nodes, others, silent)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=["bridge", *labels])
