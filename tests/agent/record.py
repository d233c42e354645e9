"""What `programs/stepping.py` recorded of one task, read without asking cede anything."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from cede.checkpoint.shelf import age

NONE = "-"  # the id of an attempt that began at the beginning


@dataclass(frozen=True, slots=True)
class Start:
    """An attempt that began, and where it went on from."""

    attempt: int
    resume: str
    step: int
    node: str
    done: int  # the steps that earlier attempts had done


@dataclass(frozen=True, slots=True)
class Saved:
    attempt: int
    step: int


@dataclass(slots=True)
class Record:
    starts: list[Start] = field(default_factory=list)
    steps: list[tuple[int, int]] = field(default_factory=list)  # attempt, step
    saved: dict[str, Saved] = field(default_factory=dict)  # by id
    asked: list[int] = field(default_factory=list)  # attempts
    gone: list[str] = field(default_factory=list)  # ids that were deleted under an attempt
    ends: list[tuple[int, int]] = field(default_factory=list)  # attempt, exit code

    @classmethod
    def read(cls, path: Path) -> Record:
        made = cls()
        text = path.read_text() if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        for line in whole.splitlines():
            word, attempt, *more = line.split()
            made._add(word, int(attempt), more)
        return made

    def _add(self, word: str, attempt: int, more: list[str]) -> None:
        if word == "start":
            done = max((step + 1 for _, step in self.steps), default=0)
            self.starts.append(Start(attempt, more[0], int(more[1]), more[2], done))
        elif word == "step":
            self.steps.append((attempt, int(more[0])))
        elif word == "asked":
            self.asked.append(attempt)
        elif word == "saved":
            self.saved[more[0]] = Saved(attempt, int(more[1]))
        elif word == "gone":
            self.gone.append(more[0])
        elif word == "end":
            self.ends.append((attempt, int(more[0])))
        else:
            raise AssertionError(f"a record has a line that begins with {word}")

    def newest(self) -> str:
        return max(self.saved, key=age)

    def start(self, attempt: int) -> Start | None:
        return next((each for each in self.starts if each.attempt == attempt), None)

    def saved_before(self, attempt: int) -> frozenset[str]:
        """The ids of what earlier attempts saved: two attempts never run at once."""
        return frozenset(id for id, each in self.saved.items() if each.attempt < attempt)
