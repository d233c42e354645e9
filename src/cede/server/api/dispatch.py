"""From a call's method and path to its route, by tables that are made once."""

from __future__ import annotations

from re import Pattern

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from cede.model.errors import CedeError
from cede.server.api.context import CALL_KEY, Context
from cede.server.api.errors import problem_of, respond
from cede.server.api.problem import Problem
from cede.server.api.route import CedeRoute, StrictRequest
from cede.store import Damaged, DiskFull

# What is answered as a problem; any other error is our own mistake, and the edge's.
ANSWERED = (Problem, CedeError, DiskFull, Damaged, RequestValidationError, HTTPException)


class Dispatch:
    """The routes of an app. `otherwise` answers what none of them is: no such path or method."""

    def __init__(self, app: FastAPI, otherwise: ASGIApp) -> None:
        self._app = app
        self._context: Context = app.state.cede
        self._otherwise = otherwise
        self._fixed: dict[tuple[str, str], CedeRoute] = {}
        # By method and number of slashes, which are the same in a path and its pattern.
        self._patterns: dict[tuple[str, int], list[tuple[Pattern[str], CedeRoute]]] = {}
        for route in app.routes:
            assert isinstance(route, CedeRoute), f"{route} would pass by who may call what"
            for method in route.methods or ():
                self._add(method, route)

    def _add(self, method: str, route: CedeRoute) -> None:
        patterns = self._patterns.setdefault((method, route.path.count("/")), [])
        if route.param_convertors:
            patterns.append((route.path_regex, route))
        else:
            earlier = [each.path for pattern, each in patterns if pattern.match(route.path)]
            assert not earlier, f"{method} {route.path} is hidden by {earlier}"
            self._fixed.setdefault((method, route.path), route)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._otherwise(scope, receive, send)
            return
        route = self._find(scope)
        if route is None:
            await self._otherwise(scope, receive, send)
            return
        scope["app"] = self._app
        scope["route"] = route
        try:
            try:
                response = await route.respond(self._context, StrictRequest(scope, receive))
            except ANSWERED as error:
                response = respond(problem_of(error))
                _forget_frames(error)
            await response(scope, receive, send)
        finally:
            scope.pop(CALL_KEY, None)  # which leads back to the scope

    def _find(self, scope: Scope) -> CedeRoute | None:
        method, path = scope["method"], scope["path"]
        if (route := self._fixed.get((method, path))) is not None:
            scope["path_params"] = {}
            return route
        for pattern, route in self._patterns.get((method, path.count("/")), ()):
            if found := pattern.match(path):
                scope["path_params"] = found.groupdict()
                return route
        return None


def _forget_frames(error: BaseException | None) -> None:
    """An error leads to the frames that it passed, and some of them back to it. Without them what a
    refused call had read is free at once, not when somebody looks for garbage.
    """
    while error is not None:
        error.__traceback__ = None
        error = error.__context__
