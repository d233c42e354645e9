"""Makes an error into problem+json (RFC 9457), without parsing text.

Each problem tells what is wrong, in which field, and which bound it broke; its `type` is
`urn:cede:problem:CODE`, and programs compare the code. No input may cause a 5xx (C10): those are
only for a server that is overloaded, not the writer, or broken.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from cede.model.errors import (
    CedeError,
    Conflict,
    Forbidden,
    Invalid,
    Malformed,
    NotFound,
    Refused,
)
from cede.server.api.problem import Problem
from cede.server.leadership import NotLeading
from cede.server.queue import Overloaded, Stopping
from cede.snapshot.reader import SnapshotError
from cede.store.errors import Damaged, DatabaseAway, DiskFull, StoreError

MEDIA_TYPE = "application/problem+json"

_FULL_RETRY_AFTER = 5

# At most this many single errors are listed in one problem.
ERRORS_MAX = 20
# Pydantic says "Input should be …" and "String should have …"; cede's own errors say "must".
_OTHER_WORDS = re.compile(r"^\w+ should ")


class UnknownFields(Invalid):
    """More unknown fields than are worth listing; `field` is the first."""


def respond(problem: Problem) -> Response:
    content = json.dumps(problem.to_dict(), ensure_ascii=True, separators=(",", ":"))
    return Response(content, problem.status, problem.headers, MEDIA_TYPE)


def problem_of(error: Exception) -> Problem:
    """Return the problem for an error of cede's or the framework's; any other is a bug of the
    server."""
    match error:
        case Problem():
            return error
        case Malformed():
            return Problem(400, "malformed", str(error), field=error.field)
        case Invalid():
            return Problem(422, "invalid", str(error), field=error.field)
        case NotFound():
            return Problem(404, "not_found", str(error))
        case Conflict():
            return Problem(409, error.code, error.problem)
        case Forbidden():
            return Problem(403, "forbidden", str(error), field=error.field)
        case Refused():
            reason = error.reason.to_public()
            return Problem(422, "refused", error.reason.text, reason=reason)
        case SnapshotError():
            return Problem(422, "invalid", str(error), field=error.path or "body")
        case Overloaded() | Stopping() | NotLeading() | StoreError():
            return _not_now(error)
        case RequestValidationError():
            return validation_problem(error.errors())
        case HTTPException():
            return _of_http(error)
        case CedeError():
            return Problem(422, "refused", str(error))
    return Problem(500, "internal", "the server made a mistake; its log has the details")


def _not_now(error: CedeError | StoreError) -> Problem:
    """Return the problem of an error that is this server's at the moment, and not the call's."""
    match error:
        case Overloaded():
            return unavailable("overloaded", str(error))
        case NotLeading():
            return unavailable("not_leading", str(error))
        case Stopping():
            return unavailable("stopping", str(error), 2)
        case DatabaseAway():
            return unavailable("database_away", str(error), 2)
        case DiskFull():
            headers = {"Retry-After": str(_FULL_RETRY_AFTER)}
            return Problem(507, "disk_full", str(error), headers=headers)
        case Damaged():
            detail = "the database is damaged and nothing is written; the server's log says where"
            return unavailable("damaged", detail, 60)
    return unavailable("not_writing", "this server is not the one that writes", 2)


def unavailable(code: str, detail: str, retry_after: int = 1) -> Problem:
    """Return 503 with the time after which trying again makes sense."""
    return Problem(503, code, detail, headers={"Retry-After": str(retry_after)})


def not_found(kind: str, name: str) -> Problem:
    return problem_of(NotFound(kind, name))


def _of_http(error: HTTPException) -> Problem:
    codes = {400: "malformed", 404: "not_found", 405: "method_not_allowed"}
    details = {404: "no such path", 405: "this path does not take that method"}
    detail = details.get(error.status_code, str(error.detail))
    code = codes.get(error.status_code, "http_error")
    return Problem(error.status_code, code, detail, headers=error.headers)


def validation_problem(errors: Sequence[Mapping[str, Any]]) -> Problem:
    """Return pydantic's findings as a problem; the first names the field, the others are listed.
    A value that is not even of its kind comes first: it is a 400.
    """
    errors = sorted(errors, key=lambda each: not _is_malformed(each))
    status, code = (400, "malformed") if _is_malformed(errors[0]) else (422, "invalid")
    shown = [_one_finding(each) for each in errors[:ERRORS_MAX]]
    first = shown[0]
    problem = Problem(status, code, f"{first['field']}: {first['detail']}", field=first["field"])
    if len(shown) > 1:
        problem.more["errors"] = shown
    return problem


def _is_malformed(error: Mapping[str, Any]) -> bool:
    return isinstance(error.get("ctx", {}).get("error"), Malformed)


def _one_finding(error: Mapping[str, Any]) -> dict[str, str]:
    place = [str(part) for part in error["loc"]]
    if place and place[0] in ("body", "query", "path", "header"):
        del place[0]
    if place and place[-1] == "[key]":  # pydantic's word for the name in a map, not its value
        detail = "is not a resource key: a letter, then at most 62 letters, digits or _ . - /"
        return {"field": ".".join(place[:-1])[:200], "detail": detail}
    field = ".".join(place)[:200] or "body"
    if error["type"] == "missing" and field == "body":
        return {"field": field, "detail": "a JSON body is needed"}
    context = error.get("ctx", {})
    if isinstance(context.get("error"), Invalid):
        inner: Invalid = context["error"]
        if isinstance(inner, UnknownFields):
            place.append(inner.field)
            return {"field": ".".join(place)[:200], "detail": inner.problem}
        return {"field": inner.field if field == "body" else field, "detail": inner.problem}
    if error["type"] == "extra_forbidden":
        return {"field": field, "detail": "unknown field"}
    return {"field": field, "detail": _OTHER_WORDS.sub("must ", str(error["msg"]))}
