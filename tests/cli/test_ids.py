"""Ids that people can type, at a terminal of 80 columns."""

from __future__ import annotations

import pytest

from cede import Client
from cede.model.ids import short_id
from tests.cli.terminal import Shown, typed
from tests.client.serving import Serving, two_teams

pytestmark = pytest.mark.system

RED = {"component": "red", "component_type": "team", "kind": "work"}


def test_short_ids_are_shown_and_typed_everywhere(server: Serving, client: Client) -> None:
    def cede(*arguments: str) -> Shown:
        return typed(*arguments, env=server.environment())

    two_teams(client)
    holder = client.requests.create({**RED, "resources": {"gpu": 2}, "labels": {"name": "train"}})
    waiter = client.requests.create({**RED, "resources": {"gpu": 1}, "labels": {"name": "eval"}})
    long, short = holder["id"], short_id(holder["id"])
    for told in (cede("request", "list"), cede("why", short_id(waiter["id"]))):
        assert told.code == 0
        assert short in told.text
        assert long not in told.text
    described = cede("request", "describe", short)
    assert described.lines[0].split() == ["id", short, f"({long})"]
    # Names for reading, and `last` for what was submitted last.
    assert cede("why", "eval").lines == cede("why", "last").lines == cede("why", "-").lines
    assert cede("request", "describe", "train").lines[0].split()[1] == short
    refused = cede("cancel", "train")
    assert (refused.code, refused.line) == (3, "error: no request 'train'")
    client.requests.create({**RED, "resources": {"gpu": 1}, "labels": {"name": "eval"}})
    several = cede("why", "eval")
    assert several.code == 5
    assert "'eval' is the name of several requests: " in several.text
    assert short_id(waiter["id"]) in several.text
    assert cede("cancel", short).line == f"request {short} is being stopped"
    assert cede("cancel", "last").code == 0
    # One of the two is left, so its name means one again.
    assert cede("why", "eval").code == 0


def test_tokens_policies_and_pools_have_short_ids_too(server: Serving, client: Client) -> None:
    two_teams(client)
    made = client.tokens.create("ci", "viewer")
    short = short_id(made["id"])
    assert short in typed("token", "list", env=server.environment()).text
    assert typed("token", "revoke", short, env=server.environment()).code == 0
    assert next(each for each in client.tokens.list() if each["id"] == made["id"])["revoked"]
    pool = client.pools.get("gpus")
    assert client.pools.get(short_id(pool["id"])) == pool
    client.pools.update(short_id(pool["id"]), description="short")
    policy = next(iter(client.policies.list()))
    assert client.policies.get(short_id(policy["id"])) == policy
