"""A shell completes what the server knows, and a typo gets a suggestion."""

from __future__ import annotations

import pytest

from cede import Client
from cede.model.ids import short_id
from tests.cli.terminal import typed
from tests.client.serving import Serving, two_teams

pytestmark = pytest.mark.system


def test_ids_names_teams_and_tokens_are_completed(server: Serving, client: Client) -> None:
    two_teams(client)
    body = {"component": "red", "component_type": "team", "resources": {"gpu": 1}, "kind": "work"}
    made = client.requests.create({**body, "labels": {"name": "training-7"}})
    short = short_id(made["id"])
    assert server.completes(f"cede why {short[:3]}") == f"plain,{short}\n"
    assert server.completes("cede logs traini") == "plain,training-7\n"
    assert server.completes(f"cede cancel {short[:3]}") == f"plain,{short}\n"
    assert "plain,red\n" in server.completes("cede policy update gpus re")
    token = short_id(client.tokens.create("ci", "viewer")["id"])
    assert f"plain,{token}\n" in server.completes(f"cede token revoke {token[:4]}")


def test_a_typo_gets_a_suggestion(server: Serving, client: Client) -> None:
    client.pools.create("training", {"gpu": 1})
    for arguments, near in (
        (("statsu",), "did you mean status?"),
        (("pool", "lsit"), "Did you mean 'list'?"),
        (("pool", "list", "--colums", "id"), "Did you mean '--columns'?"),
        (("pool", "describe", "trainin"), "no pool 'trainin'; did you mean training?"),
        (("pool", "update", "trainig", "-d", "x"), "no pool 'trainig'; did you mean training?"),
    ):
        shown = typed(*arguments, env=server.environment())
        assert shown.code != 0
        assert near in shown.line
