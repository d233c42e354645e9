"""Nodes are claimed for sensitive work: by whom, at whose cost, and once."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.api.conftest import PATIENCE, Server, made
from tests.api.machines import API, Machine, events_of, request_of, run

CLAIM, UNCLAIM = f"{API}/nodes/claim", f"{API}/nodes/unclaim"


@pytest.fixture
def lab(server: Server) -> Server:
    """A pool of nodes in which red may run sensitive work and blue may not."""
    body = {"name": "farm", "nodes": {"zone": "a"}, "preset": "classes"}
    made(server["admin"].post(f"{API}/pools", json=body))
    server.policy("red", "farm", allow_sensitive=True)
    server.policy("blue", "farm")
    return server


def claim(server: Server, who: str, *nodes: str, **more: Any) -> dict[str, Any]:
    return made(server[who].post(CLAIM, json={"nodes": list(nodes), **more}))


def refused(server: Server, who: str, path: str, **body: Any) -> tuple[int, str, str]:
    """The status, the code and the sentence."""
    answer = server[who].post(path, json=body)
    problem = answer.json()
    return answer.status_code, problem["type"].rpartition(":")[2], problem["detail"]


def test_others_save_their_work_and_the_claimant_starts(lab: Server) -> None:
    alpha = Machine(lab)
    theirs = run(lab, "blue", 2, checkpoint="auto")
    (order,) = alpha.beat()["orders"]
    alpha.tell(order, "started")
    answer = claim(lab, "operator", "alpha", **{"for": "red"})
    assert (answer["for"], answer["stopping"]) == ("red", 1)
    assert answer["nodes"][0]["claimed_by"] == "red"
    mine = run(lab, "red", 2, sensitive=True)
    (order,) = alpha.beat()["orders"]
    assert order["do"] == "hint"
    why = made(lab["blue"].get(f"{API}/requests/{theirs['id']}/why"))
    assert why["reason"]["code"] == "sensitive_claim"
    assert "another team claimed node alpha" in why["reason"]["text"]
    alpha.tell(order, "saved", checkpoint="c1", size=7)
    alpha.tell(order, "ended", exit_code=143, cause="stopped")
    assert request_of(lab, theirs["id"])["status"] == "suspended"
    assert request_of(lab, mine["id"])["status"] == "allocated"
    counted = lab["admin"].get("/metrics").text
    wanted = 'cede_preemptions_total{policy="blue",pool="farm",reason="sensitive"} 1.0'
    assert wanted in counted


def test_a_claim_and_its_end_are_told_and_audited(lab: Server) -> None:
    Machine(lab, "alpha"), Machine(lab, "beta")
    assert claim(lab, "operator", "alpha", "beta")["for"] == "operator"
    listed = made(lab["viewer"].get(f"{API}/nodes"))["items"]
    assert [each["claimed_by"] for each in listed] == ["operator", "operator"]
    answer = made(lab["operator"].post(UNCLAIM, json={"nodes": ["alpha", "beta"]}))
    assert [each["claimed_by"] for each in answer["nodes"]] == [None, None]
    told = [each for each in events_of(lab) if each["kind"].endswith("claimed")]
    assert [(each["kind"], each["data"]["node"]) for each in told] == [
        ("node_claimed", "alpha"),
        ("node_claimed", "beta"),
        ("node_unclaimed", "alpha"),
        ("node_unclaimed", "beta"),
    ]
    audit = made(lab["admin"].get(f"{API}/audit"))["items"]
    noted = [each for each in audit if each["action"] == "node.claim"]
    assert {each["detail"]["name"] for each in noted} == {"alpha", "beta"}
    assert all(each["detail"]["for"] == "operator" for each in noted)
    assert sum(each["action"] == "node.unclaim" for each in audit) == 2


def test_a_user_claims_for_itself_where_its_policy_allows(lab: Server) -> None:
    Machine(lab)
    assert refused(lab, "blue", CLAIM, nodes=["alpha"])[:2] == (422, "refused")
    status, code, said = refused(lab, "red", CLAIM, nodes=["alpha"], **{"for": "blue"})
    assert (status, code) == (403, "forbidden") and "red" in said
    assert claim(lab, "red", "alpha")["for"] == "red"
    assert claim(lab, "red", "alpha", **{"for": "red"})["stopping"] == 0, "again is the same"
    assert refused(lab, "blue", UNCLAIM, nodes=["alpha"])[:2] == (409, "node_claimed")
    made(lab["red"].post(UNCLAIM, json={"nodes": ["alpha"]}))
    assert refused(lab, "red", UNCLAIM, nodes=["alpha"])[:2] == (409, "not_claimed")


def test_a_refusal_names_the_holder_to_whom_it_may(lab: Server) -> None:
    Machine(lab)
    lab["admin"].patch(f"{API}/policies/{_policy_of(lab, 'blue')}", json={"allow_sensitive": True})
    held = run(lab, "blue", 2, sensitive=True)
    for who, named in (("operator", True), ("red", False)):
        status, code, said = refused(lab, who, CLAIM, nodes=["alpha"])
        assert (status, code) == (409, "node_held") and "alpha" in said
        assert (held["id"] in said) is named, said
    assert made(lab["viewer"].get(f"{API}/nodes/alpha"))["claimed_by"] is None
    assert refused(lab, "operator", CLAIM, nodes=["alpha", "gone"])[:2] == (404, "not_found")


def _policy_of(server: Server, team: str) -> str:
    found = made(server["admin"].get(f"{API}/policies?component={team}"))["items"]
    return str(found[0]["id"])


def test_of_two_claims_at_once_the_first_commit_wins(lab: Server) -> None:
    """Two callers, two nodes in opposite order, many times: one has both, the other has none."""
    Machine(lab, "alpha"), Machine(lab, "beta")
    for _ in range(10):
        ready = threading.Barrier(2, timeout=PATIENCE)
        answers: dict[str, int] = {}

        def go(user: str, *nodes: str) -> None:
            client = lab["operator" if user == "ann" else "admin"]
            ready.wait()  # noqa: B023
            answer = client.post(CLAIM, json={"nodes": nodes, "for": user})
            answers[user] = answer.status_code  # noqa: B023

        threads = [
            threading.Thread(target=go, args=("ann", "alpha", "beta")),
            threading.Thread(target=go, args=("eve", "beta", "alpha")),
        ]
        lab["operator"], lab["admin"]  # made here, not in the threads
        for each in threads:
            each.start()
        for each in threads:
            each.join(PATIENCE)
        assert sorted(answers.values()) == [200, 409]
        winner = min(answers, key=lambda user: answers[user])
        shown = made(lab["viewer"].get(f"{API}/nodes"))["items"]
        assert [each["claimed_by"] for each in shown] == [winner, winner]
        made(lab["operator"].post(UNCLAIM, json={"nodes": ["alpha", "beta"]}))


def test_who_waits_is_told_that_a_claimed_node_would_suit(lab: Server) -> None:
    Machine(lab)
    claim(lab, "operator", "alpha", **{"for": "ann"})
    waits = run(lab, "blue", 2)
    why = made(lab["blue"].get(f"{API}/requests/{waits['id']}/why"))
    assert why["reason"]["code"] == "nodes_claimed"
    assert "alpha (for another team)" in why["reason"]["text"]
    assert "ann" not in lab["blue"].get(f"{API}/requests/{waits['id']}").text
    told = made(lab["viewer"].get(f"{API}/requests/{waits['id']}/why"))
    assert "alpha (for ann)" in told["reason"]["text"]
    said = "it starts if node alpha is unclaimed by"
    for story, whom in ((why, "another team"), (told, "ann")):
        change = {"change": "unclaim", "node": "alpha", "claimed_by": whom, "then": "starts"}
        assert change | {"text": f"{said} {whom}"} in story["pools"][0]["changes"]
    made(lab["operator"].post(UNCLAIM, json={"nodes": ["alpha"]}))
    assert request_of(lab, waits["id"])["status"] == "allocated"


def named(server: Server, key: str, name: str, team: str) -> None:
    """A submitter's token of a team; `key` is what the test calls it."""
    body = {"name": name, "role": "submitter", "subjects": [f"team:{team}"]}
    server.secrets[key] = made(server["admin"].post(f"{API}/tokens", json=body))["token"]


@pytest.fixture
def two_named_ci(lab: Server) -> Server:
    """Both teams may run sensitive work, and each has a token with the name ci."""
    policy = lab["admin"].get(f"{API}/policies?component=blue").json()["items"][0]["id"]
    made(lab["admin"].patch(f"{API}/policies/{policy}", json={"allow_sensitive": True}))
    named(lab, "red ci", "ci", "red")
    named(lab, "blue ci", "ci", "blue")
    Machine(lab)
    return lab


def test_a_claim_is_not_of_another_tenant_with_the_same_name(two_named_ci: Server) -> None:
    lab = two_named_ci
    shown = claim(lab, "blue ci", "alpha")
    assert (shown["for"], shown["nodes"][0]["claimed_by"]) == ("ci", "ci")
    status, code, said = refused(lab, "red ci", UNCLAIM, nodes=["alpha"])
    assert (status, code) == (409, "node_claimed")
    assert "another team" in said and "blue" not in said and "ci" not in said
    status, code, said = refused(lab, "red ci", CLAIM, nodes=["alpha"])
    assert (status, code) == (409, "node_claimed") and "another team" in said
    assert run(lab, "red ci", 1, sensitive=True)["status"] == "queued"
    assert run(lab, "blue ci", 1, sensitive=True)["status"] == "allocated"


def test_who_claimed_a_node_is_shown_to_its_tenant_and_to_nobody_elses(
    two_named_ci: Server,
) -> None:
    lab = two_named_ci
    claim(lab, "blue ci", "alpha")

    def shown_to(who: str) -> str:
        return str(made(lab[who].get(f"{API}/nodes/alpha"))["claimed_by"])

    assert [shown_to(who) for who in ("blue ci", "blue", "viewer", "admin")] == ["ci"] * 4
    assert [shown_to(who) for who in ("red ci", "red", "red-viewer")] == ["another team"] * 3
    listed = made(lab["red ci"].get(f"{API}/nodes"))["items"]
    assert listed[0]["claimed_by"] == "another team"


def test_a_renewed_token_keeps_its_claims(two_named_ci: Server) -> None:
    lab = two_named_ci
    claim(lab, "blue ci", "alpha")
    named(lab, "blue ci anew", "ci", "blue")
    assert made(lab["blue ci anew"].post(UNCLAIM, json={"nodes": ["alpha"]}))["for"] is None


def test_an_operator_says_which_of_two_with_one_name(two_named_ci: Server) -> None:
    lab = two_named_ci
    status, code, said = refused(lab, "operator", CLAIM, nodes=["alpha"], **{"for": "ci"})
    assert (status, code) == (409, "ambiguous")
    assert "team:blue/ci, team:red/ci" in said
    claim(lab, "operator", "alpha", **{"for": "team:red/ci"})
    assert run(lab, "red ci", 1, sensitive=True)["status"] == "allocated"
    assert run(lab, "blue ci", 1, sensitive=True)["status"] == "queued"
