"""Random histories: small numbers that stand for commands, whatever the state is.

A command is a few integers; each is taken modulo what there is, so every list of integers is a
history, and hypothesis can shorten a failing one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from cede.engine.admin import edits
from cede.engine.decide import decide
from cede.engine.lifecycle import commands
from cede.engine.state.state import State
from cede.model.errors import CedeError
from cede.model.request import OnSilence, Preemptions, Retry
from cede.model.subject import Subject

TEAMS = ("red", "blue", "green")

Command = tuple[int, int, int, int]
COMMAND = st.tuples(st.integers(0, 15), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
HISTORY = st.lists(COMMAND, max_size=30)


def world(shape: int = 0) -> State:
    """Three teams in one pool, and in a second one for odd shapes; from 8 on it shares fairly."""
    state = State()
    settings: dict[str, object] = {"bypass_max": 1}
    if shape & 2:
        settings |= {"precedence": "rank_first", "min_run": 5}
    if shape & 8:
        settings |= {"fair_share_update_period": 0, "fair_share_starvation_timeout": 5}
        settings |= {"fair_share_aggressive_starvation_timeout": 8, "over_limit_grace": 5}
        settings["enable_aggressive_starvation"] = True
    capacity = {"gpu": 6, "mcpu": 6000}
    preset = "fair_share" if shape & 8 else "quota"
    edits.create_pool(
        state, id="east", name="east", capacity=capacity, preset=preset, settings=settings
    )
    if shape & 1:
        edits.create_pool(state, id="west", name="west", capacity={"gpu": 4})
    for number, team in enumerate(TEAMS):
        for pool in state.pools:
            reserved = {"gpu": (2, 1, 0)[number]}
            if shape & 4 and pool == "east":
                reserved["mcpu"] = 1000
            edits.attach_policy(
                state,
                id=f"{pool}/{team}",
                pool_id=pool,
                subject=Subject("team", team),
                priority=(1, 2, 3)[number] if pool == "east" else (2, 1, 3)[number],
                reserved=reserved,
            )
    return state


@dataclass
class History:
    """A state and what happens to it."""

    state: State
    now: int = 0
    submitted: int = 0
    refused: list[str] = field(default_factory=list)

    def run(self, many: list[Command], *, passes: bool = True) -> None:
        for each in many:
            self.do(each)
            if passes:
                decide(self.state, self.now)

    def do(self, command: Command) -> None:
        """One command, or nothing if it is refused."""
        mark = self.state.mark()
        try:
            self._do(*command)
        except CedeError as error:
            self.state.undo(mark)
            self.refused.append(str(error))

    def _do(self, kind: int, a: int, b: int, c: int) -> None:
        state, now = self.state, self.now
        if kind <= 3:
            self._submit(a, b, c)
        elif kind == 4:
            self.now += a * 3000
        elif kind in (5, 6):
            commands.release(state, self._pick(a), now, outcome=("done", "failed")[b % 2])
        elif kind in (7, 8):
            commands.release(state, self._leaving(a), now, outcome="stopped")
        elif kind == 9:
            commands.renew(state, self._pick(a), now, running=bool(b % 2))
        elif kind == 10:
            commands.cancel(state, self._pick(a), now, actor="somebody")
        elif kind == 11:
            policy = sorted(state.policies)[a % len(state.policies)]
            given = {"priority": b} if c % 3 == 0 else {("limit", "reserved")[c % 2]: {"gpu": b}}
            edits.update_policy(state, policy, **given)  # type: ignore[arg-type]
        elif kind == 12:
            pool = sorted(state.pools)[a % len(state.pools)]
            edits.update_pool(state, pool, capacity={("gpu", "mcpu")[c % 2]: b * (1, 1000)[c % 2]})
        elif kind == 13:
            self._leave(a, b)
        elif kind == 14:
            self._submit_array(a, b, c)
        else:
            refs = [each.ref for each in state.requests.values() if not each.ended][:3]
            self._submit(a, b, c, **{("after", "after_any")[c % 2]: tuple(refs[: 1 + b % 3])})

    def _submit_array(self, a: int, b: int, c: int) -> None:
        """Up to four tasks, of which one or two run at once."""
        first, tasks = f"r{self.submitted + 1}", 2 + c % 3
        for number in range(tasks):
            array = {"array": f"0-{tasks - 1}%{1 + b % 2}", "array_task": number}
            self._submit(a, b, c, part_of=first, **array)

    def _submit(self, a: int, b: int, c: int, **more: Any) -> None:
        self.submitted += 1
        amounts = {"gpu": 1 + b % 4}
        if c % 3 == 0:
            amounts["mcpu"] = 1000 * (1 + c % 4)
        commands.submit(
            self.state,
            commands.Submission(
                id=f"r{self.submitted}",
                subject=Subject("team", TEAMS[a % 3]),
                amounts=amounts,
                preemptible=c % 4 != 1,
                retry=Retry(c % 3, (0, 4000)[b % 2], 2, list(Preemptions)[a % 2]),
                walltime=(None, 10_000)[c % 2],
                lease=(None, 6000, 20_000)[b % 3],
                on_silence=list(OnSilence)[a % 2],
                **more,
            ),
            self.now,
        )

    def _pick(self, number: int) -> str:
        live = [each.id for each in self.state.requests.values() if not each.ended]
        return live[number % len(live)] if live else "nobody"

    def _leaving(self, number: int) -> str:
        leaving = [each.request_id for each in self.state.allocations.values() if each.leaving]
        return leaving[number % len(leaving)] if leaving else "nobody"

    def _leave(self, a: int, b: int) -> None:
        """Detach and attach again, which only an idle policy allows."""
        policy = self.state.policies[sorted(self.state.policies)[a % len(self.state.policies)]]
        edits.detach_policy(self.state, policy.id)
        edits.attach_policy(
            self.state,
            id=policy.id,
            pool_id=policy.pool_id,
            subject=policy.subject,
            priority=b,
            reserved={"gpu": b % 3},
        )
