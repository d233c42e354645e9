"""The independent account of a soak: what the programs recorded, against what cede promises.

Nothing here asks cede how it went, but for the status of each request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from tests.agent.record import NONE, Record, Start
from tests.soak.load import Program


@dataclass
class Account:
    """Everything that is wrong, and the figures."""

    problems: list[str] = field(default_factory=list)
    suspects: list[Program] = field(default_factory=list)  # whose problems these are
    attempts: int = 0
    resumes: int = 0
    steps: int = 0
    repeated: int = 0
    saves: int = 0
    moved: int = 0  # resumes on another node than the attempt before

    def of(self, programs: list[Program], locks: Path) -> Account:
        for each in programs:
            self._add(each)
        overlap = locks / "overlap"
        if overlap.exists():
            self.problems += [f"two at once: {line}" for line in overlap.read_text().splitlines()]
        return self

    def kinds(self) -> Counter[str]:
        return Counter(each.partition(":")[0] for each in self.problems)

    def _add(self, program: Program) -> None:
        before = len(self.problems)
        self._check(program)
        if len(self.problems) > before:
            self.suspects.append(program)

    def _check(self, program: Program) -> None:
        records = program.read()
        name = f"{program.record.name} ({program.id})"
        if program.status != "released":
            self.problems.append(f"{program.status}: {name} {program.reason}")
        for task, record in enumerate(records):
            self._add_task(record)
            self.problems += [f"{each}: {name}.{task}" for each in _of_task(record, program)]
        for attempt in sorted({each.attempt for record in records for each in record.starts}):
            self.problems += [f"{each}: {name}" for each in _of_attempt(records, attempt)]

    def _add_task(self, record: Record) -> None:
        self.attempts += len(record.starts)
        self.resumes += sum(each.resume != NONE for each in record.starts)
        self.steps += len(record.steps)
        self.repeated += sum(each.done - each.step for each in record.starts)
        self.saves += len(record.saved)
        nodes = [each.node for each in record.starts]
        self.moved += sum(a != b for a, b in pairwise(nodes))


def _of_task(record: Record, program: Program) -> Iterator[str]:
    if record.gone:
        yield f"deleted under an attempt: {record.gone}"
    done = {step for _, step in record.steps}
    missing = set(range(program.steps)) - done
    if program.status == "released" and missing:
        yield f"steps never done: {len(missing)} from {min(missing)} on"
    for attempt, code in record.ends:
        if code not in (0, 75):
            yield f"exit {code}: attempt {attempt}"


def _of_attempt(records: list[Record], attempt: int) -> Iterator[str]:
    """An attempt goes on from the newest checkpoint that all tasks have, or from a newer one whose
    saving was not recorded any more: so no more is repeated than what came after it.
    """
    starts = [found for each in records if (found := each.start(attempt)) is not None]
    if len({each.resume for each in starts}) > 1:
        yield f"tasks apart: attempt {attempt} from {sorted({each.resume for each in starts})}"
    common = frozenset.intersection(*(each.saved_before(attempt) for each in records))
    newest = max((records[0].saved[id].step, id) for id in common) if common else (0, NONE)
    for each in starts:
        if each.step < newest[0]:
            yield _stale(each, newest[1])


def _stale(start: Start, newest: str) -> str:
    return f"stale: attempt {start.attempt} on {start.node} from {start.resume}, {newest} was saved"
