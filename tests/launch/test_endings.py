"""How an attempt ends, and that the record says so."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cede.launch.clock import boottime
from cede.launch.course import LEFTOVERS_GRACE
from cede.launch.launcher import Kept, State
from tests.launch.conftest import Make
from tests.launch.support import WAIT, Attempt, survivors, until

pytestmark = pytest.mark.system


@pytest.mark.parametrize(
    ("script", "code", "number"),
    [("exit 0", 0, None), ("exit 7", 7, None), ("kill -9 $$", None, 9), ("kill -15 $$", None, 15)],
)
def test_the_record_has_the_works_own_status(
    script: str, code: int | None, number: int | None, make: Make
) -> None:
    attempt = make("sh", "-c", script)
    before = boottime()
    attempt.launch().close()
    record = attempt.ended()
    assert (record["cause"], record["code"], record["signal"]) == ("exited", code, number)
    assert before <= record["started_at"] <= record["ended_at"] <= boottime()
    assert (record["oom"], record["error"]) == (False, None)


def test_whatever_the_work_leaves_behind_is_asked_and_then_killed(
    make: Make, tmp_path: Path
) -> None:
    def answer(ready: Path) -> str:
        polite = f"trap 'echo asked; exit' TERM; touch {ready}; while :; do sleep 0.01; done"
        waits = f"while [ ! -e {ready} ]; do sleep 0.01; done"
        attempt = make("sh", "-c", f'setsid sh -c "{polite}" & {waits}; setsid sleep 1000 & exit 3')
        attempt.launch().close()
        assert attempt.ended()["code"] == 3
        attempt.assert_nothing_survives()
        return attempt.output()

    # A busy machine may now and then take longer to answer than it has time to.
    assert any(answer(tmp_path / str(number)) == "asked\n" for number in range(5))


def test_stop_gives_the_whole_group_its_grace(make: Make, tmp_path: Path) -> None:
    """A shell dies of SIGTERM at once; what it runs may still be saving."""
    ready = tmp_path / "ready"
    saving = f"trap 'sleep 0.5; echo saved; exit' TERM; touch {ready}; while :; do sleep 0.01; done"
    attempt = make("sh", "-c", f'setsid sh -c "{saving}" & wait')
    with attempt.launch() as kept:
        until(ready.exists)
        kept.stop(grace=WAIT)
        record = attempt.ended()
    assert (record["cause"], record["signal"]) == ("stopped", signal.SIGTERM)
    assert attempt.output() == "saved\n"


def test_a_stopped_process_is_let_go_on_to_obey(make: Make) -> None:
    attempt = make("sh", "-c", "trap 'echo bye; exit 5' TERM; kill -STOP $$")
    with attempt.launch() as kept:
        pid = attempt.running()["pid"]
        until(lambda: Path(f"/proc/{pid}/stat").read_text().split()[2] == "T", "the stop")
        kept.stop(grace=WAIT)
        record = attempt.ended()
    assert (record["cause"], record["code"]) == ("stopped", 5)
    assert attempt.output() == "bye\n"


def test_a_shorter_grace_counts_and_a_kill_is_the_shortest(make: Make, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    attempt = make("sh", "-c", f"trap '' TERM; touch {ready}; while :; do sleep 0.01; done")
    with attempt.launch() as kept:
        until(ready.exists)
        kept.stop(grace=1000)
        kept.kill()
        assert attempt.ended()["cause"] == "killed"


def test_walltime_asks_and_then_kills(make: Make, tmp_path: Path) -> None:
    walltime, grace = 3.0, 2.0

    def answer(ready: Path) -> str:
        script = f"trap 'echo asked' TERM; touch {ready}; while :; do sleep 0.01; done"
        attempt = make("sh", "-c", script, walltime=walltime, walltime_grace=grace)
        attempt.launch().close()
        record = attempt.ended()
        assert record["cause"] == "walltime"
        assert record["ended_at"] - record["started_at"] >= walltime
        if not ready.exists():
            return "asked before it could hear"
        assert record["signal"] == signal.SIGKILL
        assert record["ended_at"] - record["started_at"] >= walltime + grace
        return attempt.output()

    # A busy machine may now and then take longer to get ready, or to answer, than it has time to.
    assert any(answer(tmp_path / str(number)) == "asked\n" for number in range(5))


def test_the_lease_ends_the_work_without_a_grace(make: Make, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    script = f"trap 'echo asked' TERM; touch {ready}; while :; do sleep 0.01; done"
    attempt = make("sh", "-c", script, deadline=boottime() + 1000)
    with attempt.launch() as kept:
        until(ready.exists)
        deadline = boottime() + 0.2
        kept.set_deadline(deadline)
        record = attempt.ended()
    assert (record["cause"], record["signal"]) == ("lease", signal.SIGKILL)
    assert deadline <= record["ended_at"]
    assert attempt.output() == "", "it was asked first"


@pytest.mark.parametrize("cause", ["lease", "stopped", "killed"])
def test_what_may_not_run_any_more_does_not_begin(cause: str, make: Make, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    deadline = boottime() - 1 if cause == "lease" else None
    attempt = make("touch", str(ran), deadline=deadline)
    with Kept.adopt(attempt.directory) as early:
        if cause != "lease":
            early.stop(grace=WAIT if cause == "stopped" else 0)
    attempt.launch().close()
    assert attempt.ended()["cause"] == cause
    assert not ran.exists()


def test_a_renewed_lease_lets_it_live_on(make: Make, tmp_path: Path) -> None:
    def lives_on(go: Path) -> bool:
        attempt = make(
            "sh", "-c", f"while ! test -e {go}; do sleep 0.01; done", deadline=boottime() + 1000
        )
        with attempt.launch() as kept:
            attempt.running()
            first = boottime() + 3
            kept.set_deadline(first)
            kept.set_deadline(boottime() + 1000)
            is_in_time = boottime() < first
            until(lambda: boottime() > first + 0.5, "the end of the first lease")
            go.touch()
            assert attempt.ended()["code"] == 0 or not is_in_time
        return is_in_time

    # A busy machine may now and then renew it too late.
    assert any(lives_on(tmp_path / str(number)) for number in range(5))


# Launches, and when its work is seen to run gives it so much time as it is told; says until when.
AGENT = """
import sys, time
from pathlib import Path
from cede.launch.clock import boottime
from cede.launch.launcher import Kept, launch
launch(Path(sys.argv[1]))
kept = Kept.adopt(Path(sys.argv[1]))
print(flush=True)
if seconds := sys.stdin.readline():
    deadline = boottime() + float(seconds)
    kept.set_deadline(deadline)
    print(deadline, flush=True)
time.sleep(1000)
"""


def start_agent(attempt: Attempt) -> subprocess.Popen[str]:
    """An agent that has launched."""
    command = [sys.executable, "-c", AGENT, attempt.directory]
    agent = subprocess.Popen(command, stdin=-1, stdout=-1, text=True)
    assert agent.stdout is not None
    assert agent.stdout.readline()
    return agent


@pytest.mark.parametrize("fate", [signal.SIGSTOP, signal.SIGKILL])
def test_the_lease_is_enforced_whatever_happens_to_the_agent(
    fate: signal.Signals, make: Make
) -> None:
    attempt = make("sleep", "1000")
    agent = start_agent(attempt)
    try:
        assert agent.stdin is not None and agent.stdout is not None
        until(lambda: survivors(attempt.mark), "the start")
        agent.stdin.write("4\n")
        agent.stdin.flush()
        deadline = float(agent.stdout.readline())
        agent.send_signal(fate)
        assert survivors(attempt.mark) or boottime() >= deadline, "the work did not outlive it"
        record = attempt.ended()
        assert record["cause"] == "lease" and record["ended_at"] >= deadline
        attempt.assert_nothing_survives()
    finally:
        agent.kill()
        agent.communicate()


def test_another_process_adopts(make: Make) -> None:
    """What one process launched another stops, and learns of by the supervisor's end."""
    attempt = make("sleep", "1000")
    agent = start_agent(attempt)
    agent.kill()
    agent.communicate()
    attempt.running()
    with Kept.adopt(attempt.directory) as kept:
        kept.stop(grace=WAIT)
        assert until(lambda: _readable(kept), "the supervisor's end")
        ending = kept.status()
    assert ending.state is State.ENDED
    assert ending.exit is not None and ending.exit["cause"] == "stopped"


def _readable(kept: Kept) -> bool:
    return bool(select.select([kept], [], [], 0)[0])


def test_polite_signals_do_not_end_a_supervisor(make: Make) -> None:
    attempt = make("sleep", "1000")
    with attempt.launch() as kept:
        supervisor = attempt.running()["keeper"]
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            os.kill(supervisor, number)
        kept.stop(grace=WAIT)
        assert attempt.ended()["cause"] == "stopped"


def test_an_end_without_leftovers_waits_for_nothing(make: Make) -> None:
    def took() -> float:
        attempt = make("true")
        attempt.launch().close()
        record = attempt.ended()
        return float(record["ended_at"] - record["started_at"])

    # One that waited would be too slow each time; a busy machine is too slow only now and then.
    assert any(took() < LEFTOVERS_GRACE for _ in range(5))
