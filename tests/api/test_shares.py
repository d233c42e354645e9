"""`GET /pools/{pool}/shares`: true, complete, and without the names of others."""

from __future__ import annotations

from typing import Any

import pytest

from cede.server.api.share_schemas import EXAMPLE, SharesOut
from tests.api.conftest import Server, made

API = "/api/v1"


def contested(server: Server, **pool: Any) -> dict[str, dict[str, Any]]:
    """Red holds all of a department's pool, blue waits for its part."""
    server.pool("gpus", 8, settings={"fair_share_update_period": 0}, **pool)
    server.policy("lab", reserved={"gpu": 4}, name="lab-policy")
    server.policy("red", parent="lab-policy", name="red-policy")
    server.policy("blue", name="blue-policy", weight=3)
    held = server.submit("red", 2, tasks=4, gang=False)
    return {"red": held, "blue": server.submit("blue", 8)}


def shares(server: Server, who: str = "viewer", pool: str = "gpus") -> dict[str, Any]:
    return made(server[who].get(f"{API}/pools/{pool}/shares"))


def test_a_fair_pool_is_shown_whole(server: Server) -> None:
    of = contested(server, preset="fair_share")
    found = shares(server)
    SharesOut.model_validate(found)
    assert (found["pools"][0]["name"], found["pools"][0]["in_force"]) == ("gpus", True)
    rows = {each["name"]: each for each in found["elements"]}
    first, waiter = of["red"]["id"], of["blue"]["id"]
    assert list(rows) == ["blue-policy", waiter, "lab-policy", "red-policy", first]
    assert rows[first]["usage"] == {"gpu": 8} and rows[first]["parent"] == "red-policy"
    # The lab's guarantee of 4, and of the other 4 one part of four.
    assert rows["lab-policy"]["fair_share"]["gpu"] == pytest.approx(5 / 8)
    assert rows["blue-policy"]["fair_share"]["gpu"] == pytest.approx(3 / 8)
    assert rows["blue-policy"]["status"] == "below_fair_share"
    parts = [f"{each}.1" for each in of["red"]["parts"]]
    grouped = [each for ids in rows[first]["groups"].values() for each in ids]
    assert grouped == parts and rows["lab-policy"]["groups"] == rows[first]["groups"]
    assert len(rows[first]["groups"]["preemptible"]) == 1


def test_policies_can_be_shown_without_their_requests(server: Server) -> None:
    contested(server, preset="fair_share")
    whole, only = shares(server), made(server["viewer"].get(f"{API}/pools/gpus/shares?requests=0"))
    SharesOut.model_validate(only)
    policies = [each for each in whole["elements"] if each["kind"] == "policy"]
    assert [(each["name"], each["usage"]) for each in only["elements"]] == [
        (each["name"], each["usage"]) for each in policies
    ]
    assert not any(ids for each in only["elements"] for ids in each["groups"].values())


def test_a_quota_pool_is_shown_as_it_would_be_and_stays_as_it_is(server: Server) -> None:
    contested(server)
    before = server["admin"].get(f"{API}/snapshot").json()
    found = shares(server)
    assert (found["pools"][0]["share"], found["pools"][0]["in_force"]) == ("reserved", False)
    SharesOut.model_validate(found)
    after = server["admin"].get(f"{API}/snapshot").json()
    assert {**before, "now": 0} == {**after, "now": 0}


def test_a_pool_is_found_as_others_are(server: Server) -> None:
    pool = server.pool("gpus", 8, preset="fair_share")
    assert shares(server, pool=pool["id"])["elements"] == []
    response = server["viewer"].get(f"{API}/pools/nope/shares")
    assert response.status_code == 404 and "nope" in response.json()["detail"]


@pytest.mark.parametrize("preset", ["fair_share", "quota"])
def test_a_tenant_reads_its_own(server: Server, preset: str) -> None:
    of = contested(server, preset=preset)
    response = server["red"].get(f"{API}/pools/gpus/shares")
    found = made(response)
    SharesOut.model_validate(found)
    assert [each["name"] for each in found["elements"]] == ["red-policy", of["red"]["id"]]
    assert found["elements"][0]["parent"] == "another team"
    assert all(each["groups"]["non_preemptible"] for each in found["elements"])
    for secret in ("blue", "lab", of["blue"]["id"]):
        assert secret not in response.text


def test_why_names_the_stage_and_nobody_else(server: Server) -> None:
    of = contested(server, preset="fair_share")
    response = server["blue"].get(f"{API}/requests/{of['blue']['id']}/why")
    found = made(response)
    assert (found["reason"]["code"], found["reason"]["below"]) == ("patience", "blue-policy")
    pool = found["pools"][0]
    assert (pool["fairness"]["stage"], pool["fairness"]["due"]) == ("regular", {"gpu": 3})
    assert [each["policy"] for each in pool["holders"]] == ["another team"] * 4
    assert pool["holders"][0]["group"] == "preemptible"
    for secret in ("red-policy", "lab-policy", of["red"]["id"]):
        assert secret not in response.text


def test_the_example_fits_its_schema() -> None:
    SharesOut.model_validate(EXAMPLE)
