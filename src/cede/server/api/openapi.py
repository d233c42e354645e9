"""The OpenAPI document: FastAPI's, with the errors, roles and keys that it does not know.

Every operation gets the problems that its method and permission can lead to, from the same tables
that cause them.
"""

from __future__ import annotations

from types import UnionType
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from fastapi.utils import create_model_field
from pydantic import BaseModel

from cede.model import bounds
from cede.server.api import examples
from cede.server.api.bodies import RequestIn
from cede.server.api.errors import MEDIA_TYPE
from cede.server.api.permissions import permission_for
from cede.server.api.problem import TITLES
from cede.server.api.schemas import ProblemOut

Json = dict[str, Any]

_REF = "#/components/schemas/{model}"
_SCHEME = "token"
_DESCRIPTION = """Shares scarce compute between teams.

Every call but `/healthz` and `/version` carries `Authorization: Bearer cede_…`; every answer has
`Cede-Index`, the place in the journal that it reflects. Errors are `application/problem+json` and
name the field and the bound.
"""


class Answer(dict[str, Any]):
    """One entry of a route's `responses`. FastAPI would build what describes and checks the model
    at each start, and answers are not checked: `document` does so when it is asked for.
    """

    model: type[BaseModel] | UnionType


def ok(model: type[BaseModel] | UnionType, example: Any, description: str = "Done") -> Answer:
    """Return one entry of a route's `responses`."""
    content = {"application/json": {"example": example}}
    answer = Answer(description=description, content=content)
    answer.model = model
    return answer


def document(app: FastAPI) -> Json:
    """Return the whole document, made once."""
    if app.openapi_schema is None:
        for route in app.routes:
            if isinstance(route, APIRoute):
                _describe_answers(route)
        made = get_openapi(
            title=app.title,
            version=app.version,
            description=_DESCRIPTION,
            routes=app.routes,
            license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        )
        components = made.setdefault("components", {})
        schemas = components.setdefault("schemas", {})
        for model in (ProblemOut, RequestIn):
            _add_schema(schemas, model)
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        components["securitySchemes"] = {_SCHEME: {"type": "http", "scheme": "bearer"}}
        for path, methods in made["paths"].items():
            for method, operation in methods.items():
                _complete(method.upper(), path, operation)
        app.openapi_schema = made
    return app.openapi_schema


def _describe_answers(route: APIRoute) -> None:
    for status, answer in route.responses.items():
        if isinstance(answer, Answer):
            name = f"Response_{status}_{route.unique_id}"
            field = create_model_field(name, answer.model, mode="serialization")
            route.response_fields[status] = field


def _add_schema(schemas: Json, model: type[BaseModel]) -> None:
    schema = model.model_json_schema(ref_template=_REF)
    for name, inner in schema.pop("$defs", {}).items():
        schemas.setdefault(name, inner)
    schemas.setdefault(model.__name__, schema)


def _complete(method: str, path: str, operation: Json) -> None:
    permission = permission_for(method, path)
    role = None if permission is None else permission.role
    operation["x-role"] = "none" if role is None else str(role)
    operation["security"] = [] if role is None else [{_SCHEME: []}]
    if method == "POST" and "/agent/" not in path:  # agents repeat by other means
        operation.setdefault("parameters", []).append(_IDEMPOTENCY)
    responses = operation["responses"]
    responses.pop("422", None)
    for status in _statuses(
        method, path, has_role=role is not None, has_body="requestBody" in operation
    ):
        responses[str(status)] = {
            "description": TITLES[status],
            "content": {
                MEDIA_TYPE: {
                    "schema": {"$ref": _REF.format(model="ProblemOut")},
                    "example": examples.problem(status, TITLES[status]),
                }
            },
        }


def _statuses(method: str, path: str, *, has_role: bool, has_body: bool) -> list[int]:
    found = {421}
    if has_role:
        found |= {400, 401, 403, 422, 429, 503}
    if "{" in path or path.endswith(("/policies", "/requests")):
        found.add(404)
    if method != "GET":
        found |= {404, 409}
    if has_body:
        found |= {413, 415}
    return sorted(found)


_IDEMPOTENCY: Json = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Two calls with one key and one body are one; another body is a conflict.",
    "schema": {
        "type": "string",
        "minLength": 1,
        "maxLength": bounds.IDEMPOTENCY_KEY_LENGTH_MAX,
        "pattern": "^[!-~]+$",
    },
    "example": "5d3c1e2a-train-7",
}
