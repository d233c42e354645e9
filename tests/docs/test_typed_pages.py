"""The tour in the README and the pages that are typed by hand come out as they say."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.terminal import Typing
from tests.client.serving import Serving
from tests.docs.blocks import Block, blocks, missing, script

ROOT = Path(__file__).parents[2]
MARK = "--block-ended-with--"
PATIENCE = 500  # seconds for one page; half a minute is usual
Typer = Callable[[str, Serving, Path], tuple[list[Block], list[tuple[str, int]]]]
# ZenML has an environment of its own, Slurm must be there: tests/zenml and tests/slurm type these.
ELSEWHERE = [ROOT / "docs" / "how-to" / name for name in ("zenml.md", "slurm.md")]
# Whoever is new reads these in this order, on one server.
TOUR = ["README.md", "docs/start.md"]
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
    return found, parts_of(output.read_text())


def parts_of(printed: str) -> list[tuple[str, int]]:
    parts = re.split(rf"^{MARK} (\d+)\n", printed, flags=re.MULTILINE)
    return [(parts[n], int(parts[n + 1])) for n in range(0, len(parts) - 1, 2)]


def typed_at_a_terminal(
    page: str, server: Serving, folder: Path
) -> tuple[list[Block], list[tuple[str, int]]]:
    """The same on a pseudo-terminal of 80 columns."""
    found = blocks((ROOT / page).read_text())
    environment = {**server.environment(), "CEDE_CONFIG": str(server.data / "client.yaml")}
    del environment["CEDE_SERVER"], environment["CEDE_TOKEN"]
    shell = ("bash", "-c", script(found, MARK))
    with Typing(program=shell, env=environment, cwd=folder) as typing:
        try:
            typing.until(MARK, times=len(found), seconds=PATIENCE)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(typing.process.pid, signal.SIGKILL)
        return found, parts_of(typing.ended().text)


def comes_out(page: str, server: Serving, folder: Path, typed: Typer = typed) -> None:
    found, done = typed(page, server, folder)
    for block, (printed, code) in zip(found, done, strict=False):
        assert code == 0, f"{page}:\n{block.commands}\nended with {code}:\n{printed}"
        absent = missing(block.shows, printed)
        assert not absent, f"{page}:\n{block.commands}\ndid not print {absent}, but:\n{printed}"
    assert len(done) == len(found), f"{page}: the shell ended early, after\n{done[-1:]}"


def test_the_pages_that_are_typed() -> None:
    assert set(TOUR) < set(PAGES)


@pytest.mark.system
@pytest.mark.timeout(2 * PATIENCE + 100)
def test_the_tour_and_then_the_first_hour(server: Serving, tmp_path: Path) -> None:
    for page in TOUR:
        comes_out(page, server, tmp_path, typed_at_a_terminal)
    with server.client() as client:  # neither leaves anything for the next page to stumble over
        assert [each["name"] for each in client.pools.list()] == ["local"]


@pytest.mark.system
@pytest.mark.timeout(PATIENCE + 100)
@pytest.mark.parametrize("page", [page for page in PAGES if page not in TOUR])
def test_the_page_comes_out_as_it_says(page: str, server: Serving, tmp_path: Path) -> None:
    if page.endswith("tls.md") and shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    comes_out(page, server, tmp_path)


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


def test_a_condition_holds_whatever_its_program_says_after_it() -> None:
    """`grep -q` leaves as soon as it has found something, and what still writes to it fails."""
    (wait,) = blocks("<!-- until: (echo found; sleep 0.1; echo more) | grep -q found -->")
    shell = ["bash", "-c", script([wait], MARK)]
    printed = subprocess.run(shell, capture_output=True, text=True, check=True).stdout
    assert re.findall(rf"{MARK} (\d+)", printed) == ["0"]


def test_a_block_that_fails_is_found() -> None:
    bad = [Block("true"), Block("(exit 3)"), Block("(exit 4)\n(exit 5)\ntrue"), Block("! true")]
    shell = ["bash", "-c", script([*bad, Block("false || true")], MARK)]
    printed = subprocess.run(shell, capture_output=True, text=True, check=True).stdout
    assert re.findall(rf"{MARK} (\d+)", printed) == ["0", "3", "4", "1", "0"]
