"""`cede cancel` tries every request that it is given and says of each what became of it."""

from __future__ import annotations

import pytest

from cede import Client
from cede.cli import exit_codes
from cede.model.ids import short_id
from tests.client.serving import Serving, two_teams

pytestmark = pytest.mark.system

HALF = {"component": "red", "component_type": "team", "resources": {"gpu": 1}, "kind": "work"}


@pytest.mark.parametrize("command", [("cancel",), ("request", "cancel")], ids=" ".join)
def test_one_that_has_ended_does_not_keep_the_others_running(
    server: Serving, client: Client, command: tuple[str, ...]
) -> None:
    two_teams(client)
    done, runs, other, waits = (client.requests.create(HALF)["id"] for _ in range(4))
    client.requests.release(done)
    ids = (done, runs, "nobody", waits)
    cancelled = server.cede(*command, *ids)
    assert cancelled.returncode == exit_codes.CONFLICT
    assert cancelled.stdout.splitlines() == [
        f"request {short_id(runs)} is being stopped",
        f"request {short_id(waits)} is cancelled",
    ]
    ended, unknown = cancelled.stderr.splitlines()
    assert f"request {short_id(done)} has already ended: released" in ended
    assert "no request 'nobody'" in unknown
    statuses = [client.requests.get(each)["status"] for each in (done, runs, other, waits)]
    assert statuses == ["released", "preempting", "allocated", "cancelled"]


def test_cancelling_again_is_no_error(server: Serving, client: Client) -> None:
    two_teams(client)
    runs, waits = (client.requests.create({**HALF, "resources": {"gpu": 2}}) for _ in range(2))
    for _ in range(2):
        again = server.cede("cancel", runs["id"], waits["id"])
        assert (again.returncode, again.stderr) == (exit_codes.OK, "")
        assert len(again.stdout.splitlines()) == 2


def test_the_exit_code_is_that_of_the_first_error(server: Serving, client: Client) -> None:
    two_teams(client)
    done = client.requests.create(HALF)["id"]
    client.requests.release(done)
    assert server.cede("cancel", "nobody", done).returncode == exit_codes.NOT_FOUND
    assert server.cede("cancel", done, "nobody").returncode == exit_codes.CONFLICT
