"""A process that plans one snapshot and ends: `python -m cede.server.api.plan_process`.

Planning a caller's snapshot may take long, and in the server's own process it would slow down real
decisions. Here it has a processor share, a time and a memory of its own (C10). The snapshot comes
in on standard input, after a line with the options, and is parsed nowhere else; the plan, or the
problem, goes out on standard output. It loads neither the web framework nor the store: their start
would cost several times what a small plan does.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any

import orjson

from cede.model.errors import CedeError, Invalid
from cede.server.api import strict_json
from cede.server.api.problem import Problem
from cede.sim import plan

CPU_SECONDS = 30
MEMORY_BYTES = 4 * 2**30
# The first byte of a problem; no plan begins so.
REFUSED = b"!"
_NICE = 10


def answer(asked: dict[str, Any], body: bytes) -> bytes:
    """Return the plan; or `REFUSED` and the problem of an invalid snapshot."""
    try:
        made = plan.run(_snapshot(body), until_rest=asked["until_rest"], horizon=asked["horizon"])
        text: bytes = orjson.dumps(made)
        return text
    except Problem as error:
        refused = {"status": error.status, "code": error.code, "detail": error.detail}
        return REFUSED + orjson.dumps(refused | {"field": error.field})
    except Invalid as error:
        return _invalid(error.field, error.problem)
    except CedeError as error:
        return _invalid(getattr(error, "path", "") or "body", str(error))


def _snapshot(body: bytes) -> Any:
    if not body:
        raise Invalid("body", "a JSON body is needed")
    found = strict_json.parse(body)
    if not isinstance(found, dict):
        raise Invalid("body", "must be a JSON object")
    return found


def _invalid(field: str, problem: str) -> bytes:
    detail = f"{field}: {problem}"
    found = {"status": 422, "code": "invalid", "detail": detail, "field": field}
    return REFUSED + orjson.dumps(found)


def main() -> None:
    os.nice(_NICE)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    asked = json.loads(sys.stdin.buffer.readline())
    sys.stdout.buffer.write(answer(asked, sys.stdin.buffer.read()))


if __name__ == "__main__":
    main()
