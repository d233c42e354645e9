"""ZenML on cede: resource pools for a ZenML OSS server.

Set `ZENML_SERVER_RESOURCE_POOL_IMPLEMENTATION_SOURCE=cede.integrations.zenml.ResourcePoolStore` on
the ZenML server. Names are imported when they are used, because only two modules here need ZenML.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cede.integrations.zenml.one_machine import (
        OneMachineOrchestrator,
        OneMachineOrchestratorFlavor,
    )
    from cede.integrations.zenml.store import ResourcePoolStore

_HOMES = {
    "OneMachineOrchestrator": "cede.integrations.zenml.one_machine",
    "OneMachineOrchestratorFlavor": "cede.integrations.zenml.one_machine",
    "ResourcePoolStore": "cede.integrations.zenml.store",
}

__all__ = ["OneMachineOrchestrator", "OneMachineOrchestratorFlavor", "ResourcePoolStore"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
