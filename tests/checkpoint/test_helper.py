"""`cede.checkpoint` as an application sees it, each time in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import pytest

from cede.checkpoint import manifest, shelf
from cede.talk.heard import Saved
from tests.checkpoint.hosting import PATIENCE, Host, wait_for

pytestmark = pytest.mark.system


def run(folder: Path, program: str, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CEDE_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        cwd=folder,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


COUNTS = """
    import cede.checkpoint as checkpoint

    resume = checkpoint.resume_from()
    number = int((resume / "number").read_text()) if resume else 0
    for step in checkpoint.steps(10, every=4):
        assert step == number
        number += 1
        if checkpoint.should_save():
            with checkpoint.saving(labels={"number": str(number)}) as directory:
                (directory / "number").write_text(str(number))
            print(number, end=" ")
            assert not checkpoint.should_save()
        assert not checkpoint.stopping() and not checkpoint.defer(1, "why")
        checkpoint.progress(0.5)
        if number == STOP:
            break
"""


def test_outside_cede_it_resumes_from_its_own_folder(tmp_path: Path) -> None:
    assert run(tmp_path, COUNTS.replace("STOP", "6")) == "4 "
    assert run(tmp_path, COUNTS.replace("STOP", "9")) == "8 "
    assert run(tmp_path, COUNTS.replace("STOP", "99")) == "10 "
    assert run(tmp_path, COUNTS.replace("STOP", "99")) == ""
    assert shelf.newest(tmp_path / "checkpoints") == ["000010-1", "000008-1"]
    assert manifest.verify(tmp_path / "checkpoints", "000010-1").labels == {"number": "10"}


def test_outside_cede_the_last_two_stay_whichever_attempt_made_them(tmp_path: Path) -> None:
    program = """
        import cede.checkpoint as checkpoint
        for step in checkpoint.steps(STOP, every=1):
            with checkpoint.saving() as directory:
                (directory / "number").write_text(str(step))
    """
    folder = tmp_path / "checkpoints"
    run(tmp_path, program.replace("STOP", "3"))
    assert shelf.newest(folder) == ["000003-1", "000002-1"]
    (folder / "000003-1" / "number").write_text("damaged")
    run(tmp_path, program.replace("STOP", "3"), CEDE_ATTEMPT="2")
    assert shelf.good(folder).ids == ("000003-2", "000002-1")
    run(tmp_path, program.replace("STOP", "4"), CEDE_ATTEMPT="3")
    assert shelf.newest(folder) == ["000004-3", "000003-2"]


def test_outside_cede_a_broken_checkpoint_is_passed_over(tmp_path: Path) -> None:
    run(tmp_path, COUNTS.replace("STOP", "6"))
    broken = tmp_path / "checkpoints" / "000005-1"
    broken.mkdir()
    (tmp_path / "checkpoints" / "000005-1.manifest.json").write_text("{}")
    assert run(tmp_path, COUNTS.replace("STOP", "99")) == "8 10 "


def test_a_named_checkpoint_that_does_not_verify_is_an_error(tmp_path: Path) -> None:
    program = """
        import cede.checkpoint as checkpoint
        try:
            checkpoint.resume_from()
        except checkpoint.NotACheckpoint as error:
            print(error.reason)
    """
    said = run(tmp_path, program, CEDE_RESUME_FROM=str(tmp_path / "000001-1"))
    assert "No such file" in said


def test_importing_it_needs_nothing_else_and_starts_nothing(tmp_path: Path) -> None:
    program = """
        import signal, sys, threading
        import cede.checkpoint
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
        assert threading.active_count() == 1
        others = {name.split(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)
        print(sorted(name for name in others if not name.startswith("_")))
        print(sorted(name for name in sys.modules if name.startswith("cede.")
              and not name.startswith("cede.checkpoint")))
    """
    found, ours = run(tmp_path, program).splitlines()
    assert "grpc" not in found and "google" not in found and "orjson" not in found
    assert ours == "[]"


def test_a_failed_save_leaves_nothing(tmp_path: Path) -> None:
    program = """
        import cede.checkpoint as checkpoint
        for step in checkpoint.steps(2, every=1):
            try:
                with checkpoint.saving() as directory:
                    (directory / "half").write_text("x")
                    raise KeyboardInterrupt
            except KeyboardInterrupt:
                assert checkpoint.should_save(), "it is still due"
                assert list(directory.parent.iterdir()) == []
    """
    run(tmp_path, program)


def test_files_written_elsewhere_are_copied(tmp_path: Path) -> None:
    program = """
        import cede.checkpoint as checkpoint
        from pathlib import Path
        Path("model").mkdir()
        for step in checkpoint.steps(2, every=1):
            Path("model/weights").write_text(str(step))
            Path("single").write_text(str(step))
            checkpoint.saved("model" if step == 0 else "single")
            Path("model/weights").write_text("of the next step")
            print(*sorted(path.name for path in Path("checkpoints").rglob("*")))
    """
    first, second = run(tmp_path, program).splitlines()
    assert first == "000001-1 000001-1.manifest.json weights"
    assert second == (
        "000001-1 000001-1.manifest.json 000002-1 000002-1.manifest.json single weights"
    )
    manifest.verify(tmp_path / "checkpoints", "000002-1")


def test_an_interval_may_be_a_time(tmp_path: Path) -> None:
    program = """
        import time
        import cede.checkpoint as checkpoint
        start = time.monotonic()
        for step in checkpoint.steps(None, seconds=0.2):
            if checkpoint.should_save():
                print(time.monotonic() - start >= 0.2)
                break
            time.sleep(0.01)
    """
    assert run(tmp_path, program) == "True\n"


def test_many_threads_may_save_at_once(tmp_path: Path) -> None:
    program = """
        import cede.checkpoint as checkpoint
        from concurrent.futures import ThreadPoolExecutor
        def save(number):
            with checkpoint.saving() as directory:
                (directory / "number").write_text(str(number))
            return directory.name
        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(save, range(40)))) == 40
    """
    run(tmp_path, program)
    folder = tmp_path / "checkpoints"
    assert shelf.newest(folder)
    for id in shelf.newest(folder):
        manifest.verify(folder, id)


WITH_A_HANDLER = """
import signal, sys, threading, time
def mine(number, frame):
    print("mine", flush=True)
when = sys.argv[1]
if when == "before":
    signal.signal(signal.SIGUSR1, mine)
if when == "in a thread":
    thread = threading.Thread(target=__import__, args=("cede.checkpoint",))
    thread.start()
    thread.join()
import cede.checkpoint as checkpoint
if when == "after":
    signal.signal(signal.SIGUSR1, mine)
print("ready", flush=True)
for step in checkpoint.steps(None):
    time.sleep(0.01)
    if checkpoint.should_save():
        with checkpoint.saving() as directory:
            (directory / "step").write_text(str(step))
"""


@pytest.mark.parametrize("when", ["before", "after", "in a thread"])
def test_a_handler_of_its_own_does_not_cost_the_hint(when: str, tmp_path: Path) -> None:
    with closing(Host(tmp_path, "signal")) as host:
        host.run(sys.executable, "-c", WITH_A_HANDLER, when)
        host.conversation.hint(1, 30)
        assert host.listen(Saved).number == 1
        if when != "in a thread":
            wait_for(lambda: "mine" in host.said())


def test_a_hint_before_the_helper_is_there_is_not_lost(host: Host) -> None:
    program = "import time; print('ready', flush=True); time.sleep(0.3)\n" + WITH_A_HANDLER
    host.run(sys.executable, "-c", program, "never")
    host.conversation.hint(1, 30)
    assert host.listen(Saved).number == 1


def test_a_finished_program_ends_whoever_listens(host: Host) -> None:
    program = "import cede.checkpoint as checkpoint\ncheckpoint.should_save()\nprint('ready')"
    host.run(sys.executable, "-c", program)
    host.conversation.hint(1, 30)
    assert host.process is not None
    assert host.process.wait(PATIENCE) == 0
