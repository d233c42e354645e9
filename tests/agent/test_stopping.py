"""The preemption sequence and the time-out table of document 004, row by row: real work under a
real agent and a real server, with the time-outs set short.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.agent.cluster import BLUE, GRACE, TEAM, Cluster, read_when_there

pytestmark = pytest.mark.system

PROGRAMS = Path(__file__).parent / "programs"
VICTIM = PROGRAMS / "victim.py"
LIAR = Path(__file__).parents[1] / "checkpoint" / "programs" / "liar.py"
AMPLE = 60.0  # for whoever does in time what is asked
SHORT = 1.0  # for whoever says nothing
# For whoever answers, on a busy machine too. Half of it is what slow work gets more.
ANSWERS = 16.0
# Victims whose time has to be waited out: a program, what it does, how it converses, its terms.
PATIENT: dict[str, tuple[Path, str, str, dict[str, Any]]] = {
    "answers and never saves": (VICTIM, "slow", "signal", {}),
    "asks for ever more time": (VICTIM, "defers", "grpc", {"max_deferral": 0.7}),
    "lies: nothing": (LIAR, "nothing", "grpc", {}),
    "lies: wrong hash": (LIAR, "wrong hash", "shm", {}),
    "is silent": (VICTIM, "stubborn", "signal", {"checkpoint_timeout": SHORT}),
    "is silent and may come back": (
        VICTIM, "silent", "shm", {"checkpoint_timeout": SHORT, "retry": {"max_retries": 1}},
    ),
    "cannot save itself": (VICTIM, "stubborn", "", {"checkpoint_timeout": AMPLE}),
}  # fmt: skip


@dataclass
class Row:
    """A victim that was taken for a beneficiary."""

    cluster: Cluster
    home: Path
    place: dict[str, Any] = field(default_factory=lambda: {"node_labels": {"host": "n1"}})
    victim: str = ""
    beneficiary: str = ""

    def begin(self, how: str, protocol: str, program: Path, **fields: Any) -> Row:
        """A victim that does as it is told when it is asked to save itself."""
        conversation = {"checkpoint": "auto", "checkpoint_protocol": protocol} if protocol else {}
        argv = (sys.executable, str(program), how, str(self.home))
        given = {**self.place, "checkpoint_timeout": AMPLE, **conversation, **fields}
        self.victim = self.cluster.submit(*argv, gpus=2, **given)
        return self

    def until_ready(self, program: Path) -> Row:
        self.until("started")
        if program == VICTIM:
            read_when_there(self.home / "notes")
        elif program == LIAR:
            self.cluster.until(lambda: b"ready" in self.printed(), about=self.victim)
        return self

    def printed(self) -> bytes:
        return self.cluster.printed(self.victim)

    def take(self, gpus: int = 2) -> Row:
        """Somebody with better rights needs all that it has."""
        self.beneficiary = self.cluster.submit("true", gpus=gpus, component=BLUE, **self.place)
        return self

    def ended(self) -> dict[str, Any]:
        """How the victim ended; its beneficiary had what it needed."""
        if self.beneficiary:
            assert self.cluster.ended(self.beneficiary)["status"] == "released"
        return self.cluster.ended(self.victim)

    def times(self, kind: str) -> list[float]:
        return [each["at"] for each in self.cluster.events(self.victim, kind)]

    def happened(self, kind: str) -> list[dict[str, Any]]:
        return [each["data"] for each in self.cluster.events(self.victim, kind)]

    def until(self, kind: str) -> None:
        self.cluster.until(lambda: self.times(kind), about=self.victim)

    def notes(self) -> list[str]:
        lines = read_when_there(self.home / "notes").splitlines()
        return [line.partition(" ")[2] for line in lines]

    def until_noted(self, word: str) -> None:
        self.cluster.until(lambda: word in self.notes(), about=self.victim)

    def took(self, kind: str) -> float:
        """Seconds from the first word, by the millisecond as events are."""
        return round(self.times(kind)[0] - self.times("preempting")[0], 3)

    def stop_progress(self) -> float:
        return self.took("task_ended")


@pytest.fixture
def start(shared: Cluster, tmp_path: Path) -> Any:
    """Start a victim that does as it is told when it is asked to save itself."""
    shared.allow_blue()
    row = Row(shared, tmp_path)

    def begin(how: str, protocol: str = "", *, program: Path = VICTIM, **fields: Any) -> Row:
        return row.begin(how, protocol, program, **fields).until_ready(program)

    return begin


@dataclass
class Patient:
    """Victims in a pool of their own."""

    cluster: Cluster
    home: Callable[[str], Path]
    rows: dict[str, Row] = field(default_factory=dict)

    def take(self, *names: str) -> None:
        for name in names:
            program, how, protocol, terms = PATIENT[name]
            row = Row(self.cluster, self.home("patient"), {"pool": "patient"})
            given = {"checkpoint_timeout": ANSWERS, **terms}
            self.rows[name] = row.begin(how, protocol, program, **given)
        for name in names:
            self.rows[name].until_ready(PATIENT[name][0])
        # One takes them all: of several, the first to be done would leave room that spares another.
        preemptor = row.take(2 * len(PATIENT)).beneficiary
        for name in names:
            self.rows[name].beneficiary = preemptor

    def row(self, name: str) -> Row:
        """The victim of one test; for a second try there is another one."""
        if name not in self.rows:
            self.take(name)
        return self.rows.pop(name)


@pytest.fixture(scope="module", autouse=True)
def patient(
    one_for_all: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Row]]:
    """They are taken first of all, and wait while the other tests run."""
    with one_for_all.borrowed() as cluster:
        client, gpus = cluster.client, 2 * len(PATIENT)
        client.pools.create("patient", nodes={"pool": "patient"}, settings={"grace": GRACE})
        cluster.agent("patient", gpus, "--allow-root-jobs", "--label", "pool=patient")
        for team, reserved in ((TEAM, 0), (BLUE, gpus)):
            own = {"component_type": "team", "priority": 10, "reserved": {"gpu": reserved}}
            client.policies.attach("patient", team, **own)
        made = Patient(cluster, tmp_path_factory.mktemp)
        made.take(*PATIENT)
        yield made.row


def suspended_and_resumed(row: Row) -> None:
    before = row.cluster.get(row.victim)["submitted_at"]
    ended = row.ended()
    assert (ended["status"], ended["attempt"], ended["preempted_count"]) == ("released", 2, 1)
    assert ended["submitted_at"] == before
    assert len(row.happened("suspended")) == 1 and not row.happened("requeued")
    assert row.notes()[-1] == "from 42", "it went on from what it had saved"
    [saved] = row.happened("checkpoint_saved")
    assert row.cluster.get(row.victim)["saved"]["id"] == saved["checkpoint"]


def forced_and_failed(row: Row) -> dict[str, Any]:
    ended = row.ended()
    assert (ended["status"], ended["reason"]["code"]) == ("failed", "checkpoint_failed")
    assert (ended["attempt"], ended["preempted_count"], ended["saved"]) == (1, 0, None)
    assert len(row.happened("checkpoint_failed")) == 1 and not row.happened("suspended")
    return ended


@pytest.mark.parametrize("protocol", ["signal", "shm", "grpc"])
def test_it_saves_in_time_and_goes_on_from_there(start: Any, protocol: str) -> None:
    row = start("saves", protocol).take()
    suspended_and_resumed(row)
    assert not row.happened("extended")


def test_a_hint_that_comes_before_the_program_listens_is_heard_later(
    start: Any, tmp_path: Path
) -> None:
    """SIGUSR1 ends a process that has no handler: it is sent to nobody before there is one."""
    program = tmp_path / "late.py"
    wait = f"import os, time\nwhile not os.path.exists('{tmp_path}/begin'): time.sleep(0.01)"
    program.write_text(f"{wait}\n{(PROGRAMS / 'victim.py').read_text()}")
    row = start("saves", "signal", program=program).take()
    row.until("preempting")
    talk = row.cluster.agents[0].attempt(row.victim) / "talk" / "hint.json"
    row.cluster.until(talk.exists)
    (tmp_path / "begin").touch()
    suspended_and_resumed(row)


def test_it_is_slow_but_answers_and_gets_half_as_much_again_once(
    start: Any, tmp_path: Path
) -> None:
    row = start("slow", "grpc", checkpoint_timeout=ANSWERS).take()
    row.until("extended")
    (tmp_path / "go").touch()
    suspended_and_resumed(row)
    assert len(row.happened("extended")) == 1
    assert row.took("extended") >= ANSWERS


def test_it_asks_for_time_and_saves_then(start: Any) -> None:
    row = start("late", "grpc").take()
    suspended_and_resumed(row)
    [asked] = row.happened("deferred")
    assert asked["granted"] == asked["wanted"] == 300
    assert asked["why"] == "in the middle of something"


@pytest.mark.parametrize("interruptible", [True, False])
def test_it_exits_well_when_it_is_stopped(start: Any, interruptible: bool) -> None:
    """That means that it is done only for who said so."""
    row = start("polite", interruptible=interruptible).take()
    ended = row.ended()
    assert (ended["status"], ended["attempt"]) == ("released", 1 if interruptible else 2)
    assert ended["preempted_count"] == (0 if interruptible else 1)


def test_it_ends_by_itself_while_it_is_asked(start: Any) -> None:
    row = start("leaves", "shm").take()
    ended = row.ended()
    assert (ended["status"], ended["attempt"], ended["preempted_count"]) == ("released", 1, 0)
    assert row.notes() == ["anew", "leaves"]


@pytest.mark.parametrize("protocol", ["signal", "shm", "grpc"])
def test_whoever_needed_it_is_gone_and_it_goes_on(start: Any, protocol: str) -> None:
    row = start("goes on", protocol).take()
    row.until_noted("asked")
    row.cluster.client.requests.cancel(row.beneficiary)
    ended = row.cluster.ended(row.victim)
    assert (ended["status"], ended["attempt"], ended["preempted_count"]) == ("released", 1, 0)
    assert row.notes() == ["anew", "asked", "goes on"]


# Those that waited.


def test_it_answers_and_never_saves(patient: Callable[[str], Row]) -> None:
    row = patient("answers and never saves")
    forced_and_failed(row)
    assert len(row.happened("extended")) == 1
    assert row.stop_progress() >= ANSWERS * 1.5


def test_it_asks_for_ever_more_time_and_is_forced(patient: Callable[[str], Row]) -> None:
    row = patient("asks for ever more time")
    forced_and_failed(row)
    asked = row.happened("deferred")
    assert sum(each["granted"] for each in asked) == 700
    assert row.stop_progress() >= ANSWERS + 0.7


def test_it_is_silent_and_is_killed_after_its_grace(patient: Callable[[str], Row]) -> None:
    row = patient("is silent")
    ended = forced_and_failed(row)
    assert ended["allocation"]["members"][0]["exit_code"] == 128 + 9
    assert row.notes().count("term") == 1
    assert not row.happened("extended")
    assert row.stop_progress() >= SHORT + GRACE


def test_it_is_silent_and_its_policy_brings_it_back(patient: Callable[[str], Row]) -> None:
    row = patient("is silent and may come back")
    ended = row.ended()
    assert (ended["status"], ended["attempt"]) == ("released", 2)
    assert row.notes() == ["anew", "term", "anew"]
    assert len(row.happened("requeued")) == 1 and not row.happened("suspended")


def test_it_cannot_save_itself_and_is_told_to_stop_at_once(patient: Callable[[str], Row]) -> None:
    row = patient("cannot save itself")
    ended = row.ended()
    assert (ended["status"], ended["attempt"], ended["preempted_count"]) == ("released", 2, 1)
    assert row.notes() == ["anew", "term", "anew"]
    assert GRACE <= row.stop_progress() < AMPLE
    assert not row.happened("checkpoint_failed") and not row.happened("suspended")


@pytest.mark.parametrize("how", ["nothing", "wrong hash"])
def test_it_lies_and_is_not_believed(patient: Callable[[str], Row], how: str) -> None:
    row = patient(f"lies: {how}")
    forced_and_failed(row)
    assert row.happened("save_failed")
    assert not row.happened("checkpoint_saved")
