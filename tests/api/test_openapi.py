"""The OpenAPI document is complete, true, and survives being taken at its word."""

from __future__ import annotations

import contextlib
from typing import Any

import pydantic
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.config import SchemathesisConfig

from cede.server.api import examples, schemas
from cede.server.api.permissions import PERMISSIONS
from tests.api import machines
from tests.api.conftest import Server

API = "/api/v1"


def document(server: Server) -> dict[str, Any]:
    found: dict[str, Any] = server["viewer"].get(f"{API}/openapi.json").json()
    return found


def operations(server: Server) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method.upper(), path, operation)
        for path, methods in document(server)["paths"].items()
        for method, operation in methods.items()
    ]


def test_every_route_is_described_with_examples_and_errors(shared: Server) -> None:
    found = operations(shared)
    hidden = {"/", "/page.js", "/page.css"}
    described = {(method, path) for method, path, _ in found}
    assert described == {each for each in PERMISSIONS if each[1] not in hidden}
    for method, path, operation in found:
        where = f"{method} {path}"
        assert operation["description"], where
        role = PERMISSIONS[method, path].role
        assert operation["x-role"] == ("none" if role is None else str(role)), where
        assert bool(operation["security"]) == (role is not None), where
        for status, response in operation["responses"].items():
            for content in response.get("content", {}).values():
                assert "example" in content or "examples" in content, (where, status)
                assert content.get("schema"), (where, status)
            if int(status) >= 400:
                assert list(response["content"]) == ["application/problem+json"], (where, status)
        if role is not None:
            assert {"401", "403", "422", "429"} <= set(operation["responses"]), where


def test_every_body_has_an_example_and_refuses_unknown_fields(shared: Server) -> None:
    whole = document(shared)
    for method, path, operation in operations(shared):
        if "requestBody" not in operation or path.endswith("/plan"):
            continue
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        names = [schema, *schema.get("anyOf", [])]
        for name in (each["$ref"].rpartition("/")[2] for each in names if "$ref" in each):
            body = whole["components"]["schemas"][name]
            assert body["examples"], (method, path)
            assert body["additionalProperties"] is False, name


EXAMPLES: dict[type[pydantic.BaseModel], Any] = {
    schemas.PoolOut: examples.POOL,
    schemas.PolicyOut: examples.POLICY,
    schemas.NodeOut: examples.NODE,
    schemas.ClaimOut: examples.CLAIM,
    schemas.RegisteredOut: examples.REGISTERED,
    schemas.HeartbeatOut: examples.HEARTBEAT,
    schemas.RequestOut: examples.GRANTED,
    schemas.HeldOut: examples.HELD,
    schemas.EventOut: examples.EVENT,
    schemas.TokenOut: examples.TOKEN,
    schemas.NewTokenOut: examples.NEW_TOKEN,
    schemas.AuditOut: examples.AUDIT,
    schemas.VerifiedOut: examples.VERIFIED,
    schemas.WhoamiOut: examples.WHOAMI,
    schemas.ProblemOut: examples.problem(422, "x"),
}


@pytest.mark.parametrize("model", EXAMPLES, ids=lambda model: model.__name__)
def test_examples_fit_their_schemas(model: type[pydantic.BaseModel]) -> None:
    model.model_validate(EXAMPLES[model])


ANSWERS = {
    "/pools": schemas.PoolPage,
    "/policies": schemas.PolicyPage,
    "/nodes": schemas.NodePage,
    "/requests": schemas.RequestPage,
    "/requests?explain=true": schemas.RequestPage,
    "/events": schemas.EventPage,
    "/tokens": schemas.TokenPage,
    "/audit": schemas.AuditPage,
    "/audit/verify": schemas.VerifiedOut,
    "/whoami": schemas.WhoamiOut,
}


def test_answers_fit_their_schemas(server: Server) -> None:
    server.pool("gpus", 8)
    server.policy("red", reserved={"gpu": 4})
    server.policy("blue", reserved={"gpu": 4})
    server.submit("red", 8, walltime=60)
    server.submit("blue", 4)
    server.submit("blue", 4)
    machines.pool_of_nodes(server)
    server.policy("red", "farm")
    alpha = machines.Machine(server)
    work = machines.run(server, pool="farm", checkpoint="auto", node_labels=machines.ZONE)
    schemas.HeldOut.model_validate(work)
    schemas.HeartbeatOut.model_validate(alpha.beat())
    for path, model in ANSWERS.items():
        response = server["admin"].get(API + path)
        model.model_validate(response.json())
        assert response.json().get("items", [1]), f"{path} showed nothing"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_generated_calls_never_cause_a_5xx(server: Server) -> None:
    """C10: whatever fits the document, and whatever does not, is answered in kind."""
    server.pool("gpus", 8)
    server.policy("red", reserved={"gpu": 4})
    server.secrets["node"] = machines.Machine(server).token
    schema = schemathesis.openapi.from_dict(document(server), config=SchemathesisConfig())
    agents = {f"{API}/agent/register": "join", f"{API}/agent/heartbeat": "node"}
    seen: dict[int, int] = {}

    def check(case: schemathesis.Case) -> None:
        sent = case.as_transport_kwargs(base_url=server.url)
        headers = dict(sent.get("headers") or {})
        headers = {k: v for k, v in headers.items() if k.lower() not in ("authorization", "host")}
        try:
            response = server[agents.get(case.path, "admin")].request(
                case.method,
                sent["url"],
                params=sent.get("params"),
                headers=headers,
                **({"json": sent["json"]} if "json" in sent else {"content": sent.get("data")}),
            )
        except (ValueError, TypeError, UnicodeError):
            return  # what no client can send
        seen[response.status_code] = seen.get(response.status_code, 0) + 1
        assert response.status_code < 500, (case.method, sent["url"], response.text)
        if response.status_code >= 400:
            assert response.headers["content-type"] == "application/problem+json"
            assert response.json()["detail"]

    for result in schema.get_all_operations():
        operation = result.ok()
        if (operation.method.upper(), operation.path) == ("DELETE", f"{API}/tokens/{{id}}"):
            continue  # it would revoke the token that we call with
        if operation.path.endswith("/logs"):
            continue  # there is no agent that would answer
        for mode in schemathesis.GenerationMode:
            run = settings(
                max_examples=6,
                deadline=None,
                database=None,
                phases=[Phase.explicit, Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            try:
                strategy = operation.as_strategy(generation_mode=mode)
            except Exception as error:
                if "Unsatisfiable" in type(error).__name__:
                    continue
                raise
            _run(strategy, run, check)
    assert seen.get(200, 0) > 20 and seen.get(422, 0) > 20, seen


def _run(strategy: Any, run: Any, check: Any) -> None:
    @run
    @given(case=strategy)
    def each(case: Any) -> None:
        if "follow" not in str(case.query) and "event-stream" not in str(case.headers):
            check(case)

    with contextlib.suppress(Unsatisfiable):  # nothing to get wrong: no parameters, no body
        each()


def test_the_document_names_no_default_that_an_edit_would_not_set(server: Server) -> None:
    bodies = document(server)["components"]["schemas"]
    assert bodies["RequestIn"]["properties"]["checkpoint_timeout"]["default"] == 600
    for name in ("PolicyPatch", "TenantPatch"):
        said = [each.get("default") for each in bodies[name]["properties"].values()]
        assert said == [None] * len(said), name
