"""The reports of agents about the work on their nodes, and their effects.

A report that does not match the current attempt on that node changes nothing (S13, C8). Repeating
one does no harm. An allocation is over when all its members are; how it ended is judged once, from
all of them together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cede.engine.lifecycle import endings, resuming, stopping
from cede.engine.lifecycle.stopping import with_member
from cede.engine.state.state import State
from cede.model import bounds
from cede.model.allocation import Allocation, Member, Phase
from cede.model.copying import replace
from cede.model.lifecycle import AllocationState, RequestStatus
from cede.model.node import NodeState
from cede.model.reason import TAKINGS, Code, Reason
from cede.model.request import Request
from cede.model.stopping import EXIT_SAVED

KINDS = (
    "started",
    "answered",
    "progress",
    "deferral",
    "saved",
    "save_failed",
    "ended",
    "refused",
    "found",
    "reach",
)
# Causes with which a machine ends work that was not at fault.
SILENT = "node_lost"  # its agent was silent for longer than its lease
MACHINE = frozenset({"infrastructure", "keeper_lost", "lease", SILENT, "refused"})
EXITED = "exited"  # it ended by itself
STOPPED = frozenset({"stopped", "killed"})  # it was told to stop
WALLTIME = "walltime"
NEVER_STARTED = "never_started"  # it was told to stop before it started
START_FAILED = "start_failed"  # there is no such program, or this node must not run it
# Causes with which a bridge's cluster ends work: by itself, by a command or a bound, or before the
# start because others were faster.
CLUSTER_FAILED, CLUSTER_ENDED, CLUSTER_BUSY = "cluster_failed", "cluster_ended", "cluster_busy"
CLUSTER = frozenset({CLUSTER_FAILED, CLUSTER_ENDED, CLUSTER_BUSY})
WHY_MAX = 200


@dataclass(frozen=True, slots=True)
class Report:
    """One message of an agent about a task.

    `seconds` are milliseconds of a deferral that is asked for; `ids` are the verified checkpoints
    that the agent found before the start, newest first; `unread`: what the task left was not
    verified in time; `devices` are those that a bridge's cluster chose for it.
    """

    allocation_id: str
    attempt: int
    task: int
    kind: str
    exit_code: int | None = None
    cause: str = ""
    checkpoint: str = ""
    size: int = 0
    hint: int = 0  # the hint that a checkpoint answers; 0: written unasked
    seconds: int = 0
    text: str = ""
    ids: tuple[str, ...] = ()
    step: int = 0
    unread: bool = False
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def take(state: State, node_id: str, report: Report, now: int) -> bool:
    """Apply a report; False if it is not of a current attempt on that node."""
    state.now = now
    allocation = state.allocations.get(report.allocation_id)
    if not _is_current(allocation, node_id, report):
        state.emit("stale_report", node=node_id, report=report.kind, of=report.allocation_id[:128])
        return False
    assert allocation is not None
    if report.kind == "started":
        if report.devices and state.nodes[node_id].bridge:
            allocation = _with_devices(state, allocation, report)
        _started(state, allocation, report.task)
    elif report.kind in ("ended", "refused"):
        cause = "refused" if report.kind == "refused" else report.cause
        unread = report.unread
        ended(state, allocation, report.task, report.exit_code, cause, report.text, unread=unread)
    elif report.kind == "saved":
        stopping.save(
            state, allocation, report.task, report.checkpoint, report.size, hint=report.hint
        )
    elif report.kind == "deferral":
        stopping.defer(state, allocation, report.seconds, report.text)
    elif report.kind == "found":
        resuming.found(state, allocation, report.task, report.ids, report.text)
    elif report.kind == "reach":
        stopping.reach(state, allocation, report.task, report.hint, report.step)
    elif report.kind == "save_failed":
        _note(state, "save_failed", allocation, why=report.text)
    else:  # an estimate or progress: a sign of life
        stopping.answer(state, allocation)
    return True


def _is_current(allocation: Allocation | None, node_id: str, report: Report) -> bool:
    if allocation is None or not allocation.live or allocation.attempt != report.attempt:
        return False
    if not 0 <= report.task < len(allocation.members):
        return False
    member = allocation.members[report.task]
    # S16: an exit is recorded once, and an ended member reports nothing more.
    return member.node_id == node_id and member.phase is not Phase.ENDED


def _started(state: State, allocation: Allocation, task: int) -> None:
    member = allocation.members[task]
    if member.phase is not Phase.ASSIGNED:
        return
    allocation = with_member(allocation, replace(member, phase=Phase.STARTED))
    node = state.nodes[member.node_id]
    if node.failures:
        state.put(replace(node, failures=0))
    found = allocation.state is AllocationState.RUNNING and allocation.started_at is None
    if allocation.state in (AllocationState.GRANTED, AllocationState.STARTING) or found:
        all_run = all(each.phase is not Phase.ASSIGNED for each in allocation.members)
        became = AllocationState.RUNNING if all_run or found else AllocationState.STARTING
        started_at = state.now if all_run else None
        allocation = replace(allocation, state=became, started_at=started_at)
        if all_run:
            _note(state, "started", allocation)
    state.put(allocation)


def _with_devices(state: State, allocation: Allocation, report: Report) -> Allocation:
    """The allocation with the devices that a bridge's cluster chose (S3): as many as were granted,
    and none that a live task has.
    """
    member = allocation.members[report.task]
    node, given = state.nodes[member.node_id], report.devices
    wanted = {key: n for key, n in allocation.each.items() if key in node.scarce and n}
    held = {
        (key, name)
        for other in state.on_node(node)
        for each in other.members
        if each.node_id == node.id and (other.id, each.task) != (allocation.id, member.task)
        for key, names in each.devices.items()
        for name in names
    }
    pairs = [(key, name) for key, names in given.items() for name in names]
    counted = all(len(given.get(key, ())) in (0, n) for key, n in wanted.items())
    known = given.keys() <= wanted.keys() and len(set(pairs)) == len(pairs)
    if not counted or not known or not held.isdisjoint(pairs):
        text = ", ".join(f"{key} {name}" for key, name in pairs)
        _note(state, "device_conflict", allocation, node=node.name, devices=text[:WHY_MAX])
        return allocation
    allocation = with_member(allocation, replace(member, devices=dict(given)))
    state.put(allocation)
    return allocation


def ended(
    state: State,
    allocation: Allocation,
    task: int,
    exit_code: int | None,
    cause: str,
    text: str = "",
    *,
    unread: bool = False,
) -> None:
    """End a member, and its allocation with the last one.

    Members of a gang do not outlive one that failed; one that left to save itself leaves the others
    the time to do the same.
    """
    member = replace(
        allocation.members[task],
        phase=Phase.ENDED,
        exit_code=exit_code,
        cause=cause or EXITED,
        unread=unread or cause == SILENT,
    )
    allocation = with_member(allocation, member)
    state.put(allocation)
    _note(state, "task_ended", allocation, task=task, exit_code=exit_code, cause=member.cause)
    if member.cause in ("infrastructure", "refused"):
        _count_failure(state, member, text)
    if all(each.phase is Phase.ENDED for each in allocation.members):
        _conclude(state, allocation, text)
    elif not _clean(member) and allocation.state is not AllocationState.STOPPING:
        if _left(member):
            _let_others_save(state, allocation)
        elif state.requests[allocation.request_id].status is RequestStatus.PREEMPTING:
            stopping.stop_now(state, allocation)  # it was stopping before, and for that reason
        else:
            stopping.request_stop(state, allocation.id, _fault(state, member, text), taken_for=None)


def _let_others_save(state: State, allocation: Allocation) -> None:
    """Ask the other tasks of a gang to save themselves too, after one has left to do so."""
    asked = allocation.stop_progress
    if asked is None:
        left = Reason(Code.WORK_LEFT)
        stopping.request_stop(state, allocation.id, left, taken_for=None, saves=True)
    elif stopping.has_answered(allocation, asked.hint, asked.hint):
        stopping.conclude_saving(state, allocation)


def _conclude(state: State, allocation: Allocation, text: str) -> None:
    """End an allocation, judged from all its members. `text` is the last member's: an earlier
    failure has already stopped the gang, with its own text in the reason.
    """
    request = state.requests[allocation.request_id]
    members = allocation.members
    faulty = next((each for each in members if not _clean(each) and not _left(each)), None)
    faulty = faulty or next((each for each in members if not _clean(each)), None)
    asked = allocation.stop_progress
    if faulty is None:
        endings.finish(state, request, RequestStatus.RELEASED, None)
    elif request.cancelled:
        endings.finish(state, request, RequestStatus.CANCELLED, request.reason)
    elif asked is not None and asked.saved:
        endings.stopped(state, request, allocation, saved=True)
    elif any(map(_left, members)) and all(_left(m) or _obeyed(m) or _clean(m) for m in members):
        endings.left(state, request, allocation)
    elif _is_victim(allocation) and (not _was_asked(allocation) or _is_unstarted(members)):
        _conclude_victim(state, request, allocation)
    elif request.status is not RequestStatus.PREEMPTING and _obeyed(faulty):
        # Only a server whose database was replaced by an older copy can have told it to stop.
        cause = {"node": state.nodes[faulty.node_id].name, "cause": faulty.cause}
        endings.lost(state, request, allocation, Reason(Code.NODE_LOST, cause))
    else:
        _conclude_faulty(state, request, allocation, _fault(state, faulty, text))


def _was_asked(allocation: Allocation) -> bool:
    """Whether it ended within its time to save itself."""
    return allocation.state is AllocationState.CHECKPOINTING


def _is_unstarted(members: Sequence[Member]) -> bool:
    """Whether a task was not started because it was to stop, which is no fault."""
    return any(each.cause == NEVER_STARTED for each in members)


def _is_victim(allocation: Allocation) -> bool:
    """Whether it was taken, judged by the rule, because its beneficiary may be gone by now."""
    return allocation.reason is not None and allocation.reason.code in TAKINGS


def _conclude_victim(state: State, request: Request, allocation: Allocation) -> None:
    """End a victim that has saved nothing."""
    by_itself = all(each.exit_code == 0 for each in allocation.members)
    failed_alone = [
        each
        for each in allocation.members
        if each.cause == EXITED and each.exit_code and not _left(each)
    ]
    if by_itself and request.stop_policy.interruptible:
        endings.finish(state, request, RequestStatus.RELEASED, None)
    elif any(each.unread or each.cause in MACHINE | CLUSTER for each in allocation.members):
        # It could not save itself, or that is unknown: its next attempt looks.
        endings.stopped(state, request, allocation)
    elif allocation.stop_progress is not None and allocation.stop_progress.failed:
        endings.failed_for(state, request, allocation, stopping.failed_reason(request))
    elif failed_alone and allocation.stop_progress is not None:
        endings.failed(state, request, allocation, failed_alone[0].exit_code)
    else:
        endings.stopped(state, request, allocation)


def _conclude_faulty(state: State, request: Request, allocation: Allocation, fault: Reason) -> None:
    stop_progress = request.status is RequestStatus.PREEMPTING and not _is_victim(allocation)
    first = request.reason if stop_progress else None  # a victim that fails by itself is no victim
    reason = first or fault
    if reason.code is Code.CLUSTER_BUSY:
        endings.put_back(state, request, allocation, reason)
    elif reason.code is Code.NODE_LOST or _is_of_cluster(allocation, reason):
        endings.lost(state, request, allocation, reason)
    elif reason.code is Code.WALLTIME:
        endings.finish(state, request, RequestStatus.FAILED, reason)
    else:
        endings.failed_for(state, request, allocation, reason)


def _is_of_cluster(allocation: Allocation, reason: Reason) -> bool:
    """Whether a bridge's cluster ended it by itself."""
    by_itself = any(each.cause == CLUSTER_FAILED for each in allocation.members)
    return reason.code is Code.CLUSTER_ENDED and by_itself


def _fault(state: State, member: Member, text: str) -> Reason:
    """The reason of a member that did not end well."""
    name = state.nodes[member.node_id].name
    if member.cause in CLUSTER:
        code = Code.CLUSTER_BUSY if member.cause == CLUSTER_BUSY else Code.CLUSTER_ENDED
        return Reason(code, {"node": name, "why": text[:WHY_MAX] or member.cause})
    if member.cause in MACHINE:
        return Reason(Code.NODE_LOST, {"node": name, "cause": member.cause})
    if member.cause == WALLTIME:
        return Reason(Code.WALLTIME, {"node": name})
    shown = "unknown" if member.exit_code is None else member.exit_code
    if member.cause == START_FAILED and text:
        why = {"node": name, "why": text[:WHY_MAX], "exit_code": shown}
        return Reason(Code.NOT_STARTED, why)
    return Reason(Code.WORK_FAILED, {"exit_code": shown})


def _left(member: Member) -> bool:
    """Whether it ended by itself and reports by its exit code that it has saved its work."""
    return member.exit_code == EXIT_SAVED and member.cause == EXITED


def _obeyed(member: Member) -> bool:
    return member.cause in STOPPED


def _clean(member: Member) -> bool:
    return member.phase is not Phase.ENDED or (member.exit_code == 0 and member.cause == EXITED)


def _count_failure(state: State, member: Member, text: str) -> None:
    """Count a failed start; a machine that cannot start anything takes no more work for a while, or
    until an operator enables it.
    """
    node = state.nodes[member.node_id]
    node = replace(node, failures=node.failures + 1)
    if node.failures >= bounds.NODE_FAILURES_MAX and node.state is NodeState.READY:
        again = f"tried again every {bounds.NODE_RETRY // bounds.MINUTE} minutes"
        why = f"cannot start work: {text[:WHY_MAX]} ({again}; now: cede node enable {node.name})"
        node = replace(node, state=NodeState.DEGRADED, reason=why)
        state.emit("node_degraded", pool_id=node.pool_id, node=node.name, reason=node.reason)
    state.put(node)


def _note(state: State, kind: str, allocation: Allocation, **data: object) -> None:
    known = {key: value for key, value in data.items() if value is not None}
    state.emit(kind, request_id=allocation.request_id, pool_id=allocation.pool_id, **known)
