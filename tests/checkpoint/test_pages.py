"""The programs on the pages do what the pages say, and the tables say what the code does."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cede.checkpoint import __all__ as names
from cede.checkpoint import flag, manifest, words
from cede.talk.heard import Deferral, Progress, Saved
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


@pytest.mark.parametrize("name", sorted(set(names) - {"Saved"}))
def test_every_name_is_in_the_reference(name: str) -> None:
    assert f"`{name}" in REFERENCE


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
