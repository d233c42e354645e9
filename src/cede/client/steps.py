"""`@step` and `@pipeline`: declare what a function needs, and call it.

A step of a dynamic pipeline becomes a request; the call waits until it is granted, runs the
function in a child process so that it can be stopped, and returns what the function returned.
`submit` and `map` return futures instead; steps and pipelines may be `async def`. Which run a call
belongs to is found in `runs`. Static pipelines take no part in pools, as document 002 says, and say
so.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
import os
import threading
from asyncio import CancelledError
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

from cede.client import runs
from cede.client.calls import Call, called
from cede.client.client import Client
from cede.client.demand import declared_body, settings_body
from cede.client.futures import StepFuture
from cede.client.http import Json
from cede.client.interruptions import Interrupted
from cede.client.runner import Ended, MakeWork, Runner
from cede.client.runs import Run
from cede.client.waiting import reason_text
from cede.model.errors import Invalid, choices
from cede.model.resources import ResourceSettings

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

log = logging.getLogger("cede")


@dataclass(frozen=True, slots=True)
class StepRetryConfig:
    """How often and after how many seconds a failed or preempted step is tried again."""

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
        self._is_async = inspect.iscoroutinefunction(function)
        self.resources = _resources(settings or {})
        self.retry = StepRetryConfig.of(retry)
        self.step_operator = step_operator
        self.lease = lease
        self.checkpoint_dir = None if checkpoint_dir is None else Path(checkpoint_dir)
        if declared.get("array"):
            raise Invalid("array", "is for work that nodes run; call the step's .map()")
        self.declared = declared_body(**declared)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        run = runs.current(self.name)
        if run is None:
            return self.function(*args, **kwargs)
        if self._is_async:
            return cast(R, self._awaited(run, args, kwargs))
        if _in_event_loop():
            run.say_once(
                f"step {self.name} holds up the event loop until it has ended: "
                f"write await {self.name}.submit(…)"
            )
        task = runs.Task()
        with run.under_way(self.name, task):
            return cast(R, self._run_pooled(run, task, args, kwargs))

    @overload
    def submit(
        self: Step[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> StepFuture[T]: ...
    @overload
    def submit(self, *args: P.args, **kwargs: P.kwargs) -> StepFuture[R]: ...
    def submit(self, *args: Any, **kwargs: Any) -> StepFuture[Any]:
        """Start the step and return its future. Futures of other steps among the arguments are
        waited for first."""
        return self._submit(runs.current(self.name), args, kwargs)

    def map(self, *values: Iterable[Any], **same: Any) -> list[StepFuture[Any]]:
        """Start the step once for each value, or for each tuple of values of equally long
        iterables; `same` is given to all.
        """
        if not values:
            raise TypeError(f"{self.name}.map() wants values")
        run = runs.current(self.name)
        return [self._submit(run, each, same) for each in zip(*values, strict=True)]

    async def _awaited(self, run: Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return await self._submit(run, args, kwargs)

    def _submit(
        self, run: Run | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> StepFuture[Any]:
        task = runs.Task()
        future: StepFuture[Any] = StepFuture(self.name, task.stop)
        context = contextvars.copy_context()
        if run is None:
            work = partial(context.run, self._run_plain, args, kwargs)
            # In a thread, because an `async def` function needs an event loop of its own.
            threading.Thread(target=_settle, args=(future, work), daemon=True).start()
            return future

        def finish() -> None:
            try:
                _settle(future, partial(context.run, self._run_pooled, run, task, args, kwargs))
            finally:
                run.remove(task)

        run.add(self.name, task)
        run.start(future, finish)
        return future

    def _run_plain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return called(self.function, *_results(args, kwargs))

    def _run_pooled(
        self, run: Run, task: runs.Task, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        args, kwargs = _results(args, kwargs)
        calls: list[Call] = []

        def make_work(environment: dict[str, str]) -> Any:
            calls.append(Call(self.function, args, kwargs))
            return calls[-1].work(environment)

        runner = self._runner(run)
        task.runs(runner.cancel)
        try:
            ended = runner.run(_outside_of_the_run(make_work))
            assert isinstance(ended, Ended), "a function runs here"
            return calls[-1].result(self.name, ended.exit_code)
        finally:
            for call in calls:
                call.close()

    def _runner(self, run: Run) -> Runner:
        def waiting(why: Json) -> None:
            if reason := reason_text(why):
                run.say_once(f"step {self.name} waits: {reason}")

        def notify(kind: str, text: str) -> None:
            if kind == "untracked":
                run.say_once(text or f"step {self.name} runs untracked: no policy names it")
            elif kind == "devices":
                run.say_once(f"step {self.name}: {text}")
            elif kind not in ("granted", "saved"):
                log.warning("step %s: %s%s", self.name, kind, f": {text}" if text else "")

        return Runner(
            run.connection(),
            self._body(run),
            on_wait=waiting,
            notify=notify,
            checkpoint_dir=self.checkpoint_dir,
        )

    def _body(self, run: Run) -> Json:
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
    def make(environment: dict[str, str]) -> Any:
        work = make_work(environment)

        def run() -> Any:
            runs.leave()
            work()

        return run

    return make


def _results(
    args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments, with the results of steps in the place of their futures."""

    def result(value: Any) -> Any:
        return value.result() if isinstance(value, StepFuture) else value

    return tuple(map(result, args)), {name: result(value) for name, value in kwargs.items()}


def _settle(future: StepFuture[Any], work: Callable[[], Any]) -> None:
    """Give a future the result or the exception of `work`."""
    try:
        value = work()
    except (Interrupted, CancelledError):
        future.ended_cancelled()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(value)


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


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
            log.warning(
                "pipeline %s is static: its steps run at once and take no part in pools; "
                "write @pipeline(dynamic=True) to have them queued",
                self.name,
            )
        if inspect.iscoroutinefunction(self.function):
            work = self._run_async if self.dynamic else self._run_static_async
            return cast(R, work(args, kwargs))
        if self.dynamic:
            return self._run(args, kwargs)
        with runs.plain():
            return self.function(*args, **kwargs)

    def _run(self, args: Any, kwargs: Any) -> R:
        run = self._begin()
        with runs.entered(run), closing(run):
            try:
                value = self.function(*args, **kwargs)
                if inspect.iscoroutine(value):
                    value.close()
                    raise TypeError(f"pipeline {self.name} returns a coroutine: write async def")
                run.wait()
            except BaseException:
                run.stop()
                raise
            return value

    async def _run_async(self, args: Any, kwargs: Any) -> Any:
        run = self._begin()
        with runs.entered(run), closing(run):
            try:
                value = await cast(Any, self.function)(*args, **kwargs)
                await asyncio.to_thread(run.wait)
            except BaseException:
                await asyncio.shield(asyncio.to_thread(run.stop))
                raise
            return value

    async def _run_static_async(self, args: Any, kwargs: Any) -> Any:
        with runs.plain():
            return await cast(Any, self.function)(*args, **kwargs)

    def _begin(self) -> Run:
        orchestrator = self.orchestrator or os.environ.get("CEDE_ORCHESTRATOR") or None
        return Run(self.name, orchestrator, self.client)


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
