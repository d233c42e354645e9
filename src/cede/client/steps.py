"""`@step` and `@pipeline`: declare what a function needs, and call it.

A step of a dynamic pipeline becomes a request; the call waits until it is granted, runs the
function in a child process so that it can be stopped, and returns what the function returned.
Static pipelines take no part in pools, as document 002 says, and say so.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar, overload
from uuid import uuid4

from cede.client.calls import Call
from cede.client.client import Client
from cede.client.demand import declared_body, settings_body
from cede.client.http import Json
from cede.client.runner import MakeWork, Runner
from cede.client.waiting import reason_text
from cede.model.errors import Invalid, choices
from cede.model.resources import ResourceSettings

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger("cede")


@dataclass(frozen=True, slots=True)
class StepRetryConfig:
    """How often a step is tried again after it failed or was preempted, and after how many
    seconds."""

    max_retries: int = 1
    delay: float = 0
    backoff: int = 1

    @classmethod
    def of(cls, value: StepRetryConfig | Mapping[str, Any] | None) -> StepRetryConfig:
        if value is None:
            return cls(max_retries=0)
        if isinstance(value, StepRetryConfig):
            return value
        unknown = sorted(set(value) - set(cls.__dataclass_fields__))
        if unknown:
            known = choices(unknown[0], cls.__dataclass_fields__)
            raise Invalid(f"retry.{unknown[0]}", f"unknown field; {known}")
        return cls(**value)

    def body(self) -> Json:
        # A back-off of 0 is often written for "none", which is a factor of 1.
        return {
            "max_retries": self.max_retries,
            "delay": self.delay,
            "backoff": max(self.backoff, 1),
        }


@dataclass(slots=True)
class _Run:
    """One run of a dynamic pipeline, while it lasts."""

    pipeline: str
    name: str
    orchestrator: str | None
    client: Client | None
    owned: bool = False
    said: set[str] = field(default_factory=set)

    def connection(self) -> Client:
        if self.client is None:
            self.client, self.owned = Client(), True
        return self.client

    def say_once(self, text: str) -> None:
        if text not in self.said:
            self.said.add(text)
            log.warning(text)


_current: ContextVar[_Run | None] = ContextVar("cede_run", default=None)
_static: ContextVar[bool] = ContextVar("cede_static", default=False)


class Step(Generic[P, R]):
    """A function and what it needs. Calling it outside a dynamic pipeline is a plain call."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        settings: Mapping[str, Any] | None = None,
        retry: StepRetryConfig | Mapping[str, Any] | None = None,
        step_operator: str | None = None,
        lease: float | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        **declared: Any,
    ) -> None:
        functools.update_wrapper(self, function)
        self.name = name or function.__name__
        self.function = function
        self.resources = _resources(settings or {})
        self.retry = StepRetryConfig.of(retry)
        self.step_operator = step_operator
        self.lease = lease
        self.checkpoint_dir = None if checkpoint_dir is None else Path(checkpoint_dir)
        self.declared = declared_body(**declared)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        run = _current.get()
        if run is None:
            if not _static.get():
                log.info("step %s is called outside a pipeline: no request is made", self.name)
            return self.function(*args, **kwargs)
        return self._run_pooled(run, args, kwargs)

    def _run_pooled(self, run: _Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        calls: list[Call] = []

        def make_work(environment: dict[str, str]) -> Any:
            calls.append(Call(self.function, args, kwargs))
            return calls[-1].work(environment)

        try:
            ended = self._runner(run).run(_outside_of_the_run(make_work))
            value: R = calls[-1].result(self.name, ended.exit_code)
            return value
        finally:
            for call in calls:
                call.close()

    def _runner(self, run: _Run) -> Runner:
        def waiting(why: Json) -> None:
            run.say_once(f"step {self.name} waits: {reason_text(why)}")

        def notify(kind: str, text: str) -> None:
            if kind == "untracked":
                run.say_once(text or f"step {self.name} runs untracked: no policy names it")
            elif kind not in ("granted", "saved"):
                log.warning("step %s: %s%s", self.name, kind, f": {text}" if text else "")

        return Runner(
            run.connection(),
            self._body(run),
            on_wait=waiting,
            notify=notify,
            checkpoint_dir=self.checkpoint_dir,
        )

    def _body(self, run: _Run) -> Json:
        body: Json = {
            "kind": "step",
            "settings": settings_body(self.resources),
            "retry": self.retry.body(),
            **self.declared,
            "labels": {
                **self.declared.get("labels", {}),
                "pipeline": run.pipeline,
                "run": run.name,
                "step": self.name,
            },
        }
        if self.lease is not None:
            body["lease"] = self.lease
        if self.step_operator:
            body |= {"component": self.step_operator, "component_type": "step_operator"}
        elif run.orchestrator:
            body |= {"component": run.orchestrator, "component_type": "orchestrator"}
        return body


def _outside_of_the_run(make_work: MakeWork) -> MakeWork:
    """Inside a step's child another step is a plain call: one step, one request."""

    def make(environment: dict[str, str]) -> Any:
        work = make_work(environment)

        def run() -> Any:
            _current.set(None)
            _static.set(True)
            work()

        return run

    return make


def _resources(settings: Mapping[str, Any]) -> ResourceSettings:
    given = settings.get("resources", ResourceSettings())
    if isinstance(given, ResourceSettings):
        return given
    return ResourceSettings.parse(given, "settings.resources")


class Pipeline(Generic[P, R]):
    """A function that calls steps. Only a dynamic one takes part in pools."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        dynamic: bool = False,
        orchestrator: str | None = None,
        client: Client | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.name = name or function.__name__
        self.function = function
        self.dynamic = dynamic
        self.orchestrator = orchestrator
        self.client = client

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if not self.dynamic:
            return self._run_static(args, kwargs)
        run = _Run(
            pipeline=self.name,
            name=f"{self.name}-{uuid4().hex[:8]}",
            orchestrator=self.orchestrator or os.environ.get("CEDE_ORCHESTRATOR") or None,
            client=self.client,
        )
        token = _current.set(run)
        try:
            return self.function(*args, **kwargs)
        finally:
            _current.reset(token)
            if run.owned and run.client is not None:
                run.client.close()

    def _run_static(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        log.warning(
            "pipeline %s is static: its steps run at once and take no part in pools; "
            "write @pipeline(dynamic=True) to have them queued",
            self.name,
        )
        run, static = _current.set(None), _static.set(True)
        try:
            return self.function(*args, **kwargs)
        finally:
            _static.reset(static)
            _current.reset(run)


@overload
def step(function: Callable[P, R], /) -> Step[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    settings: Mapping[str, Any] | None = None,
    retry: StepRetryConfig | Mapping[str, Any] | None = None,
    step_operator: str | None = None,
    lease: float | None = None,
    checkpoint_dir: str | os.PathLike[str] | None = None,
    **declared: Any,
) -> Callable[[Callable[P, R]], Step[P, R]]: ...
def step(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Turn a function into a step: `@step`, or `@step(settings={"resources": …}, retry=…)`."""
    if function is not None:
        return Step(function)
    return lambda given: Step(given, **options)


@overload
def pipeline(function: Callable[P, R], /) -> Pipeline[P, R]: ...
@overload
def pipeline(
    *,
    name: str | None = None,
    dynamic: bool = False,
    orchestrator: str | None = None,
    client: Client | None = None,
) -> Callable[[Callable[P, R]], Pipeline[P, R]]: ...
def pipeline(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Turn a function into a pipeline: `@pipeline(dynamic=True)` takes part in pools."""
    if function is not None:
        return Pipeline(function)
    return lambda given: Pipeline(given, **options)
