"""Work that its client holds is asked to save itself, is believed only what verifies, and goes on
from there: real programs, a real server, another team that wants its units back."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

import pytest

import cede.checkpoint as checkpoint
from cede import Client, pipeline, step
from cede.client.runner import child_environment
from tests.checkpoint.test_training import TRAIN, result
from tests.client.serving import WAIT_SECONDS, Serving, eventually, two_teams

pytestmark = pytest.mark.system

PROGRAMS = Path(__file__).parents[1] / "checkpoint" / "programs"
AS_RED = ("--component", "red", "-t", "team", "--gpu", "2", "--lease", "60")
RED = {"component": "red", "component_type": "team", "gpu": 2, "lease": 60}
BLUE = {"component": "blue", "component_type": "team", "resources": {"gpu": 2}, "kind": "work"}
# A hint comes at once, with the answer to a renewal that else is held back for 10 s. That shows
# where a command takes less than half a second to start.
SOON = 9.0
# Half of this is what slow work gets after its time is over; a busy machine must manage in it.
SLOW = 16.0


class Held:
    """Red's `cede run` of one program, and what the server says of it."""

    def __init__(self, server: Serving, client: Client, tmp_path: Path) -> None:
        self._server = server
        self._tmp = tmp_path
        self.client = client
        self.checkpoints = tmp_path / "checkpoints"

    def run(self, *command: object, timeout: float = 60, **options: object) -> None:
        given = [each for name, value in options.items() for each in (f"--{name}", value)]
        self.process = self._server.start_cede(
            *("run", *AS_RED, "--checkpoint", "auto", "--checkpoint-timeout", timeout),
            *("--checkpoint-dir", self.checkpoints, *given),
            *("--", "env", "-C", self._tmp, sys.executable, *command),
        )
        eventually(lambda: list(self.client.requests.list(component="red")))
        self.id = self.now(component="red")["id"]

    def now(self, **filters: object) -> dict:
        return next(iter(self.client.requests.list(**(filters or {"component": "red"}))))

    def until(self, status: str) -> dict:
        eventually(lambda: self.now()["status"] == status)
        return self.now()

    def took(self) -> float:
        """Seconds from the first hint to the checkpoint that answered it, as the server saw it."""
        kinds = {"checkpoint_saved", "preempting"}
        found = [each for each in self.client.events() if each["request_id"] == self.id]
        found = [each for each in found if each["kind"] in kinds]
        asked = [each["kind"] for each in found].index("preempting")
        return float(found[asked + 1]["at"] - found[asked]["at"])

    def until_running(self) -> None:
        def listens() -> bool:
            return (self.now()["allocation"] or {}).get("state") == "running"

        eventually(listens)

    def blue_wants_its_own(self) -> str:
        return str(self.client.requests.create(BLUE)["id"])

    def events(self) -> list[str]:
        return [each["kind"] for each in self.client.events() if each["request_id"] == self.id]

    def ended(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=2 * WAIT_SECONDS)
        return self.process.returncode, out, err


@pytest.fixture
def red(server: Serving, client: Client, tmp_path: Path) -> Held:
    two_teams(client)
    return Held(server, client, tmp_path)


def test_a_training_is_preempted_and_comes_out_the_same(red: Held, tmp_path: Path) -> None:
    command = [sys.executable, TRAIN, "--steps", "150"]
    alone = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    go = tmp_path / "go"
    red.run(PROGRAMS / "resting.py", go, TRAIN, "--steps", 150, "--every", 10, "--pause", 0.2)
    eventually(lambda: red.now()["saved"])
    blue = red.blue_wants_its_own()
    eventually(lambda: "checkpoint_saved" in red.events()[red.events().index("preempting") :])
    assert red.took() < max(SOON, 20 * red._server.pace())
    suspended = red.until("suspended")
    assert (suspended["attempt"], suspended["preempted_count"]) == (2, 1)
    assert red.client.requests.get(blue)["status"] == "allocated"
    go.touch()
    red.client.requests.release(blue)
    code, out, err = red.ended()
    assert code == 0, err
    assert f"resumed from {suspended['saved']['id']}" in out
    assert result(out) == result(alone.stdout)
    assert "cede: hint: asked to save itself" in err and "cede: requeued" in err
    # Two at least, and those that could not be committed before it was over.
    assert len(list((red.checkpoints / red.id).glob("*.manifest.json"))) >= 2


def test_time_is_asked_for_and_given(red: Held) -> None:
    red.run(PROGRAMS / "loop.py", "late")
    red.until_running()
    red.blue_wants_its_own()
    red.until("suspended")
    assert [each for each in red.events() if each in ("deferred", "checkpoint_saved")] == [
        "deferred",
        "checkpoint_saved",
    ]
    red.process.send_signal(signal.SIGINT)
    code, _, err = red.ended()
    assert code == 130 and "cede: deferral: asks for 0.2 s" in err


def test_slow_work_that_answers_gets_half_as_much_again(red: Held, tmp_path: Path) -> None:
    red.run(PROGRAMS / "loop.py", "slow", timeout=SLOW)
    red.until_running()
    red.blue_wants_its_own()
    eventually(lambda: "extended" in red.events())
    (tmp_path / "go").touch()
    red.until("suspended")
    assert "checkpoint_failed" not in red.events()


@pytest.mark.parametrize("program", [("loop.py", "silent"), ("liar.py", "nothing")])
def test_without_a_checkpoint_it_has_failed(red: Held, program: tuple[str, str]) -> None:
    """Whoever says nothing, and whoever only says that it saved itself."""
    # A lie must be heard before the time is over; of silence there is nothing to hear.
    red.run(PROGRAMS / program[0], program[1], timeout=12 if program[0] == "liar.py" else 1)
    red.until_running()
    blue = red.blue_wants_its_own()
    failed = red.until("failed")
    assert failed["reason"]["code"] == "checkpoint_failed" and failed["saved"] is None
    eventually(lambda: red.client.requests.get(blue)["status"] == "allocated")
    code, _, err = red.ended()
    assert code == 8, err
    assert ("there is no checkpoint" in err) == (program[0] == "liar.py")


def test_it_goes_on_when_nobody_needs_its_units_any_more(red: Held, tmp_path: Path) -> None:
    red.run(PROGRAMS / "loop.py", "slow")
    red.until_running()
    blue = red.blue_wants_its_own()
    eventually(lambda: ((red.now()["allocation"] or {})["parting"] or {}).get("answered"))
    red.client.requests.cancel(blue)
    assert red.until("allocated")["attempt"] == 1
    (tmp_path / "go").touch()  # what it began to write is a checkpoint, and no reason to stop
    eventually(lambda: red.now()["saved"])
    assert (red.now()["status"], red.now()["allocation"]["state"]) == ("allocated", "running")
    eventually(lambda: kill_whoever_works_in(tmp_path))
    code, out, err = red.ended()
    assert "cede: goes on" in err
    assert out.splitlines()[-1] == "not stopping"
    # It was asked to stop, and is not any more: what ends it now is its own failure.
    assert (code, red.now()["status"]) == (128 + signal.SIGKILL, "failed")


def kill_whoever_works_in(directory: Path) -> bool:
    killed = False
    for each in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if each.readlink() == directory:
                os.kill(int(each.parent.name), signal.SIGKILL)
                killed = True
    return killed


LEAVES = """
import sys, time
import cede.checkpoint as checkpoint
print("from", checkpoint.resume_from(), flush=True)
for step in checkpoint.steps(10_000):
    time.sleep(0.01)
    if checkpoint.resume_from(): break
    if checkpoint.should_save():
        with checkpoint.saving() as directory:
            (directory / "x").write_text("x")
    if checkpoint.stopping(): sys.exit(checkpoint.EXIT_SAVED)
"""


@pytest.mark.parametrize("protocol", ["signal", "shm"])
def test_work_that_saves_and_leaves_is_suspended(red: Held, protocol: str) -> None:
    red.run("-c", LEAVES, protocol=protocol)
    red.until_running()
    blue = red.blue_wants_its_own()
    suspended = red.until("suspended")
    red.client.requests.release(blue)
    code, out, err = red.ended()
    assert code == 0, err
    assert out.splitlines()[-1].endswith(f"{red.id}/{suspended['saved']['id']}")


def test_a_conversation_is_not_passed_on_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """`cede run` in work that is itself asked to save itself: its command must not answer."""
    monkeypatch.setenv("CEDE_CHECKPOINT_DIR", "mine")
    assert child_environment({})["CEDE_CHECKPOINT_DIR"] == "mine"
    monkeypatch.setenv("CEDE_TALK_DIR", "ours")
    monkeypatch.setenv("CEDE_RESUME_FROM", "ours")
    ours = {"CEDE_CHECKPOINT_DIR", "CEDE_TALK_DIR", "CEDE_RESUME_FROM"}
    assert not ours & set(child_environment({}))


def test_interruptible_work_that_ends_well_when_stopped_is_done(red: Held, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    red.process = red._server.start_cede(
        *("run", *AS_RED[:-1], "10", "--interruptible", "--"),
        *("sh", "-c", f"trap 'exit 0' TERM; touch {ready}; while :; do sleep 0.05; done"),
    )
    eventually(ready.exists)
    red.blue_wants_its_own()
    red.until("released")
    assert red.ended()[0] == 0


def test_a_step_goes_on_from_its_checkpoint(client: Client, tmp_path: Path) -> None:
    client.pools.create("gpus", {"gpu": 2}, settings={"grace": 30})
    client.policies.attach("gpus", "red", priority=1, reserved={"gpu": 0})
    client.policies.attach("gpus", "blue", priority=1, reserved={"gpu": 2})
    asked = tmp_path / "asked"

    @step(
        settings={"resources": {"gpu_count": 2}},
        retry={"max_retries": 1},
        lease=30,
        checkpoint="auto",
        checkpoint_dir=tmp_path / "checkpoints",
    )
    def add() -> tuple[int, int]:
        resume = checkpoint.resume_from()
        first = total = int((resume / "total").read_text()) if resume else 0
        for number in checkpoint.steps(400):
            total += number
            time.sleep(0.0 if resume else 0.1)
            if checkpoint.should_save():
                with checkpoint.saving() as directory:
                    (directory / "total").write_text(str(total))
            asked.touch()
        return first, total

    @pipeline(dynamic=True, orchestrator="red", client=client)
    def flow() -> tuple[int, int]:
        return add()

    seen: list[str] = []

    def blue() -> None:
        eventually(asked.exists)
        red = next(iter(client.requests.list(component="red")))["id"]
        eventually(lambda: client.requests.get(red)["allocation"]["state"] == "running")
        made = client.requests.create({**BLUE, "component_type": "orchestrator"})
        eventually(lambda: client.requests.get(made["id"])["status"] == "allocated")
        seen.append(client.requests.get(red)["status"])
        client.requests.release(made["id"])

    other = Thread(target=blue, daemon=True)
    other.start()
    first, total = flow()
    other.join(WAIT_SECONDS)
    assert seen == ["suspended"]
    assert first > 0 and total == sum(range(400))


def test_a_block_is_asked_and_goes_on_from_its_checkpoint(red: Held, tmp_path: Path) -> None:
    held = red.client.allocation(
        checkpoint="auto", preemptions="free", checkpoint_dir=tmp_path / "checkpoints", **RED
    )
    with held:
        assert checkpoint.resume_from() is None
        red.until_running()
        blue = red.blue_wants_its_own()
        for number in checkpoint.steps(None):
            time.sleep(0.01)
            if checkpoint.should_save():
                with checkpoint.saving() as directory:
                    (directory / "number").write_text(str(number))
            if checkpoint.stopping():
                break
    assert held.request["status"] == "suspended" and not held.ended
    red.client.requests.release(blue)
    with held:
        resumed = checkpoint.resume_from()
        assert resumed is not None and int((resumed / "number").read_text()) == number
        assert next(iter(checkpoint.steps(None))) == number + 1
    assert held.ended and red.now()["status"] == "released"


def test_it_is_asked_to_save_itself_and_goes_on(red: Held) -> None:
    """Nobody wants its units, and yet it is saved now and then; `why` says so."""
    often = {"broker": True, "checkpoint_interval_min": 0.5, "checkpoint_interval_max": 0.5}
    red.client.pools.update("gpus", settings=often)
    red.run(PROGRAMS / "loop.py", "obey")
    eventually(lambda: red.events().count("checkpoint_saved") >= 2)
    now = red.now()
    assert (now["status"], now["attempt"]) == ("allocated", 1)
    assert now["saved"]["id"] and red.process.poll() is None
    said = red._server.cede("why", red.id).stdout
    assert "checkpoint 0" in said and ("is worth" in said or "save itself and go on" in said)
    red.process.send_signal(signal.SIGTERM)
    _, out, err = red.ended()
    assert "stopping" not in out and "asked to save itself and go on" in err
