"""The stories of the engine's tests, told to a server through one of its faces.

The language is that of `tests/scenario.py`. A face does not show which of a policy's holders is
inside its share, so those facts are passed over here; time is not ours to move, so `after` is too:
in the documented stories nothing is due by then.
"""

from __future__ import annotations

import re

from cede.sim.plan import run
from tests.levels.level import Json, Level
from tests.scenario import Untrue
from tests.scenario_words import names_in, options_of, policy_words, settings_of

_NOT_SHOWN = ("inside", "borrowed")
_WAITING = ("queued", "suspended")
_OUTCOMES = {"stops": "stopped", "done": "done", "fails": "failed"}


def tell(level: Level, text: str) -> None:
    story = Story(level)
    for number, line in enumerate(text.splitlines(), 1):
        if line := line.partition("#")[0].strip():
            try:
                story.line(line)
            except Untrue as error:
                raise Untrue(f"line {number}: {line}\n  {error}") from None


class Story:
    def __init__(self, level: Level) -> None:
        self.level = level
        self.pool = ""
        self.seen: dict[str, Json] = {}  # by name, as of the last line

    def line(self, line: str) -> None:
        action, _, expected = (part.strip() for part in line.partition("->"))
        actors = self.act(action.split())
        before = {name: _condition(each) for name, each in self.seen.items()}
        self.seen = {each["labels"]["name"]: each for each in self.level.requests()}
        named = set(actors)
        for clause in re.split(r",\s*(?![^(]*\))", expected) if expected else []:
            named |= set(self.check(clause))
        for name, each in self.seen.items():
            if before.get(name) != _condition(each) and name not in named:
                raise Untrue(f"{name} was {before.get(name)} and is {_condition(each)}, not named")

    def act(self, words: list[str]) -> list[str]:
        """Do what a line says; whose condition may change by it without being named."""
        match words:
            case ["pool", name, *rest]:
                self.pool = name
                amounts, options = options_of(rest)
                self.level.create_pool(name, amounts, settings_of(options) or None)
            case ["team", name, "in", pool, *rest]:
                self.level.attach_policy(pool, name, "team", policy_words(rest))
            case ["team", name, *rest]:
                self.level.attach_policy(self.pool, name, "team", policy_words(rest))
            case ["edit", "pool", name, *rest]:
                self.level.resize_pool(name, options_of(rest)[0])
            case ["after", _]:
                pass
            case ["at", "rest"]:
                self.check_rest()
            case [team, "submits", names, "of", *rest]:
                amounts, options = options_of(rest)
                settings = {"pool_resources": amounts, "preemptible": "fixed" not in options}
                for name in names_in(names):
                    self.level.submit(name, team, "team", settings)
                return names_in(names)
            case [*names, verb]:
                for name in names:
                    self.level.end(self.seen[name]["id"], _OUTCOMES[verb])
                return names
        return []

    def check(self, clause: str) -> list[str]:
        """Check what a line says has become of somebody; of whom it speaks."""
        match = re.fullmatch(r"([^()]*?)\s*(?:\(([^)]*)\))?", clause)
        assert match, clause
        (what, *words), detail = match[1].split(), (match[2] or "").split()
        if what in _NOT_SHOWN:
            return []
        if what == "bypassed":
            self.check_bypassed(words[0], int(words[1]))
            return []
        pool = words[words.index("in") + 1] if "in" in words else None
        names = [each for word in words[: -2 if pool else None] for each in names_in(word)]
        for name in names:
            self.check_one(name, what, pool)
            if detail:
                self.check_reason(name, detail)
        return names

    def check_one(self, name: str, what: str, pool: str | None) -> None:
        request = self.seen[name]
        if what == "earmark":
            _same(f"earmark of {name}", request["earmark"] is not None, True)
        else:
            _same(name, _condition(request), what)
        if pool is not None:
            _same(f"pool of {name}", self.level.plain(request["pool"]), pool)

    def check_reason(self, name: str, detail: list[str]) -> None:
        reason = self.level.reason(self.seen[name]["id"])
        _same(f"reason of {name} ({reason['text']})", reason["code"], detail[0])
        if len(detail) > 1:
            _same(f"key of {name}", reason["key"], detail[1])

    def check_bypassed(self, name: str, times: int) -> None:
        waiting = {each["id"]: each for each in self.level.own_snapshot()["requests"]}
        _same(f"passes of {name}", waiting[self.seen[name]["id"]].get("bypassed", 0), times)

    def check_rest(self) -> None:
        plan = run(self.level.own_snapshot())
        done = [each for each in plan["passes"][0]["decisions"] if each["do"] != "wait"]
        _same("what is still to be done", done, [])
        _same("at rest", plan["at_rest"], True)
        _same(
            "stopping", [n for n, each in self.seen.items() if _condition(each) == "stopping"], []
        )


def _condition(request: Json) -> str:
    status = str(request["status"])
    return {"allocated": "running", "preempting": "stopping"}.get(
        status, "waiting" if status in _WAITING else status
    )


def _same(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise Untrue(f"{what} is {found}, not {expected}")
