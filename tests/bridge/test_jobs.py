"""How jobs of a cluster that answers as told are judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cede.agent.settings import Settings
from cede.agent.values import Do, Ended, Event, Key, Order
from cede.bridge import folder, jobs
from cede.bridge.cluster import End, Job, JobState, Machine, Seen, Wanted
from cede.bridge.jobs import Jobs
from cede.bridge.outside import Others
from tests.client.serving import eventually


class Told:
    """A cluster of one node with four GPUs, whose jobs stand as the test says."""

    mark, kind = "m", "Slurm"

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.cancelled: list[str] = []
        self.looks = 0

    def look(self) -> Seen:
        self.looks += 1
        held = {"gpu": 4 * sum(j.job_state is JobState.RUNNING for j in self.jobs.values())}
        return Seen((Machine("n1", {"gpu": 4}, held),), tuple(self.jobs.values()))

    def submit(self, wanted: Wanted) -> str:
        id = str(len(self.jobs) + 1)
        self.jobs[id] = Job(id, wanted.name, JobState.WAITING, "PENDING", "Resources")
        return id

    def find(self, name: str) -> list[Job]:
        return [each for each in self.jobs.values() if each.name == name]

    def cancel(self, ids: Sequence[str], *, kill: bool = False) -> None:
        self.cancelled += ids

    def stands(self, id: str, job_state: JobState, end: End | None = None, **more: object) -> None:
        given = {"job_state": job_state, "state": str(job_state), "end": end, **more}
        self.jobs[id] = replace(self.jobs[id], **given)  # type: ignore[arg-type]


class Stage:
    def __init__(self, home: Path) -> None:
        self.now, self.cluster, self.home = 100.0, Told(), home
        settings = Settings(
            server="",
            data=home,
            checkpoints=home / "checkpoints",
            name="slurm",
            amounts={},
            devices={},
            allow_root_jobs=True,
        )
        self.hands = Jobs(settings, self.cluster, lambda: self.now, period=0.01)
        self.events: list[Event] = []

    def launch(self, name: str) -> Order:
        key = Key(f"{name}.1", 0)
        work = {"argv": ["true"], "env": {}, "directory": "", "user": ""}
        body = {"work": work, "amounts": {"gpu": 4}, "nodes": ["n1"], "checkpoint": "none"}
        body |= {"subject": "team:red", "owner": "", "walltime": None}
        order = Order(key, 1, name, Do.RUN, grace=1.0, body=body)
        self.hands.launch(order, None, lambda: None)
        self.turns()
        return order

    def turns(self, looks: int = 2) -> None:
        """Until what the cluster said from now on has been taken in."""
        wanted = self.cluster.looks + looks
        self.now += 1
        self.until(lambda: self.cluster.looks > wanted)
        self.events += self.hands.poll(self.now)

    def until(self, is_so: Callable[[], bool]) -> None:
        def turned() -> bool:
            self.now += 0.01
            self.events += self.hands.poll(self.now)
            return is_so()

        eventually(turned)

    def says(self, order: Order, code: int | None, cause: str = "exited") -> None:
        said = folder.Saying(self.home / "attempts" / order.key.directory)
        said.say({"event": "ended", "exit_code": code, "cause": cause, "text": ""})
        self.turns()

    @property
    def ended(self) -> list[Ended]:
        return [each for each in self.events if isinstance(each, Ended)]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.hands.close()


def free(stage: Stage) -> bool:
    return not any(each["others"] for each in stage.hands.others.introduction())


def test_who_ends_well_is_reported_at_once_and_its_job_leaves_as_ours(stage: Stage) -> None:
    first = stage.launch("a")
    stage.cluster.stands("1", JobState.RUNNING)
    stage.turns()
    stage.says(first, 0)
    assert [each.key for each in stage.ended] == [first.key]
    assert free(stage) and not stage.cluster.cancelled  # its units are nobody else's
    # The next one waits in the cluster for it, however often that is looked at.
    stage.launch("b")
    stage.turns(6)
    assert len(stage.ended) == 1 and not stage.cluster.cancelled
    # Once it has left, who waits does so for others, and is taken back.
    stage.cluster.stands("1", JobState.OVER, End.ITSELF)
    stage.cluster.stands("2", JobState.WAITING, why="Resources", is_others=True)
    stage.until(lambda: stage.cluster.cancelled == ["2"])


def test_a_job_that_does_not_leave_is_cancelled(stage: Stage) -> None:
    first = stage.launch("a")
    stage.cluster.stands("1", JobState.RUNNING)
    stage.turns()
    stage.says(first, 0)
    stage.turns()
    assert not stage.cluster.cancelled
    stage.now += jobs.LEAVES
    stage.until(lambda: set(stage.cluster.cancelled) == {"1"})


def test_who_fails_is_reported_when_the_cluster_says_who_ended_it(stage: Stage) -> None:
    first = stage.launch("a")
    stage.cluster.stands("1", JobState.RUNNING, is_ending=True)
    stage.turns()
    stage.says(first, 143, "exited")
    assert not stage.ended
    stage.cluster.stands("1", JobState.OVER, End.ENDED, state="CANCELLED")
    stage.until(lambda: bool(stage.ended))
    assert [each.cause for each in stage.ended] == ["cluster_ended"]


def test_a_job_whose_member_never_spoke_says_what_it_printed_last(stage: Stage) -> None:
    first = stage.launch("a")
    log = stage.home / "attempts" / first.key.directory / jobs.JOB_LOG
    log.write_text("one\nenv: python: Permission denied\n")
    stage.cluster.stands("1", JobState.OVER, End.ITSELF, state="FAILED")
    stage.until(lambda: bool(stage.ended))
    [ended] = stage.ended
    assert ended.cause == "infrastructure"
    assert ended.text.endswith("nobody says how its work did: env: python: Permission denied")


def test_a_node_that_takes_no_work_names_who_holds_it_all_the_same(tmp_path: Path) -> None:
    others = Others(tmp_path)
    away = "mixed in Slurm"
    held = Machine("n1", {"gpu": 4}, {"gpu": 1}, away=away, holders=("outside job 7 of ann",))
    others.seen(Seen((held, Machine("n2", {"gpu": 4}, away=away)), ()), ())
    told = {each["name"]: (each["others"], each["why"]) for each in others.introduction()}
    assert told["n1"] == ({"gpu": 4}, "outside job 7 of ann, mixed in Slurm")
    assert told["n2"] == ({"gpu": 4}, "mixed in Slurm")
