"""A host and real programs, in each protocol."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cede.checkpoint import manifest
from cede.talk.heard import Answered, Deferral, Progress, Saved, SaveFailed
from tests.checkpoint.hosting import PATIENCE, Host, wait_for

pytestmark = pytest.mark.system


def test_it_saves_itself_when_asked_and_goes_on_from_there(host: Host) -> None:
    host.run_program("loop.py", "obey")
    host.conversation.hint(1, 30)
    saved = host.listen(Saved)
    host.hear(Answered(1))
    assert saved.number == 1
    assert saved.saved == manifest.verify(host.checkpoints, saved.saved.id)
    wait_for(lambda: "stopping" in host.said())
    host.next_attempt()
    host.run_program("loop.py", "obey", resume=saved.saved.path)
    assert f"ready at {saved.saved.step}\n" in host.said()
    assert int((saved.saved.path / "number").read_text()) == saved.saved.step > 0
    # A second hint, of the next attempt, is a conversation of its own.
    host.conversation.hint(1, 30)
    assert host.listen_for_answer(1).saved.step > saved.saved.step


def test_one_that_is_only_asked_to_save_itself_goes_on(host: Host) -> None:
    """It is asked twice so, and is not told to stop; then it has to part, and is."""
    host.run_program("loop.py", "obey")
    for number in (1, 2):
        host.conversation.hint(number, 30, goes_on=True)
        assert host.listen_for_answer(number).number == number
        host.conversation.go_on()
    assert "stopping" not in host.said()
    host.conversation.hint(3, 30)
    assert host.listen_for_answer(3).number == 3
    wait_for(lambda: "stopping" in host.said())


def test_a_stop_policy_that_comes_while_it_saves_takes_the_place_of_an_ask(host: Host) -> None:
    host.run_program("loop.py", "slow")
    host.conversation.hint(1, 30, goes_on=True)
    while host.listen(Progress) != Progress(1, 0.25, 3.0):
        pass
    host.conversation.hint(2, 30)
    while host.listen(Progress).number != 2:
        pass
    (host.folder / "go").touch()
    assert host.listen(Saved).number == 2, "what it was writing answers the farewell"
    wait_for(lambda: "stopping" in host.said().replace("not stopping", ""))


def test_a_host_that_is_restarted_still_lets_it_go_on(host: Host) -> None:
    host.run_program("loop.py", "slow")
    host.conversation.hint(1, 30, goes_on=True)
    while host.listen(Progress) != Progress(1, 0.25, 3.0):
        pass
    host.restart()
    host.conversation.hint(1, 30, goes_on=True)
    (host.folder / "go").touch()
    assert host.listen_for_answer(1).number == 1
    host.conversation.go_on()
    said = len(host.said())
    wait_for(lambda: "not stopping" in host.said()[said:])
    assert "stopping" not in host.said().replace("not stopping", "")


def test_one_that_is_slow_but_answers_is_heard(host: Host) -> None:
    host.run_program("loop.py", "slow")
    host.conversation.hint(1, 30)
    while host.listen(Progress) != Progress(1, 0.25, 3.0):
        pass
    assert Answered(1) in host.heard
    assert "stopping" not in host.said().replace("not stopping", "")
    assert not [each for each in host.listen_for(0.3) if isinstance(each, Saved)]
    (host.folder / "go").touch()
    assert host.listen(Saved).number == 1
    assert host.heard.count(Answered(1)) == 1


def test_a_deferral_is_heard_once_and_its_text_is_harmless(host: Host) -> None:
    host.run_program("loop.py", "late")
    host.conversation.hint(1, 30)
    deferral = host.listen(Deferral)
    assert (deferral.number, deferral.count, deferral.seconds) == (1, 1, 0.2)
    assert deferral.why.startswith("in the [31mmiddle of something xxx")
    assert len(deferral.why) == 200
    assert host.listen(Saved).number == 1
    assert len([each for each in host.heard if isinstance(each, Deferral)]) == 1


def test_a_failed_save_is_heard_and_may_be_made_good(host: Host) -> None:
    host.run_program("loop.py", "clumsy")
    host.conversation.hint(1, 30)
    saved = host.listen(Saved)
    failed = [each for each in host.heard if isinstance(each, SaveFailed)]
    assert [each.reason for each in failed] in ([], ["OSError: no space left"])
    assert "no space left" in host.said()
    assert [path.name for path in host.checkpoints.iterdir() if path.is_dir()] == [saved.saved.id]


def test_of_one_that_is_silent_nothing_is_heard(host: Host) -> None:
    host.run_program("loop.py", "silent")
    host.conversation.hint(1, 30)
    assert host.listen_for(0.3) == []
    assert host.process is not None and host.process.poll() is None


def test_a_checkpoint_nobody_asked_for_is_heard_once(host: Host) -> None:
    host.run_program("loop.py", "obey", "20")
    first, second = host.listen(Saved), host.listen(Saved)
    assert first.number is None and second.number is None
    assert second.saved.step > first.saved.step
    host.kill()
    host.listen_for(0.2)
    saved = [each.saved.id for each in host.heard if isinstance(each, Saved)]
    assert len(saved) == len(set(saved))


@pytest.mark.parametrize(
    ("how", "reason"),
    {
        "nothing": "it says that it saved itself, and there is no checkpoint",
        "wrong hash": "its SHA-256 is another",
        "truncated": "20 bytes, not 21",
        "escape": "leaves the checkpoint",
    }.items(),
)
def test_a_liar_is_not_believed(host: Host, how: str, reason: str) -> None:
    host.run_program("liar.py", how)
    host.conversation.hint(1, 30)
    failed = host.listen(SaveFailed)
    assert failed.number == 1
    assert reason in failed.reason
    assert not [each for each in host.heard if isinstance(each, Saved)]


def test_a_withdrawn_hint_lets_it_go_on(host: Host) -> None:
    host.run_program("loop.py", "much later")
    host.conversation.hint(1, 30)
    host.listen(Deferral)  # it is waiting to save
    host.conversation.go_on()
    assert host.listen_for(0.3) == []
    assert list(host.checkpoints.iterdir()) == []
    assert "stopping" not in host.said()
    host.conversation.hint(2, 30)
    assert host.listen(Saved).number == 2


def test_a_hint_after_the_save_of_a_withdrawn_one_wants_a_new_checkpoint(host: Host) -> None:
    host.run_program("loop.py", "obey")
    host.conversation.hint(1, 30)
    first = host.listen(Saved)
    host.conversation.go_on()
    host.conversation.hint(2, 30)
    second = host.listen(Saved)
    assert (first.number, second.number) == (1, 2)
    assert second.saved.step > first.saved.step


def test_a_hint_that_comes_right_after_a_checkpoint_is_not_taken_for_answered(host: Host) -> None:
    host.run_program("loop.py", "unlucky", "10")
    wait_for(lambda: (host.folder / "renamed").exists())
    [first] = host.checkpoints.glob("*.manifest.json")
    host.conversation.hint(1, 30)
    assert f"{host.listen_for_answer(1).saved.id}.manifest.json" > first.name


def test_a_host_that_restarts_in_the_middle_of_a_save_loses_nothing(host: Host) -> None:
    host.run_program("loop.py", "slow")
    host.conversation.hint(1, 30)
    host.listen(Progress)
    host.restart()
    host.heard.clear()
    host.conversation.hint(1, 25)
    assert host.listen(Progress).number == 1
    assert Answered(1) in host.heard
    (host.folder / "go").touch()
    assert host.listen(Saved).number == 1


def test_what_was_saved_while_the_host_was_away_answers_its_hint(host: Host) -> None:
    host.run_program("loop.py", "obey")
    host.conversation.hint(1, 30)
    host.listen(Answered)
    wait_for(lambda: list(host.checkpoints.glob("*.manifest.json")))
    host.restart()
    host.heard.clear()
    saved = host.listen(Saved)
    assert saved.number == 1
    assert len([each for each in host.heard if isinstance(each, Saved)]) == 1


def test_checkpoints_of_earlier_attempts_are_never_heard_of(host: Host) -> None:
    """Nor by a host that was restarted and knows what was there."""
    host.run_program("loop.py", "obey")
    host.conversation.hint(1, 30)
    old = host.listen(Saved).saved
    host.next_attempt()
    assert old.id in host.conversation.known
    host.heard.clear()
    host.run_program("loop.py", "obey", resume=old.path)
    host.restart()
    assert old.id in host.conversation.known
    host.conversation.hint(1, 30)
    new = host.listen(Saved)
    assert new.number == 1 and new.saved.step > old.step
    host.restart()
    wait_for(lambda: not host.conversation.is_verifying)
    host.listen_for(0.1)
    assert old.id not in [each.saved.id for each in host.heard if isinstance(each, Saved)]


@pytest.mark.parametrize("withdrawn", [False, True])
def test_what_was_left_by_work_that_ended_while_its_host_was_away(
    host: Host, withdrawn: bool
) -> None:
    host.run_program("loop.py", "slow")
    host.conversation.hint(1, 30)
    host.listen(Progress)
    if withdrawn:
        host.conversation.go_on()
    known = host.conversation.known
    host.conversation.close()
    (host.folder / "go").touch()
    wait_for(lambda: list(host.checkpoints.glob("*.manifest.json")))
    host.kill()
    host.restart()
    assert host.conversation.known == known
    host.conversation.look()
    saved = host.listen(Saved)
    assert saved.number == (None if withdrawn else 1)
    assert not host.conversation.is_verifying


def test_a_deferral_that_is_heard_again_by_a_new_host_has_the_same_count(host: Host) -> None:
    host.run_program("loop.py", "much later")
    host.conversation.hint(1, 30)
    before = host.listen(Deferral)
    host.restart()
    assert host.listen(Deferral) == before


def test_a_poll_takes_no_time_while_a_large_checkpoint_is_hashed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hashing takes for ever, until so many polls have come back."""
    polled = threading.Event()
    verify = manifest.verify

    def verify_later(*given: Any) -> manifest.Saved:
        assert polled.wait(PATIENCE)
        return verify(*given)

    monkeypatch.setattr(manifest, "verify", verify_later)
    with closing(Host(tmp_path, "signal")) as host:
        folder = host.checkpoints / "000001-1"
        folder.mkdir()
        (folder / "large").touch()
        manifest.write(host.checkpoints, "000001-1", 1)
        for _ in range(5):
            assert host.conversation.poll(time.monotonic()) == []
        assert host.conversation.is_verifying
        polled.set()
        host.listen(Saved)
