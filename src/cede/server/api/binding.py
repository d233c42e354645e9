"""The arguments of a handler, from the declaration of its route.

FastAPI's own way to them costs more than most handlers do. So its declarations are read once, when
the route is made, and a valid call goes straight to its handler. An invalid one goes FastAPI's way,
which names the error.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from functools import lru_cache
from typing import Any

from fastapi.dependencies.utils import request_params_to_args
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from cede.server.api.context import CALL_KEY, this_call

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

_JSON = "application/json"
# Of each route: what was last read of so many paths is kept.
_PATHS_MAX = 64


class NotPlain(Exception):
    """A call that FastAPI must look at."""


def bound(route: APIRoute, whole: Handler) -> Handler:
    """The handler of a route: direct where a call is in order, else by `whole`, FastAPI's own. The
    body of a call has been read by then.
    """
    arguments = _Arguments(route)
    act: Callable[..., Coroutine[Any, Any, Response]] = route.endpoint

    async def handle(request: Request) -> Response:
        try:
            given = arguments.of(request)
        except NotPlain:
            return await _whole(request)
        return await act(**given)

    async def _whole(request: Request) -> Response:
        async with AsyncExitStack() as inner, AsyncExitStack() as function:
            # Where FastAPI looks for what is to be closed behind a call; ours leave nothing there.
            request.scope["fastapi_middleware_astack"] = inner
            request.scope["fastapi_inner_astack"] = inner
            request.scope["fastapi_function_astack"] = function
            return await whole(request)

    return handle if arguments.simple else _whole


class _Arguments:
    """The parameters of one route: in its path, in the query, the body, and the call itself."""

    def __init__(self, route: APIRoute) -> None:
        declared = route.dependant
        self._path = declared.path_params
        self._query = declared.query_params
        self._body = declared.body_params[0] if len(declared.body_params) == 1 else None
        self._request = declared.request_param_name
        self._calls = [each.name for each in declared.dependencies if each.name is not None]
        others = (
            *(declared.header_params, declared.cookie_params, declared.body_params[1:]),
            *(declared.response_param_name, declared.background_tasks_param_name),
            [each for each in declared.dependencies if each.call is not this_call],
        )
        self.simple = not any(others)
        self._without_query, wrong = request_params_to_args(self._query, {})
        self._query_needed = bool(wrong)
        # Texts and numbers, so that equal paths may share them.
        self._in_path = lru_cache(maxsize=_PATHS_MAX)(self._of_path)

    def of(self, request: Request) -> dict[str, Any]:
        """By name; raises `NotPlain`."""
        given: dict[str, Any] = {}
        if self._path:
            given |= self._in_path(*request.path_params.items())
        if self._query:
            if request.scope["query_string"] or self._query_needed:
                given |= _read(self._query, request.query_params)
            else:
                given |= self._without_query
        if self._body is not None:
            read = getattr(request, "_json", None)
            if read is None or request.headers.get("content-type") != _JSON:
                raise NotPlain
            given[self._body.name], wrong = self._body.validate(read)
            if wrong:
                raise NotPlain
        if self._request is not None:
            given[self._request] = request
        for name in self._calls:
            given[name] = request.scope[CALL_KEY]
        return given

    def _of_path(self, *given: tuple[str, str]) -> dict[str, Any]:
        return _read(self._path, dict(given))


def _read(fields: Any, values: Any) -> dict[str, Any]:
    found, wrong = request_params_to_args(fields, values)
    if wrong:
        raise NotPlain
    return found
