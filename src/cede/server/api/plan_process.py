"""A process that plans one snapshot and ends: `python -m cede.server.api.plan_process`.

Planning somebody's snapshot may take long, and in the server's own process it would slow down
deciding for real. Here it has a processor share, a time and a memory of its own (C10). The snapshot
comes in on standard input and the plan, or what is wrong, goes out on standard output.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any

from cede.model.errors import CedeError, Invalid
from cede.sim import plan

CPU_SECONDS = 30
MEMORY_BYTES = 4 * 2**30
_NICE = 10


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """`{plan}`, or `{field, problem}` of a snapshot that is not one."""
    try:
        made = plan.run(asked["snapshot"], until_rest=asked["until_rest"], horizon=asked["horizon"])
    except Invalid as error:
        return {"field": error.field, "problem": error.problem}
    except CedeError as error:
        return {"field": getattr(error, "path", "") or "body", "problem": str(error)}
    return {"plan": made}


def main() -> None:
    os.nice(_NICE)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    json.dump(answer(json.load(sys.stdin)), sys.stdout)


if __name__ == "__main__":
    main()
