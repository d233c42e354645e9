"""The resume point of an attempt, decided from what its agents found in their folders.

The folder is the truth, and the server knows only the last report of it. So every attempt but the
first begins with a look: each agent verifies the checkpoints in the folder, and the newest one that
all tasks have is committed as the resume point before anything starts (S17).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cede.engine.lifecycle import endings
from cede.engine.lifecycle.stopping import folders_of, with_member
from cede.engine.state.state import State
from cede.model import bounds
from cede.model.allocation import Allocation, Member
from cede.model.copying import replace
from cede.model.lifecycle import RequestStatus
from cede.model.reason import Code, Reason
from cede.model.request import Request
from cede.model.stopping import Checkpoint, Resume, Saved, age

WHY_MAX = 200


def first_point(state: State, request: Request, members: Iterable[Member]) -> str | None:
    """The resume point of a new allocation; None: its agents look first. Agents that do not look
    start from the committed one.
    """
    if request.stop_policy.checkpoint is Checkpoint.NONE or request.attempt == 1:
        return ""
    if request.work is None or not all(state.nodes[each.node_id].looks_first for each in members):
        return "" if request.saved is None else request.saved.id
    return None


def found(
    state: State, allocation: Allocation, task: int, ids: Sequence[str], problems: str
) -> None:
    """Apply the checkpoints that one task's agent has verified, newest first; the last task's
    report decides the resume point. A task that is stopped before it started looks again the next
    time.
    """
    if allocation.resume is not None or allocation.leaving:
        return
    known = tuple(reversed(ids[: bounds.CHECKPOINTS_KNOWN_MAX]))
    member = replace(allocation.members[task], ids=known, looked=True)
    allocation = with_member(allocation, member)
    state.put(allocation)
    request = state.requests[allocation.request_id]
    if problems:
        state.emit(
            "checkpoint_unreadable",
            request_id=request.id,
            pool_id=allocation.pool_id,
            node=state.nodes[member.node_id].name,
            why=problems[:WHY_MAX],
        )
    if all(each.looked for each in allocation.members):
        _decide(state, request, allocation, problems)


def _decide(state: State, request: Request, allocation: Allocation, problems: str) -> None:
    point, saved = allocation.common, request.saved
    if saved is not None and not point and request.stop_policy.resume is Resume.REQUIRED:
        names = ", ".join(state.nodes[each.node_id].name for each in allocation.members)
        why = problems[:WHY_MAX] or f"it is not in the folder of {names}"
        detail = {"checkpoint": saved.id, "why": why}
        endings.finish(state, request, RequestStatus.FAILED, Reason(Code.RESUME_FAILED, detail))
        return
    if point and (saved is None or age(point) > age(saved.id)):
        index, folders = state.next_index(), folders_of(state, allocation)
        found = Saved(id=point, at=state.now, index=index, folders=folders)
        state.put(replace(request, saved=found))
    # A checkpoint missing here may be elsewhere, so it stays known until this attempt has saved
    # itself.
    if point != ("" if saved is None else saved.id):
        state.emit(
            "resume_point",
            request_id=request.id,
            pool_id=allocation.pool_id,
            checkpoint=point or None,
            instead_of=None if saved is None else saved.id,
        )
    state.put(replace(allocation, resume=point))


def found_by_holder(state: State, request: Request, ids: Sequence[str]) -> None:
    """Apply the checkpoints that the client of held work has verified; the work has already chosen,
    and starts from the first.
    """
    saved = request.saved
    if ids and (saved is None or age(ids[0]) > age(saved.id)):
        found = Saved(id=ids[0], at=state.now, index=state.next_index())
        state.put(replace(request, saved=found))
