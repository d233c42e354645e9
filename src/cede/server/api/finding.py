"""Finds the request that a caller refers to, among those that it may see."""

from __future__ import annotations

from typing import NamedTuple

from cede.model.array import split_task
from cede.model.errors import NotFound
from cede.model.ids import LATEST
from cede.model.request import Request
from cede.server.api.context import Call
from cede.store import RequestView


class Found(NamedTuple):
    """`whole`: the reference is to all tasks of its array."""

    view: RequestView
    whole: bool

    @property
    def ref(self) -> str:
        """The canonical reference, whatever the caller typed."""
        request = self.view.request
        return request.id if self.whole else request.ref


async def find_request(call: Call, ref: str, *, named: bool = False) -> RequestView:
    """Return a request that the caller may see; requests of others do not exist for it.

    `-` and `last` are the caller's latest. A name is enough for reading only: it must not stop work
    that another client gave the same name. `ID_7` is one task of an array.
    """
    return (await find(call, ref, named=named)).view


async def find(call: Call, ref: str, *, named: bool = False) -> Found:
    """Find a request, and whether the reference is to one task: by its number or by its own id."""
    store, bound = call.context.store, call.caller.bound
    try:
        if ref in LATEST:
            ref = await call.context.read(
                store.latest_request, call.caller.identity, subjects=bound
            )
        view = await call.context.read(store.get_request, ref, subjects=bound, named=named)
        return Found(view, view.request.part_of == view.request.id)
    except NotFound:
        task = split_task(ref)
        if task is None:
            raise
    array, number = task
    try:
        first = await find_request(call, array, named=named)
        return Found(await _task(call, first.request, number), False)
    except NotFound:
        raise NotFound("request", ref) from None


async def _task(call: Call, first: Request, number: int) -> RequestView:
    if first.part_of is None:
        raise NotFound("request", first.id)
    store, bound = call.context.store, call.caller.bound
    id_ = await call.context.read(store.task_id, first.part_of, number)
    view: RequestView = await call.context.read(store.get_request, id_, subjects=bound)
    return view
