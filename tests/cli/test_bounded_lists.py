"""A list shows the newest, and says that there are more."""

from __future__ import annotations

import pytest

from cede import Client
from tests.client.serving import Serving

pytestmark = pytest.mark.system

LIST = ("request", "list", "--component", "red", "--columns", "id", "-o", "csv")


def test_a_list_shows_the_newest_and_says_that_there_are_more(
    server: Serving, client: Client
) -> None:
    client.pools.create("gpus", {"gpu": 8})
    client.policies.attach("gpus", "red", priority=1)
    made = [
        client.requests.create({"component": "red", "resources": {"gpu": 1}})["id"]
        for _ in range(3)
    ]
    shown = server.cede(
        "request", "list", "--component", "red", "--columns", "id", "-o", "csv", "--limit", "2"
    )
    assert shown.stdout.split()[1:] == made[:0:-1]
    assert "the newest 2; there are more: --limit N, --all" in shown.stderr
    for all_of_them in ("--all", "--limit=3"):
        done = server.cede(
            "request", "list", "--component", "red", "--columns", "id", "-o", "csv", all_of_them
        )
        assert done.stdout.split()[1:] == made[::-1]
        assert done.stderr == ""
