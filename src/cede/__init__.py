"""cede shares GPUs between teams: who may hold what, lent while idle, taken back without losing
work.

Names are imported when they are first used, so that `import cede` and `cede --help` cost nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from cede.client.allocation import Allocation
    from cede.client.asynchronous import AsyncClient
    from cede.client.client import Client
    from cede.client.errors import (
        Cancelled,
        CedeClientError,
        Conflict,
        Failed,
        Forbidden,
        Invalid,
        LeaseLost,
        NotFound,
        Preempted,
        Rejected,
        ServerUnreachable,
        Unauthorized,
    )
    from cede.client.futures import StepFuture
    from cede.client.steps import StepRetryConfig, pipeline, step
    from cede.model.resources import ResourceSettings

_HOMES = {
    "Allocation": "cede.client.allocation",
    "AsyncClient": "cede.client.asynchronous",
    "Client": "cede.client.client",
    "ResourceSettings": "cede.model.resources",
    "StepFuture": "cede.client.futures",
    "StepRetryConfig": "cede.client.steps",
    "pipeline": "cede.client.steps",
    "step": "cede.client.steps",
    "Cancelled": "cede.client.errors",
    "CedeClientError": "cede.client.errors",
    "Conflict": "cede.client.errors",
    "Failed": "cede.client.errors",
    "Forbidden": "cede.client.errors",
    "Invalid": "cede.client.errors",
    "LeaseLost": "cede.client.errors",
    "NotFound": "cede.client.errors",
    "Preempted": "cede.client.errors",
    "Rejected": "cede.client.errors",
    "ServerUnreachable": "cede.client.errors",
    "Unauthorized": "cede.client.errors",
}

__all__ = [
    "Allocation",
    "AsyncClient",
    "Cancelled",
    "CedeClientError",
    "Client",
    "Conflict",
    "Failed",
    "Forbidden",
    "Invalid",
    "LeaseLost",
    "NotFound",
    "Preempted",
    "Rejected",
    "ResourceSettings",
    "ServerUnreachable",
    "StepFuture",
    "StepRetryConfig",
    "Unauthorized",
    "__version__",
    "pipeline",
    "step",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cede' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
