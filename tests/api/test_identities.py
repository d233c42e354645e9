"""What an earlier version kept under a token's name is its identity's after the upgrade."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cede.engine.audit import audit
from cede.model.subject import Subject
from cede.model.token import Role, Token
from cede.server.identities import adopt_identities, identity_of
from tests.api.conftest import PATIENCE, Server, made
from tests.api.machines import API, Machine, run

RED, BLUE = Subject("team", "red"), Subject("team", "blue")


def token(name: str, role: Role, *subjects: Subject, revoked: bool = False) -> Token:
    return Token("t", name, role, subjects, "hash", "", revoked=revoked)


IDENTITIES = {
    "nobody has it": ([], None),
    "one has it": ([token("ci", Role.SUBMITTER, RED)], "team:red/ci"),
    "one is bound to both": ([token("ci", Role.SUBMITTER, RED, BLUE)], "team:blue,team:red/ci"),
    "an operator has it": ([token("ci", Role.OPERATOR, RED)], "ci"),
    "it was renewed": (
        [token("ci", Role.SUBMITTER, RED, revoked=True), token("ci", Role.SUBMITTER, RED)],
        "team:red/ci",
    ),
    "another's is revoked": (
        [token("ci", Role.SUBMITTER, RED, revoked=True), token("ci", Role.SUBMITTER, BLUE)],
        "team:blue/ci",
    ),
    "two have it": ([token("ci", Role.SUBMITTER, RED), token("ci", Role.SUBMITTER, BLUE)], None),
}


@pytest.mark.parametrize("case", IDENTITIES)
def test_a_name_is_the_one_identity_that_has_it(case: str) -> None:
    tokens, identity = IDENTITIES[case]
    assert identity_of(tokens) == identity


def _as_before(server: Server, request_id: str, name: str) -> None:
    """Names in both places, as the earlier version wrote them; in one step, as it did."""

    def command(tx):  # type: ignore[no-untyped-def]
        tx.state.put(replace(tx.state.requests[request_id], owner=name))
        tx.state.put(replace(tx.state.nodes.named("alpha"), claimed_by=name))

    server.writer.execute(command).result(PATIENCE)


@pytest.mark.parametrize("several", [False, True])
def test_claims_and_their_work_go_on_after_the_upgrade(any_server: Server, several: bool) -> None:
    server = any_server
    body = {"name": "farm", "nodes": {"zone": "a"}, "preset": "classes"}
    made(server["admin"].post(f"{API}/pools", json=body))
    server.policy("red", "farm", allow_sensitive=True)
    Machine(server)
    made(server["red"].post(f"{API}/nodes/claim", json={"nodes": ["alpha"]}))
    held = run(server, "red", 1, sensitive=True)
    assert held["status"] == "allocated"
    _as_before(server, held["id"], "red")
    if several:
        body = {"name": "red", "role": "submitter", "subjects": ["team:blue"]}
        made(server["admin"].post(f"{API}/tokens", json=body))
    store = server.store
    server.writer.execute(lambda tx: adopt_identities(tx, store.tokens_named)).result(PATIENCE)
    node, request = server.writer.query(
        lambda state, now: (state.nodes.named("alpha"), state.requests[held["id"]])
    ).result(PATIENCE)
    assert (node.claimed_by, request.owner) == (("red",) * 2 if several else ("team:red/red",) * 2)
    assert server.writer.query(lambda state, now: audit.check(state)).result(PATIENCE) == []
    assert made(server["red"].get(f"{API}/requests/{held['id']}"))["owner"] == "red"
    another = run(server, "red", 1, sensitive=True)
    assert another["status"] == ("queued" if several else "allocated")
    unclaimed = server["red"].post(f"{API}/nodes/unclaim", json={"nodes": ["alpha"]})
    # Refused because its work is there; or, of a name that is not its alone, because of that.
    code = "node_claimed" if several else "in_use"
    assert unclaimed.json()["type"] == f"urn:cede:problem:{code}"
