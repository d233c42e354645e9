"""Claims as they are typed."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from cede import Client
from tests.api.machines import body
from tests.client.serving import Serving

pytestmark = pytest.mark.system


@pytest.fixture
def node(server: Serving, client: Client) -> Iterator[str]:
    """A machine that has joined."""
    join = client.tokens.create("join", "join")["token"]
    with Client(server.url, join) as machine:
        machine.http.call("POST", "/api/v1/agent/register", body=body("alpha"))
    yield "alpha"
    client.nodes.delete("alpha")


def test_a_node_is_claimed_shown_and_given_back(server: Serving, node: str) -> None:
    done = server.cede("node", "claim", node, "--for", "ann")
    assert done.stdout == f"node {node} is claimed by ann\n"
    assert "ann" in server.cede("node", "list").stdout
    assert "claimed by" in server.cede("node", "describe", node).stdout
    again = server.cede("node", "claim", node, "--for", "eve")
    assert again.returncode == 5 and "is claimed by ann already" in again.stderr
    told = json.loads(server.cede("node", "unclaim", node, "--json").stdout)
    assert told["nodes"][0]["claimed_by"] is None


def test_names_are_completed(server: Serving, node: str) -> None:
    assert node in server.completes(f"cede node claim {node[:2]}")
