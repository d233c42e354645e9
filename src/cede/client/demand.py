"""Makes the body of a request from a caller's arguments, checked here so that mistakes need no
server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cede.client.http import Json

if TYPE_CHECKING:
    from cede.model.resources import ResourceSettings


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
    """Return a request of kind `work`: units for anything that is not a step; it needs a policy.

    Times are seconds, or a text such as `1h30m`. `settings`: its own, where the pool shares fairly;
    `declared`: the names of `declared_body`.
    """
    needs = {"gpu_count": gpu, "cpu_count": cpu, "memory": memory, "pool_resources": resources}
    retry = {"max_retries": retries, "delay": retry_delay, "preemptions": preemptions}
    return _given(
        kind="work",
        settings={**_needs_body(_given(**needs), preemptible), **(settings or {})},
        pool=pool,
        component=component,
        component_type=component_type,
        retry=_given(**retry),
        lease=lease if lease == "none" else _time("lease", lease),
        **declared_body(**declared),
    )


def declared_body(**given: Any) -> Json:
    """Return the declared fields of a request, by the model's names (`class_` for `class`): labels,
    walltime, shape, terms, how it stops. Fields that are not given are left to the server.
    """
    if all(each is None for each in given.values()):
        return {}
    # The model is slow to import, and most requests leave all of this out.
    from cede.model.fields import written
    from cede.model.request import Request
    from cede.model.shape import Shape
    from cede.model.stopping import StopPolicy
    from cede.model.terms import Terms

    return written(given, Request, Shape, StopPolicy, Terms)


def _needs_body(given: Json, preemptible: object) -> Json:
    """Return the body of `ResourceSettings`, without importing it, which takes longer than a server
    takes to answer, where there is nothing in it but a number of GPUs.
    """
    if isinstance(preemptible, bool) and given.keys() <= {"gpu_count"}:
        from cede.model.amounts import parse_amount

        return {name: parse_amount(each, name) for name, each in given.items()} | {
            "preemptible": preemptible
        }
    from cede.model.resources import ResourceSettings

    return settings_body(ResourceSettings(**given, preemptible=preemptible))  # type: ignore[arg-type]


def settings_body(settings: ResourceSettings) -> Json:
    """Return settings as JSON; decimals as text, so that nothing is lost to binary fractions."""
    from dataclasses import fields
    from decimal import Decimal

    body: Json = {}
    for each in fields(settings):
        value = getattr(settings, each.name)
        if isinstance(value, Decimal):
            value = str(value)
        if value is not None and value != {}:
            body[each.name] = dict(value) if isinstance(value, Mapping) else value
    return body


def _time(field: str, given: float | str | None) -> int | float | None:
    """Return seconds; a text such as `1h30m` is parsed."""
    if given is None:
        return None
    from cede.model.durations import parse_duration, seconds

    return seconds(parse_duration(given, field))


def _given(**values: Any) -> Json:
    return {key: value for key, value in values.items() if value is not None}
