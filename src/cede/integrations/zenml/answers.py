"""Requests of cede in the form in which ZenML's server gives them to its clients.

Everything an answer says is in cede's request and its labels, so no replica has to remember
anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from zenml.enums import (
    ResourceRequestReclaimTolerance,
    ResourceRequestRuntimeState,
    ResourceRequestStatus,
)
from zenml.models import (
    ResourceRequestRenewalRequest,
    ResourceRequestRequest,
    ResourceRequestResponse,
)
from zenml.models.v2.core.resource_request import (
    ResourceRequestDemand,
    ResourceRequestResponseBody,
    ResourceRequestResponseMetadata,
    ResourceRequestResponseResources,
)
from zenml.utils.time_utils import utc_now

from cede.integrations.zenml import mapping


def answer(
    request: Mapping[str, Any], renewal: ResourceRequestRenewalRequest | None = None
) -> ResourceRequestResponse:
    """Return a request of cede, as of now."""
    labels = request.get("labels") or {}
    created = _instant(request["created"])
    component = _uuid(labels.get(mapping.COMPONENT_ID))
    body = ResourceRequestResponseBody(
        created=created,
        updated=utc_now() if renewal else created,
        user_id=_uuid(labels.get(mapping.USER_ID)),
        component_ids=[component] if component else [],
        step_run_id=_uuid(labels.get(mapping.STEP_RUN_ID)),
        pipeline_run_id=_uuid(labels.get(mapping.RUN_ID)),
        project_id=_uuid(labels.get(mapping.PROJECT_ID)),
        step_name=labels.get("step"),
        pipeline_run_name=labels.get("run"),
        pool_name=(request.get("allocation") or request).get("pool"),
        demands=[ResourceRequestDemand(**each) for each in mapping.demands_of(request)],
        status=ResourceRequestStatus(mapping.status_of(request)),
        runtime_state=_runtime_state(request, renewal),
        reclaim_tolerance=_tolerance(request),
        lease_expires_at=renewal.lease_expires_at if renewal else None,
        renewed_at=utc_now() if renewal else None,
        queued_at=created,
        status_reason=mapping.reason_of(request),
        preemption_initiated_by_id=_uuid(mapping.beneficiary_of(request)),
    )
    return _response(UUID(str(request["id"])), body)


def untracked(
    asked: ResourceRequestRequest, step_run_id: UUID, reason: str | None
) -> ResourceRequestResponse:
    """Answer for a step that runs without a request: ZenML runs it and remembers none."""
    return _unstored(asked, step_run_id, ResourceRequestStatus.NO_MATCHING_POOL, reason)


def refused(
    asked: ResourceRequestRequest, step_run_id: UUID, reason: str
) -> ResourceRequestResponse:
    """Answer that ZenML fails the step for. An exception would leave it running for ever."""
    return _unstored(asked, step_run_id, ResourceRequestStatus.REJECTED, reason)


def unchanged(
    request_id: UUID, renewal: ResourceRequestRenewalRequest, status: str, reason: str
) -> ResourceRequestResponse:
    """Answer while cede is away: a waiter goes on waiting, and what was granted stays granted."""
    body = ResourceRequestResponseBody(
        created=utc_now(),
        updated=utc_now(),
        status=ResourceRequestStatus(status),
        runtime_state=renewal.runtime_state or ResourceRequestRuntimeState.UNKNOWN,
        reclaim_tolerance=ResourceRequestReclaimTolerance.NONE,
        lease_expires_at=renewal.lease_expires_at,
        status_reason=reason,
    )
    return _response(request_id, body)


def _unstored(
    asked: ResourceRequestRequest,
    step_run_id: UUID,
    status: ResourceRequestStatus,
    reason: str | None,
) -> ResourceRequestResponse:
    body = ResourceRequestResponseBody(
        created=utc_now(),
        updated=utc_now(),
        user_id=asked.user,
        component_ids=asked.component_ids or [],
        step_run_id=step_run_id,
        demands=asked.demands,
        status=status,
        reclaim_tolerance=asked.reclaim_tolerance,
        status_reason=reason,
    )
    return _response(mapping.refusal_id(step_run_id), body)


def _response(request_id: UUID, body: ResourceRequestResponseBody) -> ResourceRequestResponse:
    return ResourceRequestResponse(
        id=request_id,
        body=body,
        metadata=ResourceRequestResponseMetadata(),
        resources=ResourceRequestResponseResources(),
    )


def _runtime_state(
    request: Mapping[str, Any], renewal: ResourceRequestRenewalRequest | None
) -> ResourceRequestRuntimeState:
    if renewal is not None and renewal.runtime_state is not None:
        return renewal.runtime_state
    state = (request.get("allocation") or {}).get("state")
    if state in ("running", "checkpointing", "stopping"):
        return ResourceRequestRuntimeState.RUNNING
    if state in ("granted", "starting"):
        return ResourceRequestRuntimeState.SUBMITTED
    if request["status"] in ("queued", "suspended"):
        return ResourceRequestRuntimeState.PENDING
    return ResourceRequestRuntimeState.UNKNOWN


def _tolerance(request: Mapping[str, Any]) -> ResourceRequestReclaimTolerance:
    stated = (request.get("labels") or {}).get(mapping.TOLERANCE)
    return ResourceRequestReclaimTolerance(
        stated or ("coordinated" if request["preemptible"] else "none")
    )


def _instant(text: str) -> datetime:
    """Parse an instant. ZenML's are in UTC without saying so."""
    return datetime.fromisoformat(text).replace(tzinfo=None)


def _uuid(text: str | None) -> UUID | None:
    """Parse an id; None also for one that is hidden from this token."""
    try:
        return UUID(text) if text else None
    except ValueError:
        return None
