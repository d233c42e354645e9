"""`zenml resource-request list`: ZenML's filters and order, on requests that live in cede.

ZenML's own lists are SQL on its tables. cede narrows by exact filters, the rest is tested here: a
filter that was ignored would show other users' requests as one's own.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from zenml.enums import (
    GenericFilterOps,
    LogicalOperators,
    ResourceRequestStatus,
    SorterOps,
)
from zenml.models import ResourceRequestFilter, ResourceRequestResponse
from zenml.models.v2.base.filter import Filter

from cede.integrations.zenml import mapping

_NEGATIONS = {
    GenericFilterOps.NOT_EQUALS: GenericFilterOps.EQUALS,
    GenericFilterOps.NOT_CONTAINS: GenericFilterOps.CONTAINS,
    GenericFilterOps.NOT_ONEOF: GenericFilterOps.ONEOF,
    GenericFilterOps.IS_NULL: GenericFilterOps.IS_NOT_NULL,
}
_TESTS: dict[GenericFilterOps, Callable[[Any, Any], bool]] = {
    GenericFilterOps.EQUALS: operator.eq,
    GenericFilterOps.CONTAINS: operator.contains,
    GenericFilterOps.STARTSWITH: str.startswith,
    GenericFilterOps.ENDSWITH: str.endswith,
    GenericFilterOps.ONEOF: lambda found, asked: found in asked,
    GenericFilterOps.IN: lambda found, asked: asked[0] <= found <= asked[1],
    GenericFilterOps.IS_NOT_NULL: lambda found, asked: True,
    GenericFilterOps.GT: operator.gt,
    GenericFilterOps.GTE: operator.ge,
    GenericFilterOps.LT: operator.lt,
    GenericFilterOps.LTE: operator.le,
}
_LABELS = {
    "component_id": mapping.COMPONENT_ID,
    "step_run_id": mapping.STEP_RUN_ID,
    "pipeline_run_id": mapping.RUN_ID,
}


def narrowed(wanted: ResourceRequestFilter, server_id: str) -> dict[str, Any]:
    """Return the filters that cede can apply itself: they let through too many, never too few."""
    labels = {mapping.SERVER: server_id, mapping.PROJECT_ID: wanted.project}
    filters: dict[str, Any] = {}
    if wanted.logical_operator is LogicalOperators.AND:
        for column, label in _LABELS.items():
            value = getattr(wanted, column)
            labels[label] = value if isinstance(value, UUID) else None
        if isinstance(wanted.status, ResourceRequestStatus):
            filters["status"] = list(mapping.statuses_for(str(wanted.status)))
        if any(map(_is_of_cedes_pool, wanted.list_of_filters)):
            filters["pool"] = str(wanted.pool_id).removeprefix("equals:")
    for name, value in labels.items():
        if value is not None:
            filters[f"label.{name}"] = str(value)
    return filters


def matches(
    request: Mapping[str, Any],
    shown: ResourceRequestResponse,
    wanted: ResourceRequestFilter,
    users: Collection[UUID] | None,
) -> bool:
    """Whether a request passes all filters; `users` are the owners asked for, if any."""
    found = _values(request, shown)
    either = wanted.logical_operator is LogicalOperators.OR
    answers = [
        _holds(each, found[each.column])
        for each in wanted.list_of_filters
        if either or not _is_of_cedes_pool(each)
    ]
    if users is not None:
        answers.append(shown.get_body().user_id in users)
    return any(answers) if either and answers else all(answers)


def in_order(
    shown: list[ResourceRequestResponse], wanted: ResourceRequestFilter
) -> list[ResourceRequestResponse]:
    column, order = wanted.sorting_params

    def place(each: ResourceRequestResponse) -> tuple[str, str]:
        # Ids grow with time, so they break ties.
        return str(getattr(each.get_body(), column, None) or ""), str(each.id)

    return sorted(shown, key=place, reverse=order is not SorterOps.ASCENDING)


def _is_of_cedes_pool(asked: Filter) -> bool:
    """Whether cede applies a filter of pools itself, by name or id and with the pool's waiters."""
    return asked.column == "pool_id" and asked.operation is GenericFilterOps.EQUALS


def _values(request: Mapping[str, Any], shown: ResourceRequestResponse) -> dict[str, list[Any]]:
    """Return the values that match each column; as in ZenML's other lists, names as well as ids."""
    body = shown.get_body()
    return {
        "id": [shown.id],
        "created": [body.created],
        "updated": [body.updated],
        "status": [body.status],
        "reclaim_tolerance": [body.reclaim_tolerance],
        "component_id": [*body.component_ids, request.get("component")],
        "step_run_id": [body.step_run_id, body.step_name],
        "pipeline_run_id": [body.pipeline_run_id, body.pipeline_run_name],
        "pool_id": [body.pool_name],
        "preemption_initiated_by_id": [body.preemption_initiated_by_id],
    }


def _holds(asked: Filter, found: list[Any]) -> bool:
    if asked.operation in _NEGATIONS:
        opposite = asked.model_copy(update={"operation": _NEGATIONS[asked.operation]})
        return not _holds(opposite, found)
    test = _TESTS[asked.operation]
    value = _plain(asked.value)
    return any(test(_plain(each), value) for each in found if each is not None)


def _plain(value: Any) -> Any:
    """Make a value comparable: ZenML's filters remove the hyphens from a value compared with an
    id."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, datetime):
        return value
    return str(value).replace("-", "")
