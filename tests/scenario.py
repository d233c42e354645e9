"""Stories in text, told to the real engine.

A line is something that happens and, after `->`, everything that changes by it. A request that
changes and is not named is a failure, so a story cannot overlook a victim. After every line the
audit recounts the whole state, every waiter is asked why it waits, one of those who wait alike is
told what would start it unless one was that waited for the same, and a snapshot is taken, read back
and compared.

    pool gpus 8 min_run 30s
      team red  reserved 4 limit 8 priority 10
    red submits r1..r3 of 2          -> running r1 r2 r3
    blue submits b1 of 4 fixed       -> stopping r3, earmark b1
    red submits r5 of 2              -> waiting r5 (earmarked)
    r3 stops                         -> running b1, waiting r3
    after 30s
    edit red limit 4                 -> refused (invalid)
    at rest

`red submits r1..r3 of 2 together` is one request with three independent tasks, `at_once 2` behind
it an array of which two may run at once. `after r1,r2` and `after_any r1` name what a request
follows. Amounts are `2`, meaning GPUs, or `2 gpu 4000 mcpu`. Teams and requests may have settings
of their own, by name. Leases are `none` unless a line says otherwise; holders and waiters with a
lease renew it as time passes, until the story says `r1 silent`. What happens on nodes
is in `tests/scenario_nodes.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cede.engine.admin import edits
from cede.engine.audit import audit
from cede.engine.decide import decide
from cede.engine.explain.why import why
from cede.engine.lifecycle import commands
from cede.engine.rights.standing import BORROWED, IN_SHARE
from cede.engine.state.changes import Event
from cede.engine.state.state import State
from cede.model.durations import seconds
from cede.model.errors import CedeError, Conflict, Invalid
from cede.model.lifecycle import AllocationState, RequestStatus
from cede.model.request import OnSilence, Preemptions, Request, Retry
from cede.model.subject import Subject
from cede.snapshot.reader import load
from cede.snapshot.writer import dump
from tests import scenario_classes, scenario_nodes
from tests.scenario_nodes import Untrue
from tests.scenario_words import (
    amounts_of,
    labels_of,
    milliseconds,
    names_in,
    options_of,
    policy_words,
    settings_of,
    terms_of,
)

__all__ = ["Story", "Untrue", "ranked", "tell"]


def tell(
    text: str, note: Callable[[Any], None] = lambda _: None, *, thorough: bool = True
) -> Story:
    """Run a whole story; the state at its end is in the answer. `note` hears every reason given.

    After every line a `thorough` one reads a snapshot back and tries what would start who waits.
    """
    story = Story(note=note, thorough=thorough)
    for number, line in enumerate(text.splitlines(), 1):
        if line := line.partition("#")[0].strip():
            story.line(number, line)
    return story


@dataclass
class Story:
    state: State = field(default_factory=State)
    now: int = 0
    pool: str = ""
    ended: dict[str, Request] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    silent: set[str] = field(default_factory=set)
    lines: list[str] = field(default_factory=list)
    note: Callable[[Any], None] = lambda _: None
    tried: set[tuple[str, str]] = field(default_factory=set)
    thorough: bool = True

    # One line ---------------------------------------------------------------------------------

    def line(self, number: int, line: str) -> None:
        self.lines.append(line)
        action, _, expected = (part.strip() for part in line.partition("->"))
        before = self.conditions()
        mark = self.state.mark()
        refusal: CedeError | None = None
        try:
            actors = self.act(action.split())
        except CedeError as error:
            self.state.undo(mark)
            refusal, actors = error, []
        self.settle()
        try:
            self.check(expected, refusal, before, actors)
            self.check_always()
        except Untrue as error:
            raise Untrue(f"line {number}: {line}\n  {error}\n\n{self.told()}") from None

    def settle(self) -> None:
        """Passes until nothing more is due at this instant."""
        for _ in range(100):
            plan = decide(self.state, self.now)
            self.remember()
            if not plan.again:
                return
        raise Untrue("a hundred passes at one instant")

    def remember(self) -> None:
        changes = self.state.drain()
        self.events += changes.events
        for rows in (changes.requests.inserted, changes.requests.updated):
            self.ended.update({each.id: each for each in rows if each.ended})

    # Acting -----------------------------------------------------------------------------------

    def act(self, words: list[str]) -> list[str]:
        """Do what a line says; whose condition may change by it without being named."""
        match words:
            case ["pool", name, *rest]:
                self.pool = name
                self.create_pool(name, rest)
            case ["team", name, "in", pool, *rest]:
                self.attach(name, pool, rest)
            case ["team", name, *rest]:
                self.attach(name, self.pool, rest)
            case ["tenant", name, *rest]:
                scenario_classes.tenant(self.state, name, rest)
            case ["detach", name, "in", pool]:
                edits.detach_policy(self.state, f"{pool}/{name}")
            case ["delete", "pool", name]:
                edits.delete_pool(self.state, name)
            case ["edit", "pool", name, "nodes", labels]:
                edits.update_pool(self.state, name, nodes=labels_of(labels))
            case ["edit", "pool", name, *rest]:
                self.edit_pool(name, rest)
            case ["edit", name, "in", pool, *rest]:
                self.edit_policy(name, pool, rest)
            case ["edit", name, *rest]:
                self.edit_policy(name, self.pool, rest)
            case ["after", duration]:
                self.advance(milliseconds(duration))
            case ["at", "rest"]:
                self.check_rest()
            case ["cancel", *names]:
                for name in names:
                    commands.cancel(self.state, name, self.now, actor="somebody")
                return names
            case [name, "may", "hold", *rest]:
                commands.set_limit(self.state, name, amounts_of(rest)[0], self.now)
                return [name]
            case [team, "submits" | "runs" as how, names, "of", *rest]:
                return self.submit(team, names_in(names), rest, runs=how == "runs")
            case [*names] if scenario_nodes.about_nodes(self.state, names):
                return scenario_nodes.act(self.state, names, self.now, self.silent)
            case [*names, verb]:
                for name in names:
                    self.report(name, verb)
                return names
        return []

    def create_pool(self, name: str, words: list[str]) -> None:
        amounts, options = options_of(words)
        nodes = {"pool": name} if options.pop("nodes", None) is not None else None
        edits.create_pool(
            self.state,
            id=name,
            name=name,
            preset=options.pop("preset", "quota"),
            capacity=amounts or None,
            nodes=nodes,
            settings=settings_of(options),
        )

    def attach(self, name: str, pool: str, words: list[str]) -> None:
        given = policy_words(words)
        edits.attach_policy(
            self.state, id=f"{pool}/{name}", pool_id=pool, subject=Subject("team", name), **given
        )

    def edit_pool(self, name: str, words: list[str]) -> None:
        amounts, options = options_of(words)
        settings = settings_of(options)
        edits.update_pool(
            self.state, name, capacity=amounts or None, settings=settings if settings else None
        )

    def edit_policy(self, name: str, pool: str, words: list[str]) -> None:
        edits.update_policy(self.state, f"{pool}/{name}", **policy_words(words))

    def submit(self, team: str, names: list[str], words: list[str], runs: bool) -> list[str]:
        amounts, options = options_of(words)
        tasks = int(options.get("tasks", 1))
        retry = Retry(
            max_retries=int(options.get("retries", 0)),
            delay=milliseconds(options.get("delay", "0")),
            backoff=int(options.get("backoff", 1)),
            preemptions=Preemptions.FREE if "free" in options else Preemptions.COUNT,
        )
        numbers = range(len(names)) if "at_once" in options else [None] * len(names)
        for name, number in zip(names, numbers, strict=True):
            submission = commands.Submission(
                id=name,
                subject=Subject("team", team),
                amounts={key: amount * tasks for key, amount in amounts.items()},
                **scenario_nodes.how(amounts, options, runs),
                preemptible="fixed" not in options,
                pool_id=options.get("in"),
                retry=retry,
                walltime=milliseconds(options["walltime"]) if "walltime" in options else None,
                lease=milliseconds(options["lease"]) if "lease" in options else None,
                on_silence=OnSilence.KEEP if "keep" in options else OnSilence.STOP,
                terms=terms_of(options),
                part_of=names[0] if "together" in options else None,
                array="" if number is None else f"0-{len(names) - 1}%{options['at_once']}",
                array_task=number,
                after=_listed(options, "after"),
                after_any=_listed(options, "after_any"),
                owner=options.get("owner", ""),
                unpooled="refuse",
            )
            commands.submit(self.state, submission, self.now)
            self.settle()
        return names

    def report(self, name: str, verb: str) -> None:
        if verb == "silent":
            self.silent.add(name)
        elif verb in ("starts", "renews", "told"):
            self.silent.discard(name)
            commands.renew(self.state, name, self.now, running=verb == "starts")
        else:
            outcome = {"stops": "stopped", "done": "done", "fails": "failed"}[verb]
            code = 1 if outcome == "failed" else None
            commands.release(self.state, name, self.now, outcome=outcome, exit_code=code)

    def advance(self, duration: int) -> None:
        """Let time pass, stopping at everything that is due and renewing every lease in time."""
        end = self.now + duration
        while True:
            self.renew_all()
            self.settle()
            due = self.state.timers.next()
            leases = [
                2 * each.lease // 3
                for each in self.state.requests.values()
                if each.lease is not None
            ]
            leases += [node.heartbeat for node in self.state.nodes.values()]
            step = min([end, *(self.now + each for each in leases), *([due] if due else [])])
            if self.now >= end:
                return
            self.now = max(step, self.now + 1)

    def renew_all(self) -> None:
        scenario_nodes.hear(self.state, self.now, self.silent)
        for request in list(self.state.requests.values()):
            if request.lease is not None and request.id not in self.silent and not request.ended:
                commands.renew(self.state, request.id, self.now)

    # Checking ---------------------------------------------------------------------------------

    def check(
        self,
        expected: str,
        refusal: CedeError | None,
        before: dict[str, str],
        actors: list[str],
    ) -> None:
        # A comma inside parentheses belongs to a reason.
        clauses = re.split(r",\s*(?![^(]*\))", expected) if expected else []
        if refusal is not None:
            if not any(each.startswith("refused") for each in clauses):
                raise Untrue(f"was refused: {refusal}") from refusal
            _check_refusal(clauses[0], refusal)
            return
        named = set(actors)
        for clause in clauses:
            named |= set(self.check_clause(clause))
        after = self.conditions()
        for name in sorted(after.keys() | before.keys()):
            if before.get(name) != after.get(name) and name not in named:
                raise Untrue(f"{name} was {before.get(name)} and is {after.get(name)}, not named")

    def check_clause(self, clause: str) -> list[str]:
        match = re.fullmatch(r"([^()]*?)\s*(?:\(([^)]*)\))?", clause)
        assert match, clause
        words, detail = match[1].split(), (match[2] or "").split()
        if words[0] == "refused":
            raise Untrue("was not refused")
        if words[0] == "no" and words[1] == "earmark":
            for name in words[2:]:
                _same(f"earmark of {name}", self.request(name).earmark, None)
            return []
        if words[0] in _FACTS:
            names = _FACTS[words[0]](self, words[1:])
            return names if words[0] == "earmark" else []
        pool = words[words.index("in") + 1] if "in" in words else None
        names = [
            name
            for word in words[1 : words.index("in") if pool else None]
            for name in names_in(word)
        ]
        for name in names:
            _same(name, self.condition(name), words[0])
            if pool is not None:
                allocation = self.state.allocation_of(name)
                _same(f"pool of {name}", allocation and allocation.pool_id, pool)
            if detail:
                self.check_reason(name, detail)
        return names

    def check_reason(self, name: str, detail: list[str]) -> None:
        request = self.request(name)
        if request.waiting:
            reason = why(self.state, name, self.now, tried=False)["reason"]
        else:
            reason = request.reason.to_public() if request.reason else {"code": "none"}
        _same(f"reason of {name} ({reason.get('text')})", reason["code"], detail[0])
        if len(detail) > 1:
            _same(f"key of {name}", reason.get("key"), detail[1])

    def check_always(self) -> None:
        """What holds after every line of every story."""
        if broken := audit.check(self.state):
            raise Untrue("\n  ".join(broken))
        shown = self.read_back() if self.thorough else None
        alike: set[str] = set()
        for request in list(self.state.requests.values()):
            told = why(self.state, request.id, self.now, tried=False)
            if self.thorough and told["reason"] and self.is_new(request, told["reason"], alike):
                told = why(self.state, request.id, self.now)
            for reason in (told["reason"], told.get("last_stopped")):
                self.note(reason)
                if reason and "?" in reason["text"] + reason["fix"]:
                    raise Untrue(f"{request.id} is told: {reason}")
        if shown is not None and dump(self.state, self.now) != shown:
            raise Untrue("asking why changed the state")

    def read_back(self) -> dict[str, Any]:
        """A snapshot, which is the same when it is read back."""
        shown = dump(self.state, self.now)
        again = ranked(dump(load(shown), self.now))
        if again != ranked(shown):
            raise Untrue(f"a snapshot read back differs: {_difference(ranked(shown), again)}")
        return shown

    def is_new(self, request: Request, reason: dict[str, Any], alike: set[str]) -> bool:
        """Whether to try out what would start it, which costs more than all the rest of a story."""
        kind = f"{request.subject} {request.amounts} {reason['code']}"
        again = kind in alike or (kind, reason["text"]) in self.tried
        alike.add(kind)
        self.tried.add((kind, reason["text"]))
        return not again

    def check_rest(self) -> None:
        plan = decide(self.state, self.now)
        if plan.changed or plan.decisions:
            raise Untrue(f"not at rest: {plan.decisions}")
        leaving = [each.id for each in self.state.allocations.values() if each.leaving]
        if leaving:
            raise Untrue(f"not at rest: {leaving} are stopping")

    # Looking ----------------------------------------------------------------------------------

    def request(self, name: str) -> Request:
        found = self.state.requests.get(name) or self.ended.get(name)
        if found is None:
            raise Untrue(f"there is no {name}")
        return found

    def conditions(self) -> dict[str, str]:
        known = (*self.ended, *self.state.requests, *self.state.nodes)
        return {name: self.condition(name) for name in known}

    def condition(self, name: str) -> str:
        if name in self.state.nodes:
            return str(self.state.nodes[name].state)
        request = self.request(name)
        allocation = self.state.allocation_of(name)
        if allocation is None:
            return "waiting" if request.status is RequestStatus.QUEUED else str(request.status)
        shown = {
            AllocationState.LOST: "lost",
            AllocationState.CHECKPOINTING: "saving",
            AllocationState.STOPPING: "stopping",
        }
        return shown.get(allocation.state, "running")

    def told(self) -> str:
        """Everything that happened, for whoever reads a failure."""
        events = [
            f"  {seconds(each.at):>6}s {each.kind:15} {each.request_id or '':6} "
            f"{each.pool_id or '':8} {each.data or ''}"
            for each in self.events
        ]
        return "what happened:\n" + "\n".join(events)


def _listed(options: dict[str, str], name: str) -> tuple[str, ...]:
    return tuple(options[name].split(",")) if name in options else ()


def _earmark(story: Story, names: list[str]) -> list[str]:
    for name in names:
        if story.request(name).earmark is None:
            raise Untrue(f"{name} owns no earmark")
    return names


def _rights(expected: int) -> Any:
    def check(story: Story, names: list[str]) -> list[str]:
        for name in names:
            allocation = story.state.allocation_of(name)
            assert allocation is not None, name
            ledger = story.state.ledgers[allocation.pool_id]
            _same(f"rights of {name}", ledger.rights(allocation.id), expected)
        return names

    return check


def _number(of: str) -> Any:
    def check(story: Story, words: list[str]) -> list[str]:
        _same(f"{of} of {words[0]}", getattr(story.request(words[0]), of), int(words[1]))
        return []

    return check


def _withheld(story: Story, names: list[str]) -> list[str]:
    held = [request_id for ledger in story.state.ledgers.values() for request_id in ledger.withheld]
    _same("withheld for", sorted(set(held)), sorted(name for name in names if name != "nobody"))
    return []


def _reported(story: Story, words: list[str]) -> list[str]:
    """`reported over_limit policy red`: there was such an event about it."""
    found = [each.data.get("where") for each in story.events if each.kind == words[0]]
    if " ".join(words[1:]) not in found:
        raise Untrue(f"{words[0]} was reported of {found}")
    return []


_FACTS = {
    "reported": _reported,
    "earmark": _earmark,
    "borrowed": _rights(BORROWED),
    "inside": _rights(IN_SHARE),
    "attempt": _number("attempt"),
    "bypassed": _number("bypassed"),
    "preempted_count": _number("preempted_count"),
    "withheld": _withheld,
    **{
        name: lambda story, words, fact=fact: fact(story.state, story.request(words[0]), words[1:])
        for name, fact in {**scenario_nodes.FACTS, **scenario_classes.FACTS}.items()
    },
}


def _same(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise Untrue(f"{what} is {found}, not {expected}")


def ranked(snapshot: dict[str, Any]) -> dict[str, Any]:
    """A snapshot with indexes as ranks: only their order means something."""
    earmarks = [each["earmark"] for each in snapshot["requests"] if "earmark" in each]
    saved = [each["saved"] for each in snapshot["running"] if "saved" in each]
    places = sorted(each["index"] for each in (*snapshot["running"], *earmarks, *saved))

    def rank(entry: dict[str, Any]) -> dict[str, Any]:
        if "saved" in entry:
            entry = {**entry, "saved": rank(entry["saved"])}
        return {**entry, "index": places.index(entry["index"])}

    requests = [
        {**each, "earmark": rank(each["earmark"])} if "earmark" in each else each
        for each in snapshot["requests"]
    ]
    return {
        **snapshot,
        "running": [rank(each) for each in snapshot["running"]],
        "requests": requests,
    }


def _difference(one: Any, other: Any, path: str = "") -> str:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one.keys() | other.keys():
            if one.get(key) != other.get(key):
                return _difference(one.get(key), other.get(key), f"{path}.{key}")
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for at, (left, right) in enumerate(zip(one, other, strict=True)):
            if left != right:
                return _difference(left, right, f"{path}[{at}]")
    return f"{path}: {one} became {other}"


def _check_refusal(clause: str, refusal: CedeError) -> None:
    """`refused (invalid limit.gpu)`: the kind or code, then a field or words of the sentence."""
    match = re.fullmatch(r"refused(?: \((\S+)(?: ([^)]*))?\))?", clause)
    assert match, clause
    kind = {Invalid: "invalid", Conflict: getattr(refusal, "code", "")}.get(type(refusal))
    if match[1]:
        _same(f"refusal ({refusal})", kind or type(refusal).__name__, match[1])
    if match[2] and match[2] not in str(refusal):
        raise Untrue(f"refused, but not for {match[2]}: {refusal}")
