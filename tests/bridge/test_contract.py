"""What everything that carries out orders must do: the agent's own hands and those of each bridge.

A new bridge adds itself to `KINDS`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cede.agent.attempts import Attempts
from cede.agent.hands import Hands
from cede.agent.settings import Settings
from cede.agent.values import Do, Ended, Event, Found, Heard, Key, Kind, Order, Started
from cede.agent.wire import LogQuestion
from cede.bridge.jobs import Jobs
from cede.bridge.slurm import Slurm
from cede.launch import processes
from cede.launch.clock import boottime
from cede.launch.probe import Containment
from cede.server.ids import new_id
from tests.slurm.cluster import Cluster
from tests.slurm.world import COUNTING
from tests.support.sources import HERE

SLOW_START = (pytest.mark.system, pytest.mark.timeout(600))
KINDS = ("agent", pytest.param("slurm", marks=SLOW_START))
WAIT = 60.0


class Stage:
    """Hands of one kind on a folder of their own; `again` is a successor after a sudden death."""

    def __init__(self, home: Path, make: Callable[[Settings], Hands]) -> None:
        home.chmod(0o755)
        self.home, self._make = home, make
        self.settings = Settings(
            server="",
            data=home,
            checkpoints=home / "checkpoints",
            name="n1",
            amounts={"gpu": 1},
            devices={},
            allow_root_jobs=True,
        )
        self.hands = make(self.settings)
        self.events: list[Event] = []

    def again(self) -> Hands:
        self.hands.close()
        self.hands, self.events = self._make(self.settings), []
        return self.hands

    def order(self, *argv: str, checkpoint: str = "none", grace: float = 10.0) -> Order:
        key = Key(f"{new_id()}.1", 0)
        body = {
            "work": {"argv": list(argv), "env": HERE.variables(), "directory": "", "user": ""},
            "amounts": {"gpu": 1},
            "nodes": ["n1"],
            "checkpoint": checkpoint,
            "checkpoint_protocol": "signal",
            "subject": "team:red",
            "owner": "",
            "pool": "pool",
            "resume": "",
            "walltime": None,
        }
        return Order(key, 1, key.allocation, Do.RUN, grace=grace, body=body)

    def launch(self, order: Order) -> None:
        self.hands.launch(order, boottime() + 600, lambda: None)

    def until(self, kind: type[Event], wanted: Callable[[Event], bool] = lambda _: True) -> Event:
        deadline = time.monotonic() + WAIT
        while time.monotonic() < deadline:
            self.events += self.hands.poll(boottime())
            for event in self.events:
                if isinstance(event, kind) and wanted(event):
                    return event
            time.sleep(0.02)
        raise AssertionError(f"no {kind.__name__} in {self.events}")

    def output(self, order: Order) -> bytes:
        import base64

        question = LogQuestion("1", order.key, "stdout", 0, 1000)
        return base64.b64decode(self.hands.answer(question)["data"])


@pytest.fixture(params=KINDS)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    def agent(settings: Settings) -> Hands:
        return Attempts(settings, Containment("subreaper", "", {}, {}), boottime)

    def slurm(settings: Settings) -> Hands:
        cluster: Cluster = request.getfixturevalue("slurm")
        made = Slurm("contract", environment=cluster.env)
        return Jobs(settings, made, boottime, period=0.2)

    if request.param == "slurm":
        request.getfixturevalue("slurm")
    # As an agent does: what supervisors leave is adopted.
    processes.prctl(processes.PR_SET_CHILD_SUBREAPER, 1)
    with tempfile.TemporaryDirectory(prefix="cede-hands-", ignore_cleanup_errors=True) as home:
        made = Stage(Path(home), agent if request.param == "agent" else slurm)
        try:
            yield made
        finally:
            made.hands.close()
            processes.prctl(processes.PR_SET_CHILD_SUBREAPER, 0)


def test_work_starts_ends_with_its_code_and_leaves_its_output(stage: Stage) -> None:
    order = stage.order("sh", "-c", "echo hello; exit 3")
    stage.launch(order)
    ended = stage.until(Ended)
    kinds = [type(each) for each in stage.events]
    assert kinds == [Started, Ended]
    assert isinstance(ended, Ended)
    assert (ended.key, ended.exit_code, ended.cause) == (order.key, 3, "exited")
    assert stage.output(order) == b"hello\n"


def test_a_program_that_is_not_there_is_the_work_s_fault(stage: Stage) -> None:
    stage.launch(stage.order("/no/such/program"))
    ended = stage.until(Ended)
    assert isinstance(ended, Ended)
    assert ended.cause == "start_failed"


def test_a_stop_asks_first_and_kills_then(stage: Stage) -> None:
    polite = stage.order("sh", "-c", "trap 'exit 0' TERM; echo on; while :; do sleep 0.05; done")
    deaf = stage.order("sh", "-c", "trap '' TERM; echo on; while :; do sleep 0.05; done")
    for order, grace, cause in ((polite, 30.0, "stopped"), (deaf, 0.3, "killed")):
        stage.launch(order)
        stage.until(Started, lambda event: event.key == order.key)  # type: ignore[union-attr] # noqa: B023
        deadline = time.monotonic() + WAIT
        while stage.output(order) != b"on\n":
            assert time.monotonic() < deadline
            time.sleep(0.02)
        stage.hands.stop(order.key, grace)
        ended = stage.until(Ended, lambda event: event.key == order.key)  # type: ignore[union-attr] # noqa: B023
        assert isinstance(ended, Ended)
        assert ended.cause == cause


def test_a_successor_adopts_what_runs_and_starts_nothing_twice(stage: Stage) -> None:
    note, door = stage.home / "note", stage.home / "door"
    order = stage.order(
        "sh", "-c", f"echo began >> {note}; until [ -e {door} ]; do sleep 0.05; done"
    )
    stage.launch(order)
    stage.until(Started)
    never = stage.order("true")
    found = stage.again().adopt([order, never])
    assert found == {order.key: Found.ALIVE, never.key: Found.NEVER}
    assert not stage.hands.sweep_unexplained([order.key, never.key]).survivors
    stage.until(Started)
    door.touch()
    ended = stage.until(Ended)
    assert isinstance(ended, Ended)
    assert (ended.exit_code, ended.cause) == (0, "exited")
    assert note.read_text() == "began\n"


def test_what_was_fenced_off_never_starts(stage: Stage) -> None:
    order = stage.order("true")
    assert stage.hands.fence(order.key) is None


def test_a_hint_reaches_the_application_and_its_checkpoint_is_verified(stage: Stage) -> None:
    order = stage.order(sys.executable, str(COUNTING), str(stage.home), checkpoint="auto")
    stage.launch(order)
    stage.until(Started)
    stage.hands.hint(order.key, 1, 60.0, goes_on=True)
    heard = stage.until(Heard, lambda event: event.report.kind is Kind.SAVED)  # type: ignore[union-attr]
    assert isinstance(heard, Heard)
    assert (heard.report.key, heard.report.hint) == (order.key, 1)
    (stage.home / "enough").touch()
    ended = stage.until(Ended)
    assert isinstance(ended, Ended)
    assert ended.exit_code == 0
    stage.hands.forget(order.key)
    assert not (stage.home / "attempts" / order.key.directory).exists()
