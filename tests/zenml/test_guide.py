"""The guide is typed into a shell, every command of it, and comes out as it says."""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.terminal import Typing
from tests.docs.blocks import Block, blocks, missing, script
from tests.zenml.world import ROOT, clean_environment, free_port

pytestmark = [pytest.mark.zenml, pytest.mark.system]

GUIDE = ROOT / "docs" / "how-to" / "zenml.md"
MARK = "--block-ended-with--"
PORTS = ("8231", "8237")
# A machine that does other things as well takes its time to start a ZenML server.
PATIENCE = 2400


@pytest.mark.timeout(PATIENCE + 60)
def test_the_guide_comes_out_as_it_says(zenml_is_here: None, tmp_path: Path) -> None:
    page = GUIDE.read_text()
    for port in PORTS:
        page = page.replace(port, str(free_port()))
    found = blocks(page)
    printed = typed(found, tmp_path)
    parts = re.split(rf"^{MARK} (\d+)\n", printed, flags=re.MULTILINE)
    done = [(parts[n], int(parts[n + 1])) for n in range(0, len(parts) - 1, 2)]
    for block, (said, code) in zip(found, done, strict=False):
        assert code == 0, f"{block.commands}\nended with {code}:\n{said}\n{logs(tmp_path)}"
        absent = missing(block.shows, said)
        assert not absent, f"{block.commands}\ndid not print {absent}, but:\n{said}"
    assert len(done) == len(found), f"the shell ended early:\n{printed}\n{logs(tmp_path)}"


def typed(found: list[Block], home: Path) -> str:
    """What a shell shows for them on a terminal of 80 columns, in the folder of cede, to somebody
    whose home is empty.
    """
    environment = {**clean_environment(), "HOME": str(home)}
    del environment["COLUMNS"]
    # A question would wait for ever; the guide says nothing of any.
    commands = "exec < /dev/null\n" + script(found, MARK)
    with Typing(program=("bash", "-c", commands), env=environment, cwd=ROOT) as typing:
        try:
            typing.until(MARK, times=len(found), seconds=PATIENCE)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{logs(home)}") from None
        finally:  # whatever the page left running, steps in groups of their own included
            for pid in (typing.process.pid, *steps_of(home)):
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
        return typing.ended().text


def steps_of(home: Path) -> list[int]:
    """Processes that still work below this home and lead a group of their own."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with suppress(OSError):
            inside = (entry / "cwd").readlink().is_relative_to(home)
            if inside and os.getpgid(int(entry.name)) == int(entry.name):
                found.append(int(entry.name))
    return found


def logs(home: Path) -> str:
    files = sorted((home / "sharing").glob("**/*.log"))
    return "\n".join(f"== {each}\n{each.read_text()[-3000:]}" for each in files)
