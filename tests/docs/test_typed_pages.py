"""The tour in the README and the pages that are typed by hand come out as they say."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.client.serving import Serving
from tests.docs.blocks import Block, blocks, missing, script

ROOT = Path(__file__).parents[2]
MARK = "--block-ended-with--"
PATIENCE = 500  # seconds for one page; half a minute is usual
# ZenML has an environment of its own, Slurm must be there: tests/zenml and tests/slurm type these.
ELSEWHERE = [ROOT / "docs" / "how-to" / name for name in ("zenml.md", "slurm.md")]
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (ROOT / "README.md", *ROOT.glob("docs/**/*.md"))
    if path not in ELSEWHERE and "<!-- run -->" in path.read_text()
)


def typed(page: str, server: Serving, folder: Path) -> tuple[list[Block], list[tuple[str, int]]]:
    """Type a page's blocks into one shell; what each printed, and its exit code."""
    found = blocks((ROOT / page).read_text())
    environment = server.environment(COLUMNS="200", CEDE_CONFIG=str(server.data / "client.yaml"))
    del environment["CEDE_SERVER"], environment["CEDE_TOKEN"]  # as on the machine of a reader
    output = folder / "printed"
    with output.open("w") as stream:
        shell = subprocess.Popen(
            ["bash", "-c", script(found, MARK)],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            shell.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            shell.kill()
            shell.wait()
        finally:  # whatever a page left running
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    printed = output.read_text()
    parts = re.split(rf"^{MARK} (\d+)\n", printed, flags=re.MULTILINE)
    return found, [(parts[n], int(parts[n + 1])) for n in range(0, len(parts) - 1, 2)]


def test_the_pages_that_are_typed() -> None:
    assert "README.md" in PAGES and "docs/start.md" in PAGES


@pytest.mark.system
@pytest.mark.timeout(PATIENCE + 100)
@pytest.mark.parametrize("page", PAGES)
def test_the_page_comes_out_as_it_says(page: str, server: Serving, tmp_path: Path) -> None:
    if page.endswith("tls.md") and shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    found, done = typed(page, server, tmp_path)
    for block, (printed, code) in zip(found, done, strict=False):
        assert code == 0, f"{page}:\n{block.commands}\nended with {code}:\n{printed}"
        absent = missing(block.shows, printed)
        assert not absent, f"{page}:\n{block.commands}\ndid not print {absent}, but:\n{printed}"
    assert len(done) == len(found), f"{page}: the shell ended early, after\n{done[-1:]}"


PAGE = """
<!-- run -->
```bash
echo one two; echo three
```

<!-- shows -->
```text
one …
three
```

<!-- until: test -e here -->

```bash
rm -rf everything
```
"""


def test_only_marked_blocks_are_typed() -> None:
    first, wait = blocks(PAGE)
    assert first.commands == "echo one two; echo three\n"
    assert first.shows == ["one …", "three"]
    assert "test -e here" in wait.commands and "rm" not in wait.commands


def test_a_page_that_shows_what_is_not_printed_is_found() -> None:
    assert missing(["one …", "three"], "one   two\nthree\n") == []
    assert missing(["three", "one"], "one two\nthree\n") == ["one"]
    assert missing(["a … c"], "a b d") == ["a … c"]


def test_a_block_that_fails_is_found() -> None:
    shell = ["bash", "-c", script([Block("true"), Block("(exit 3)")], MARK)]
    printed = subprocess.run(shell, capture_output=True, text=True, check=True).stdout
    assert re.findall(rf"{MARK} (\d+)", printed) == ["0", "3"]
