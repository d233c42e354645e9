"""From what a caller writes to the body of a request. Checked here first, so that mistakes need no
server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from decimal import Decimal
from typing import Any

from cede.client.http import Json
from cede.model.durations import parse_duration, seconds
from cede.model.fields import written
from cede.model.request import Request
from cede.model.resources import ResourceSettings
from cede.model.shape import Shape
from cede.model.stopping import StopPolicy
from cede.model.terms import Terms


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
    lease: float | str | None = None,
    settings: Mapping[str, Any] | None = None,
    **declared: Any,
) -> Json:
    """A request of kind `work`: units for anything that is not a step; it needs a policy.

    Times are seconds, or a text such as `1h30m`. `settings`: its own, where the pool shares
    fairly; `declared`: the names of `declared_body`.
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
        lease=lease if lease == "none" else _time("lease", lease),
        **declared_body(**declared),
    )


def declared_body(**given: Any) -> Json:
    """What the model declares of a request, by its own names (`class_` for `class`): labels,
    walltime, how its tasks sit, on what terms it waits and how it stops.
    """
    return written(given, Request, Shape, StopPolicy, Terms)


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
