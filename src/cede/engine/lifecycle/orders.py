"""The orders of a node: the whole list, made from committed state.

Nothing is queued for an agent. It compares what should run with what runs and does the difference;
so losing, repeating or reordering answers does no harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from cede.engine.state.due import keeps
from cede.engine.state.state import State
from cede.model.allocation import Allocation, Member, Phase
from cede.model.amounts import Amounts
from cede.model.array import parse_array
from cede.model.copying import maker
from cede.model.lifecycle import AllocationState
from cede.model.node import Node
from cede.model.pool import Pool
from cede.model.request import OnSilence, Request
from cede.model.stopping import Saved, StopPolicy
from cede.model.work import Work

RUN, HINT, STOP = "run", "hint", "stop"


class Place(NamedTuple):
    """A task's number in its array, and the array's size."""

    array_id: str
    task: int
    tasks: int


@dataclass(frozen=True, slots=True)
class Order:
    """One member's order.

    Checkpoints older than `keep` may be deleted. `resume` is the checkpoint to go on from; None:
    look first, and report what is there. An order to run with a hint means: save yourself, and go
    on. `step` is where all tasks of a gang save, once they agree.
    """

    allocation_id: str
    request_id: str
    attempt: int
    task: int
    do: str
    work: Work
    amounts: Amounts
    devices: Mapping[str, tuple[str, ...]]
    nodes: tuple[str, ...]
    hint: int
    step: int
    until: int  # the instant at which the time for a checkpoint ends
    grace: int
    cause: str
    keep: str
    resume: str | None
    on_silence: OnSilence
    stop_policy: StopPolicy
    walltime: int | None
    pool: str
    subject: str
    owner: str
    array: Place | None = None

    @property
    def asks(self) -> bool:
        """Whether it asks the work to save itself, with a time to do so."""
        return self.hint != 0 and self.do != STOP


_made = maker(Order)


@dataclass(frozen=True, slots=True)
class Load:
    """All that the orders of a node are made of, as of one commit, so that they can be made later,
    and by another thread.
    """

    node: Node
    pool: Pool | None
    held: tuple[tuple[Allocation, Request], ...]
    names: Mapping[str, str]  # of the nodes of gangs, by id

    def orders(self) -> list[Order]:
        """All orders of the node, in a fixed order, without work that its client holds, which is
        not the agent's.
        """
        found = [
            self._order(allocation, member, request)
            for allocation, request in self.held
            if request.work is not None
            for member in allocation.members
            if member.node_id == self.node.id and member.phase is not Phase.ENDED
        ]
        return sorted(found, key=lambda each: (each.allocation_id, each.task))

    def _order(self, allocation: Allocation, member: Member, request: Request) -> Order:
        hint, until, step = _hint(allocation)
        silent = keeps(self.node, request)
        assert request.work is not None and self.pool is not None
        return _made(
            allocation_id=allocation.id,
            request_id=request.id,
            attempt=allocation.attempt,
            task=member.task,
            do=_do(allocation),
            work=request.work,
            amounts=allocation.each,
            devices=member.devices,
            nodes=tuple(self._name(each.node_id) for each in allocation.members),
            hint=hint,
            step=step,
            until=until,
            grace=self.pool.settings.grace,
            cause="" if allocation.reason is None else str(allocation.reason.code),
            keep=_keep(request.saved, allocation),
            resume=_resume(self.node, request, allocation),
            on_silence=OnSilence.KEEP if silent else OnSilence.STOP,
            stop_policy=request.stop_policy,
            walltime=request.walltime,
            pool=self.pool.name,
            subject=str(request.subject),
            owner=request.owner,
            array=_place(request),
        )

    def _name(self, node_id: str) -> str:
        return self.node.name if node_id == self.node.id else self.names[node_id]


def load_of(state: State, node_id: str) -> Load:
    node, requests = state.nodes[node_id], state.requests
    held = tuple([(each, requests[each.request_id]) for each in state.on_node(node)])
    gangs = [each.members for each, _ in held if len(each.members) > 1]
    names = {one.node_id: state.nodes[one.node_id].name for gang in gangs for one in gang}
    pool = None if node.pool_id is None else state.pools[node.pool_id]
    return Load(node, pool, held, names)


def orders(state: State, node_id: str) -> list[Order]:
    return load_of(state, node_id).orders()


def _place(request: Request) -> Place | None:
    if request.array_task is None or request.part_of is None:
        return None
    return Place(request.part_of, request.array_task, len(parse_array(request.array).numbers))


def _keep(saved: Saved | None, allocation: Allocation) -> str:
    """The checkpoint whose predecessors may be deleted; empty if the attempt started from another
    checkpoint than the last known one and has not saved itself since.
    """
    if saved is None or (saved.attempt != allocation.attempt and saved.id != allocation.resume):
        return ""
    return saved.before


def _resume(node: Node, request: Request, allocation: Allocation) -> str | None:
    """The checkpoint to start from. Agents that do not look start from the committed one."""
    if allocation.resume is None and not node.looks_first:
        return "" if request.saved is None else request.saved.id
    return allocation.resume


def _hint(allocation: Allocation) -> tuple[int, int, int]:
    """The number of the present hint, the instant at which its time ends, and the step that tasks
    agreed on; a stop's hint before an ask's.
    """
    if (stop_progress := allocation.stop_progress) is not None:
        return stop_progress.hint, stop_progress.until, stop_progress.step
    ask = allocation.open_ask
    return (0, 0, 0) if ask is None else (ask.number, ask.until, ask.step)


def _do(allocation: Allocation) -> str:
    if allocation.state is AllocationState.CHECKPOINTING:
        return HINT
    stopping = allocation.state is AllocationState.STOPPING
    lost = allocation.state is AllocationState.LOST and allocation.deadline is not None
    return STOP if stopping or lost else RUN
