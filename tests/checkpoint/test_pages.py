"""The programs on the pages do what the pages say, and the tables say what the code does."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cede.checkpoint import __all__ as names
from cede.checkpoint import flag, manifest, shelf, words
from cede.talk.heard import Deferral, Progress, Saved
from tests.checkpoint.gangs import GangHost
from tests.checkpoint.hosting import PATIENCE, Host, wait_for

ROOT = Path(__file__).parents[2]
HOW_TO = (ROOT / "docs/how-to/make-work-resumable.md").read_text()
REFERENCE = (ROOT / "docs/reference/checkpoint.md").read_text()


def program(marker: str, language: str = "python") -> str:
    blocks = re.findall(rf"^```{language}\n(.*?)^```", HOW_TO, re.MULTILINE | re.DOTALL)
    (found,) = [block for block in blocks if marker in block]
    return found


def run_when_asked(host: Host, program: str) -> None:
    """It is asked before it begins: a short one would be over before a busy machine got to it."""
    wait = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\n"
    host.run(sys.executable, "-c", wait + program, ready="")
    host.conversation.hint(1, 30)
    (host.folder / "go").touch()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path, "signal")
    yield host
    host.close()


@pytest.mark.system
def test_the_loop_resumes_where_it_was_asked(host: Host) -> None:
    loop = program("total.json")
    run_when_asked(host, loop)
    saved = host.listen_for_answer(1).saved
    host.next_attempt()
    host.run(sys.executable, "-c", loop, resume=saved.path, ready="total")
    assert f"total {sum(range(100))}" in host.said()


@pytest.mark.system
def test_the_long_save_reports_defers_and_leaves(host: Host) -> None:
    run_when_asked(host, program("PARTS"))
    assert host.listen(Deferral).why == "in the middle of an evaluation"
    host.listen(Saved)
    assert [each for each in host.heard if isinstance(each, Progress) and each.fraction]
    assert host.process is not None and host.process.wait(PATIENCE) == 75


@pytest.mark.system
def test_files_of_a_library(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", program("zipfile")], cwd=tmp_path, check=True)
    saved = manifest.verify(tmp_path / "checkpoints", "000020-1")
    assert [file.path for file in saved.files] == ["state.zip"]


@pytest.mark.system
def test_the_shell_script_saves_itself(host: Host) -> None:
    script = program("trap save USR1", "bash")
    host.run("bash", "-c", script, ready="from step 0")
    host.conversation.hint(1, 30)
    saved = host.listen(Saved)
    assert saved.number == 1
    host.next_attempt()
    host.run("bash", "-c", script, resume=saved.saved.path, ready=f"from step {saved.saved.step}")
    wait_for(lambda: f"from step {saved.saved.step}\n" in host.said())


# What a framework has: here every task leaves its value in a file, and waits for those of all.
FRAMEWORK = """
import hashlib, json, os, time
from itertools import count
from pathlib import Path

SHARED, TASK = Path(os.environ["SHARED"]), os.environ["CEDE_TASK"]
CHECKPOINTS = Path(os.environ["CEDE_CHECKPOINT_DIR"])
turns = count()

def all_reduce_max(value):
    turn = next(turns)
    (SHARED / f"partial-{TASK}").write_text(str(int(value)))
    (SHARED / f"partial-{TASK}").rename(SHARED / f"{turn}-{TASK}")
    values = [SHARED / f"{turn}-{task}" for task in range(int(os.environ["CEDE_TASKS"]))]
    while not all(each.exists() for each in values):
        time.sleep(0.001)
    return max(int(each.read_text()) for each in values)

def save(id, step):
    content = str(step).encode()
    (CHECKPOINTS / id).mkdir()
    (CHECKPOINTS / id / "step").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    files = [{"path": "step", "size": len(content), "sha256": digest}]
    manifest = {"id": id, "step": step, "labels": {}, "files": files}
    (CHECKPOINTS / "partial").write_text(json.dumps(manifest))
    (CHECKPOINTS / "partial").rename(CHECKPOINTS / f"{id}.manifest.json")
"""


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[GangHost]:
    gang = GangHost(tmp_path, "signal")
    yield gang
    gang.close()


@pytest.mark.system
def test_the_tasks_of_a_gang_save_at_one_step(gang: GangHost) -> None:
    loop = program("checkpoint.step(")
    gang.run(sys.executable, "-c", loop)
    gang.hint(1)
    gang.listen(lambda: gang.agreed > 0 and gang.have_answered())
    (id,) = set.intersection(*gang.ids(1))
    assert all(host.process.poll() is None for host in gang.hosts if host.process)
    gang.next_attempt()
    gang.run(sys.executable, "-c", loop, resume=id, attempt=2)
    for host in gang.hosts:
        wait_for(lambda host=host: f"from {int(id[:6])}\n" in host.said())


@pytest.mark.system
def test_an_all_reduced_flag_does_the_same_without_the_library(
    gang: GangHost, tmp_path: Path
) -> None:
    loop = FRAMEWORK + program("all_reduce_max(")
    assert "cede.checkpoint" not in loop
    resume = ""
    for attempt in (1, 2):
        shared = tmp_path / f"shared-{attempt}"
        shared.mkdir()
        gang.run(sys.executable, "-c", loop, resume=resume, attempt=attempt, SHARED=str(shared))
        start = int(resume[:6] or 0)
        gang.listen(lambda start=start: all(f"from {start}\n" in h.said() for h in gang.hosts))
        gang.hosts[attempt - 1].conversation.hint(1, 600)  # the other hears of it from this one
        assert [host.process.wait(PATIENCE) for host in gang.hosts if host.process] == [75, 75]
        found = [shelf.good(host.checkpoints).ids[0] for host in gang.hosts]
        assert found[0] == found[1] and found[0].endswith(f"-{attempt}")
        resume = found[0]
        assert int(resume[:6]) > start
        gang.next_attempt()


@pytest.mark.parametrize("name", sorted(set(names) - {"Saved"}))
def test_every_name_is_in_the_reference(name: str) -> None:
    assert re.search(rf"`{name}\b", REFERENCE)


def test_the_layout_on_the_page_is_that_of_the_code() -> None:
    sizes = {"char[8]": 8, "char[256]": 256, "u32": 4, "u64": 8, "i64": 8, "f64": 8}
    fields = re.findall(r"^\| (\d+) \| (\S+) \|", REFERENCE, re.MULTILINE)
    at = {int(offset): sizes[kind] for offset, kind in fields}
    assert sum(size for offset, size in at.items() if 64 <= offset < 88) == flag.HINT.size
    assert sum(size for offset, size in at.items() if 128 <= offset < 432) == flag.ANSWER.size
    assert flag.HINT_AT + flag.HINT.size == 88 and flag.ANSWER_AT + flag.ANSWER.size == 432
    assert all(offset + size in {*at, 12, 92, 436} for offset, size in at.items())
    assert all(f"{each.value} {each.name.lower()}" in REFERENCE for each in words.Status)
    assert f"{manifest.FILES_MAX:,}" in REFERENCE and f"{words.WHY_LENGTH_MAX} char" in REFERENCE
