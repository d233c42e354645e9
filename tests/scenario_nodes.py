"""What stories say about nodes, and about the work that agents run on them.

    node n1..n3 4 gpu 8000 mcpu in gpus group a   labelled pool=gpus; also: label, fingerprint
    node n4 4 in gpus folder f1                   an agent that looks for checkpoints first
    pool gpus nodes grace 30s                     the nodes with that label
    red runs r1 of 2 tasks 4 per_node 2 want type=a100 topology tight
    red runs r2 of 2 checkpoint auto timeout 600s deferral 300s interruptible
    red runs r3 of 2 checkpoint auto resume required wait 60s
    r1 starts        all its tasks; `r1/0 starts` is one of them
    r1/1 exits 3     by itself; `done` and `fails` are exit codes 0 and 1
    r1 unstartable   there is no such program
    r1 stops         because it was told to, by SIGTERM; `quits`: with exit code 0
    r1 dies lease    for its machine's fault; `refused`, `infrastructure`, …
    r1 answers; r1 defers 60s; r1 saves c1 (as it was asked to); r1 keeps c1 (of its own accord)
    r1 botches       a save failed
    r1/0 finds c2,c1 verified checkpoints before the start, newest first; `nothing`: none
    r1/0 reaches 12  the first step at which a task of a gang can save
    r1 unread        stopped, and what it left could not be verified in time
    n1 silent; n1 heard; n1 drains; n1 undrains; n1 disabled; n1 enabled; n1 retried
    n1 n2 claimed by ann; n1 n2 unclaimed         `owner ann` is whose a request is
    delete node n1 force

What changes is `saving r1`, `suspended r1`, `degraded n1`; facts are `on r1 n1 n2` (where its tasks
sit), `ordered r1 hint`, `resumes r1 c1`, `starts_from r1 c1` (as its agents are told; `look` before
that), `keeps_from r1 c1` (older ones may go), `agreed r1 12`, `names r1 n2` (its reason does),
`lost_count r1 1`. Nodes that are not silent are heard of as time passes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cede.engine.admin import claims, fleet
from cede.engine.explain.why import why
from cede.engine.lifecycle import commands, reports
from cede.engine.lifecycle.orders import Order, orders
from cede.engine.state.state import State
from cede.model.allocation import Phase
from cede.model.errors import NotFound
from cede.model.request import PLAIN, Request
from cede.model.shape import Shape, Topology
from cede.model.stopping import Checkpoint, Resume, StopPolicy
from cede.model.work import Work
from tests.scenario_words import labels_of, milliseconds, names_in, options_of


class Untrue(AssertionError):
    """The engine did something else than the story says."""


def how(amounts: dict[str, int], options: dict[str, str], runs: bool) -> dict[str, Any]:
    """How a demand sits, what runs and how it parts."""
    per_node = options.get("per_node")
    shape = Shape(
        amounts,
        int(options.get("tasks", 1)),
        None if per_node is None else int(per_node),
        labels_of(options.get("want", "")),
        options.get("fingerprint", ""),
        Topology(options.get("topology", "tight")),
    )
    stop_policy = StopPolicy(
        checkpoint=Checkpoint(options.get("checkpoint", "none")),
        timeout=milliseconds(options["timeout"]) if "timeout" in options else PLAIN.timeout,
        deferral_max=milliseconds(options["deferral"])
        if "deferral" in options
        else PLAIN.deferral_max,
        interruptible="interruptible" in options,
        resume=Resume(options.get("resume", "preferred")),
        resume_wait=milliseconds(options["wait"]) if "wait" in options else PLAIN.resume_wait,
    )
    return {
        "shape": None if shape == Shape(amounts) else shape,
        "work": Work(("train",)) if runs else None,
        "stop_policy": stop_policy,
    }


def about_nodes(state: State, words: list[str]) -> bool:
    """Whether a line is about a node, or about work that agents run or a client may save."""
    if words[0] == "node" or words[:2] == ["delete", "node"] or words[0] in state.nodes:
        return True
    request = state.requests.get(words[0].partition("/")[0])
    return request is not None and (
        request.work is not None or (len(words) > 1 and words[1] in _SAID)
    )


def act(state: State, words: list[str], now: int, silent: set[str]) -> list[str]:
    """Do what a line says; whose condition may change by it without being named."""
    match words:
        case ["node", names, *rest]:
            for name in names_in(names):
                _register(state, name, rest, now)
            return names_in(names)
        case ["delete", "node", name, *force]:
            fleet.delete(state, name, now, force=bool(force))
            return [name]
        case [*names, "claimed", "by", who] if names[0] in state.nodes:
            claims.claim(state, names, who, now)
            return []
        case [*names, "unclaimed"] if names[0] in state.nodes:
            claims.unclaim(state, names, now)
            return []
        case [*names, verb] if names[0] in state.nodes:
            for name in names:
                _NODE[verb](state, name, now, silent)
            return []
        case [*names, verb, detail] if verb in _DETAILED:
            for name in names:
                _report(state, name, verb, detail, now)
            return [each.partition("/")[0] for each in names]
        case [*names, verb]:
            for name in names:
                _report(state, name, verb, "", now)
            return [each.partition("/")[0] for each in names]
    raise AssertionError(words)


def _register(state: State, name: str, words: list[str], now: int) -> None:
    amounts, options = options_of(words)
    labels = labels_of(options.get("label", ""))
    fleet.register(
        state,
        id=name,
        name=name,
        amounts=amounts,
        devices={"gpu": [str(each) for each in range(amounts.get("gpu", 0))]}
        if "gpu" in amounts
        else {},
        labels={**labels, **({"pool": options["in"]} if "in" in options else {})},
        group=options.get("group", ""),
        fingerprint=options.get("fingerprint", ""),
        boot=options.get("boot", ""),
        folder=options.get("folder", ""),
        protocol=2 if "folder" in options else 1,
        now=now,
        caller=fleet.Caller(own="boot" not in options),
    )


def _fall_silent(state: State, name: str, now: int, silent: set[str]) -> None:
    silent.add(name)


def _be_heard(state: State, name: str, now: int, silent: set[str]) -> None:
    silent.discard(name)
    fleet.heard(state, name, now)


_NODE: dict[str, Callable[[State, str, int, set[str]], object]] = {
    "silent": _fall_silent,
    "heard": _be_heard,
    "drains": lambda state, name, now, _: fleet.drain(state, name, now, "somebody asked"),
    "undrains": lambda state, name, now, _: fleet.undrain(state, name, now),
    "disabled": lambda state, name, now, _: fleet.disable(state, name, now, "somebody asked"),
    "retried": lambda state, name, now, _: fleet.heard(state, name, now, retry=True),
    "enabled": lambda state, name, now, _: fleet.enable(state, name, now),
}


def hear(state: State, now: int, silent: set[str]) -> None:
    """Every node that is not silent sends its heartbeat."""
    for name in state.nodes:
        if name not in silent:
            fleet.heard(state, name, now)


# Reports --------------------------------------------------------------------------------------

_SAID = {"answers": "answered", "defers": "deferral", "saves": "saved", "keeps": "saved"}
_KINDS = {**_SAID, "starts": "started", "botches": "save_failed"}
_KINDS |= {"finds": "found", "reaches": "reach"}
_DETAILED = ("exits", "saves", "keeps", "defers", "dies", "finds", "reaches")
_ENDS = {
    "done": (0, "exited"),
    "fails": (1, "exited"),
    "stops": (143, "stopped"),
    "quits": (0, "stopped"),
    "unstartable": (126, "start_failed"),
    "unread": (143, "stopped"),
}


def _report(state: State, name: str, verb: str, detail: str, now: int) -> None:
    """One task says so, or all that have not ended."""
    request_id, _, task = name.partition("/")
    allocation = state.allocation_of(request_id)
    if allocation is None:
        raise NotFound("holder", request_id)
    hint = 0 if allocation.stop_progress is None else allocation.stop_progress.hint
    if state.requests[request_id].work is None:
        said = _said(verb, detail, hint)
        commands.said(state, request_id, said, now, attempt=allocation.attempt)
        return
    tasks = [int(task)] if task else range(len(allocation.members))
    for each in tasks:
        member = allocation.members[each]
        current = state.allocations.get(allocation.id)
        if current is None or not current.live or current.members[each].phase is Phase.ENDED:
            continue
        report = _made(allocation.id, allocation.attempt, each, verb, detail, hint)
        if not reports.take(state, member.node_id, report, now):
            raise Untrue(f"a report of {name} was stale")


def _made(
    allocation_id: str, attempt: int, task: int, verb: str, detail: str, hint: int
) -> reports.Report:
    if verb in _KINDS:
        return reports.Report(
            allocation_id,
            attempt,
            task,
            _KINDS[verb],
            checkpoint=detail if verb in ("saves", "keeps") else "",
            hint=hint if verb in ("saves", "reaches") else 0,
            seconds=milliseconds(detail) if verb == "defers" else 0,
            ids=tuple(detail.split(",")) if verb == "finds" and detail != "nothing" else (),
            step=int(detail) if verb == "reaches" else 0,
            text="c9: model: its SHA-256 is another" if verb == "finds" else "",
        )
    code: int | None
    if verb == "exits":
        code, cause = int(detail), "exited"
    elif verb == "dies":
        code, cause = None, detail
    else:
        code, cause = _ENDS[verb]
    text = "there is no such program" if cause == "start_failed" else ""
    unread = verb == "unread"
    return reports.Report(
        allocation_id, attempt, task, "ended", code, cause, text=text, unread=unread
    )


def _said(verb: str, detail: str, hint: int) -> commands.Said:
    return commands.Said(
        _SAID[verb],
        seconds=milliseconds(detail) if verb == "defers" else 0,
        checkpoint=detail if verb in ("saves", "keeps") else "",
        hint=hint if verb == "saves" else 0,
    )


# Facts ----------------------------------------------------------------------------------------


def _same(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise Untrue(f"{what} is {found}, not {expected}")


def _on(state: State, request: Request, words: list[str]) -> list[str]:
    allocation = state.allocation_of(request.id)
    members = () if allocation is None else allocation.members
    _same(f"place of {request.id}", sorted(each.node_id for each in members), sorted(words))
    return []


def _tasks_on(state: State, request: Request, words: list[str]) -> list[str]:
    allocation = state.allocation_of(request.id)
    members = () if allocation is None else allocation.members
    _same(f"nodes of {request.id}'s tasks", [each.node_id for each in members], words)
    return []


def _promised(state: State, request: Request, words: list[str]) -> list[str]:
    mark = request.earmark
    found = [] if mark is None else [each for each, tasks in mark.footprint for _ in range(tasks)]
    _same(f"promise of {request.id}", sorted(found), sorted(words))
    return []


def _ordered(state: State, request: Request, words: list[str]) -> list[str]:
    given = {each.do for each in _orders_of(state, request)}
    _same(f"order of {request.id}", sorted(given), sorted(words))
    return []


def _resumes(state: State, request: Request, words: list[str]) -> list[str]:
    found = "nothing" if request.saved is None else request.saved.id
    _same(f"checkpoint of {request.id}", found, words[0])
    return []


def _starts_from(state: State, request: Request, words: list[str]) -> list[str]:
    told = {each.resume for each in _orders_of(state, request)}
    start = {"look": None, "nothing": ""}.get(words[0], words[0])
    _same(f"start of {request.id}", told, {start})
    return []


def _keeps_from(state: State, request: Request, words: list[str]) -> list[str]:
    kept = {each.keep for each in _orders_of(state, request)}
    _same(f"what {request.id} keeps", kept, {"" if words[0] == "everything" else words[0]})
    return []


def _agreed(state: State, request: Request, words: list[str]) -> list[str]:
    steps = {each.step for each in _orders_of(state, request)}
    _same(f"step of {request.id}", steps, {int(words[0])})
    return []


def _orders_of(state: State, request: Request) -> list[Order]:
    allocation = state.allocation_of(request.id)
    nodes = {} if allocation is None else dict.fromkeys(m.node_id for m in allocation.members)
    given = [each for node_id in nodes for each in orders(state, node_id)]
    return [each for each in given if each.request_id == request.id]


def _says(state: State, request: Request, words: list[str]) -> list[str]:
    reason = request.reason.to_public() if request.reason else {}
    if not request.ended:
        reason = why(state, request.id, state.now)["reason"] or {}
    for word in words:
        if word not in reason.get("text", ""):
            raise Untrue(f"{request.id} is told {reason.get('text')}, which does not name {word}")
    return []


def _lost_count(state: State, request: Request, words: list[str]) -> list[str]:
    _same(f"lost_count of {request.id}", request.lost_count, int(words[0]))
    return []


def _left(state: State, request: Request, words: list[str]) -> list[str]:
    """Seconds until its stop's present step is over."""
    allocation = state.allocation_of(request.id)
    asked = None if allocation is None else allocation.stop_progress
    found = None if asked is None else asked.until - state.now
    _same(f"time of {request.id}", found, milliseconds(words[0]))
    return []


FACTS: dict[str, Callable[[State, Request, list[str]], list[str]]] = {
    "on": _on,
    "tasks_on": _tasks_on,
    "promised": _promised,
    "ordered": _ordered,
    "resumes": _resumes,
    "starts_from": _starts_from,
    "keeps_from": _keeps_from,
    "agreed": _agreed,
    "names": _says,
    "lost_count": _lost_count,
    "left": _left,
}
