"""From what a caller writes to the body of a request. Checked here first, so that mistakes need no
server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from decimal import Decimal
from typing import Any

from cede.client.http import Json
from cede.model.amounts import parse_amounts
from cede.model.durations import parse_duration, seconds
from cede.model.resources import ResourceSettings
from cede.model.settings import parse_weight
from cede.model.terms import parse_class


def submission(
    *,
    gpu: int | None = None,
    cpu: int | float | str | None = None,
    memory: str | None = None,
    resources: Mapping[str, int] | None = None,
    preemptible: bool = True,
    pool: str | None = None,
    component: str | None = None,
    component_type: str | None = None,
    retries: int = 0,
    retry_delay: float = 0,
    preemptions: str | None = None,
    walltime: float | str | None = None,
    lease: float | str | None = None,
    labels: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
    class_: int | None = None,
    sensitive: bool = False,
    tenant: str | None = None,
    limit: Mapping[str, int] | None = None,
    weight: float | None = None,
    **stop_policy: Any,
) -> Json:
    """A request of kind `work`: units for anything that is not a step; it needs a policy.

    Times are seconds, or a text such as `1h30m`. `settings`: its own, where the pool shares
    fairly; `stop`: how it parts, by the names of `farewell_body`.
    """
    needs = ResourceSettings(
        gpu_count=gpu,
        cpu_count=cpu,
        memory=memory,
        pool_resources=dict(resources or {}),
        preemptible=preemptible,
    )
    retry = {"max_retries": retries, "delay": retry_delay, "preemptions": preemptions}
    return _given(
        kind="work",
        settings={**settings_body(needs), **(settings or {})},
        pool=pool,
        component=component,
        component_type=component_type,
        retry=_given(**retry),
        walltime=_time("walltime", walltime),
        lease=lease if lease == "none" else _time("lease", lease),
        labels=dict(labels or {}) or None,
        **terms_body(class_=class_, sensitive=sensitive, tenant=tenant, limit=limit, weight=weight),
        **stop_policy_body(**stop_policy),
    )


def terms_body(
    *,
    class_: int | None = None,
    sensitive: bool = False,
    tenant: str | None = None,
    limit: Mapping[str, int] | None = None,
    weight: float | None = None,
) -> Json:
    """On what terms a request waits and holds."""
    return _given(
        **{"class": None if class_ is None else parse_class(class_)},
        sensitive=sensitive or None,
        tenant=tenant,
        limit=None if limit is None else parse_amounts(limit, "limit"),
        weight=None if weight is None else parse_weight(weight),
    )


def stop_policy_body(
    *,
    checkpoint: str | None = None,
    checkpoint_protocol: str | None = None,
    checkpoint_timeout: float | str | None = None,
    max_deferral: float | str | None = None,
    interruptible: bool = False,
    resume: str | None = None,
    resume_wait: float | str | None = None,
) -> Json:
    """How a request parts from its units when somebody else needs them."""
    return _given(
        checkpoint=checkpoint,
        checkpoint_protocol=checkpoint_protocol,
        checkpoint_timeout=_time("checkpoint_timeout", checkpoint_timeout),
        max_deferral=_time("max_deferral", max_deferral),
        interruptible=interruptible or None,
        resume=resume,
        resume_wait=_time("resume_wait", resume_wait),
    )


def settings_body(settings: ResourceSettings) -> Json:
    """Settings as JSON; decimals travel as text, so that nothing is lost to binary fractions."""
    body: Json = {}
    for each in fields(settings):
        value = getattr(settings, each.name)
        if isinstance(value, Decimal):
            value = str(value)
        if value is not None and value != {}:
            body[each.name] = dict(value) if isinstance(value, Mapping) else value
    return body


def _time(field: str, given: float | str | None) -> int | float | None:
    """Seconds, as programs send them; a text such as `1h30m` is read here."""
    return None if given is None else seconds(parse_duration(given, field))


def _given(**values: Any) -> Json:
    return {key: value for key, value in values.items() if value is not None}
