"""Arrays and dependencies over HTTP, on both databases where it matters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cede.engine.decide import decide
from cede.engine.lifecycle import commands
from cede.server.api import submitting
from cede.server.api.dependencies import Ended
from cede.snapshot.reader import load
from tests.api.conftest import Server, made, running

API = "/api/v1"


def ready(server: Server) -> Server:
    server.pool("gpus", 8)
    server.policy("red", reserved={"gpu": 4}, priority=10)
    server.policy("blue", reserved={"gpu": 4}, priority=10)
    return server


def post(server: Server, who: str, path: str, **body: Any) -> dict[str, Any]:
    return made(server[who].post(API + path, json=body))


def get(server: Server, who: str, path: str) -> dict[str, Any]:
    return made(server[who].get(API + path))


def test_one_id_for_all_tasks_and_one_for_each(any_server: Server) -> None:
    server = ready(any_server)
    array = server.submit("red", 1, array="3,5-7 %2", labels={"name": "sweep"})
    assert (array["array"], array["array_task"], array["part_of"]) == ("3,5-7%2", 3, array["id"])
    assert len(array["parts"]) == 4
    for ref in (f"{array['id']}_6", f"{array['id'][24:32]}_6", "last_6", "sweep_6"):
        assert get(server, "red", f"/requests/{ref}")["id"] == array["parts"][2], ref
    for ref in (f"{array['id']}_4", f"{array['id']}_x", f"{array['parts'][1]}_9", "_3"):
        assert server["red"].get(f"{API}/requests/{ref}").status_code == 404, ref
    assert get(server, "red", "/requests/last_7/why")["reason"]["code"] == "array_bound"
    alone = post(server, "red", f"/requests/{array['id']}_3/cancel")
    assert (alone["id"], alone["status"]) == (array["id"], "preempting")
    listed = get(server, "red", f"/requests?part_of={array['id']}")["items"]
    assert [each["status"] for each in listed] == ["queued", "queued", "allocated", "preempting"]
    post(server, "red", f"/requests/{array['id']}/cancel")
    listed = get(server, "red", f"/requests?part_of={array['id']}")["items"]
    assert {each["status"] for each in listed} == {"cancelled", "preempting"}


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"array": "5-3"}, "array"),
        ({"array": "a"}, "array"),
        ({"array": "0-3%0"}, "array"),
        ({"array": "0-3:0"}, "array"),
        ({"array": "0-600"}, "array"),
        ({"array": "100000000"}, "array"),
        ({"array": "0-3", "tasks": 2}, "array"),
        ({"array": "0-3", "gang": False}, "array"),
        ({"array": 3}, "array"),
        ({"after": "x"}, "after"),
        ({"after": ["x"] * 101}, "after"),
        ({"after": [""]}, "after"),
    ],
)
def test_what_is_no_array_and_no_list_of_ids_is_refused(
    server: Server, given: dict[str, Any], field: str
) -> None:
    ready(server)
    body = {"component": "red", "component_type": "team", "resources": {"gpu": 1}, **given}
    refused = server["red"].post(f"{API}/requests", json=body)
    assert refused.status_code == 422 and field in str(refused.json()), refused.text
    assert get(server, "admin", "/requests")["items"] == []


def test_unknown_and_foreign_dependencies_are_not_found_in_the_same_words(server: Server) -> None:
    ready(server)
    foreign = server.submit("blue", 1)["id"]
    unknown = foreign[:-4] + "0000"
    body = {"component": "red", "component_type": "team", "resources": {"gpu": 1}}
    said = []
    for ref in (foreign, unknown):
        for field in ("after", "after_any"):
            refused = server["red"].post(f"{API}/requests", json={**body, field: [ref]})
            assert refused.status_code == 404
            said.append(refused.json()["detail"].replace(ref, "ID"))
    assert len(set(said)) == 1
    assert get(server, "red", "/requests")["items"] == []
    bulk = post(server, "red", "/requests/bulk", requests=[{**body, "after": [foreign]}, body])
    assert [each["status"] for each in bulk["items"]] == [404, 201]


def test_whenever_a_dependency_failed_its_dependants_end(any_server: Server) -> None:
    server = ready(any_server)
    first = server.submit("red", 1)
    before = server.submit("red", 1, after=[first["id"][24:32]])
    assert (before["status"], before["after"]) == ("queued", [first["id"]])
    assert (
        get(server, "red", f"/requests/{before['id']}/why")["reason"]["dependency"] == first["id"]
    )
    post(server, "red", f"/requests/{first['id']}/release", outcome="failed", exit_code=4)
    late = server.submit("red", 1, after=[first["id"]])
    for each in (get(server, "red", f"/requests/{before['id']}"), late):
        assert each["status"] == "cancelled"
        reason = each["reason"]
        assert (reason["code"], reason["dependency"]) == ("dependency_failed", first["id"])
        assert "exit code 4" in reason["text"]
    anyhow = server.submit("red", 1, after_any=[first["id"], before["id"]])
    assert anyhow["status"] == "allocated"
    done = server.submit("red", 1)
    post(server, "red", f"/requests/{done['id']}/release")
    assert server.submit("red", 1, after=[done["id"]])["status"] == "allocated"


def test_a_dependency_that_ends_while_it_is_looked_up(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the database and the transaction it fails, and is looked up again."""
    ready(server)
    first = server.submit("red", 1)["id"]
    real, looks = submitting.look_up, []

    async def slow(call: Any, submission: commands.Submission) -> Any:
        found = await real(call, submission)
        looks.append(found)
        if len(looks) == 1:
            await call.context.execute(
                lambda tx: commands.release(tx.state, first, tx.now, outcome="failed")
            )
        return found

    monkeypatch.setattr(submitting, "look_up", slow)
    late = server.submit("red", 1, after=[first])
    assert (late["status"], late["reason"]["code"]) == ("cancelled", "dependency_failed")
    assert len(looks) == 2
    assert issubclass(Ended, Exception)


def test_they_survive_a_restart_and_are_in_the_snapshot(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/cede.db"
    with running(url) as server:
        ready(server)
        first = server.submit("red", 1, array="0-2%1", lease="none")
        behind = server.submit("red", 1, after=[first["id"]], lease="none")
        entry = next(
            each
            for each in get(server, "admin", "/snapshot")["requests"]
            if each["id"] == behind["id"]
        )
        assert entry["after"] == [first["id"]]
        planned = load(get(server, "admin", "/snapshot"))
        assert decide(planned, planned.now).decisions == []
    with running(url) as server:
        for number in range(3):
            waits = get(server, "admin", f"/requests/{behind['id']}")
            assert (waits["status"], waits["reason"]["code"]) == ("queued", "dependency")
            post(server, "admin", f"/requests/{first['id']}_{number}/release")
        assert get(server, "admin", f"/requests/{behind['id']}")["status"] == "allocated"
