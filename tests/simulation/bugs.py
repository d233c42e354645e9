"""Planted bugs: each takes one promise away, and some seed must find it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from unittest import mock

from cede.agent.values import Taken
from cede.engine.admin import fleet
from cede.engine.lifecycle import orders
from cede.engine.state import due
from cede.model.node import Node
from cede.server.api import agent
from cede.server.leadership import Leadership
from cede.store import term
from cede.store.anchor import Anchor
from cede.store.digests import Digests
from cede.store.store import Store
from tests.simulation.nodes import Agent

Bug = Callable[[], AbstractContextManager[object]]


def _together(*patches: Any) -> AbstractContextManager[object]:
    stack = ExitStack()
    for each in patches:
        stack.enter_context(each)
    return stack


def a_lost_term_is_not_noticed() -> AbstractContextManager[object]:
    return _together(
        mock.patch.object(Leadership, "require", lambda self: None),
        mock.patch.object(Leadership, "seconds_left", None),
    )


def a_second_agent_is_taken() -> AbstractContextManager[object]:
    return _together(
        mock.patch.object(agent, "_check_session", lambda node, body: None),
        mock.patch.object(fleet, "_refuse_second_agent", lambda *given: None),
    )


def an_older_database_is_taken() -> AbstractContextManager[object]:
    return mock.patch.object(Anchor, "check", lambda self, found: None)


def a_standby_anchors_nothing() -> AbstractContextManager[object]:
    return mock.patch.object(Store, "_follow", lambda self, connection: None)


def damage_is_not_looked_for() -> AbstractContextManager[object]:
    return mock.patch.object(Digests, "differing", lambda *given: iter(()))


def a_key_is_not_remembered() -> AbstractContextManager[object]:
    return mock.patch.object(Store, "recall", lambda self, keys: {})


def a_successor_does_not_wait() -> AbstractContextManager[object]:
    return mock.patch.object(term, "former_term", lambda: 0)


def an_order_is_not_written_down() -> AbstractContextManager[object]:
    write = Agent._write

    def forgetful(self: Agent, entry: Any) -> Any:
        found = write(self, entry)
        if isinstance(entry, Taken) and self.node.entries and self.node.entries[-1] is entry:
            self.node.entries.pop()
        return found

    return mock.patch.object(Agent, "_write", forgetful)


def a_resume_point_is_forgotten() -> AbstractContextManager[object]:
    return mock.patch.object(orders, "_resume", lambda state, allocation, member: "")


def a_node_is_given_up_before_its_lease_is_over() -> AbstractContextManager[object]:
    def soon(node: Node, heard: int) -> int:
        return heard + node.lease // 2

    return _together(
        mock.patch.object(due, "gone_at", soon), mock.patch.object(fleet, "gone_at", soon)
    )


def units_are_free_before_their_lease_is_over() -> AbstractContextManager[object]:
    def soon(lease_until: int, lease: int | None) -> int:
        return lease_until - (lease or 0) // 2

    return mock.patch.object(due, "lease_over", soon)


BUGS: list[Bug] = [
    a_lost_term_is_not_noticed,
    a_second_agent_is_taken,
    an_older_database_is_taken,
    a_standby_anchors_nothing,
    damage_is_not_looked_for,
    a_key_is_not_remembered,
    a_successor_does_not_wait,
    an_order_is_not_written_down,
    a_resume_point_is_forgotten,
    a_node_is_given_up_before_its_lease_is_over,
    units_are_free_before_their_lease_is_over,
]
# A seed that finds each: `python -m tests.simulation --bugs` looks for the first one.
FOUND_BY = {
    "a_lost_term_is_not_noticed": 47,
    "a_second_agent_is_taken": 4,
    "an_older_database_is_taken": 3,
    "a_standby_anchors_nothing": 3,
    "a_key_is_not_remembered": 1,
    "a_successor_does_not_wait": 73,
    "an_order_is_not_written_down": 1,
    "a_resume_point_is_forgotten": 2,
    "a_node_is_given_up_before_its_lease_is_over": 1,
    "units_are_free_before_their_lease_is_over": 3,
}
